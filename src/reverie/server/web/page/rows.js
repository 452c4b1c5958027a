// One line of a list: a memory, or a turn that a search found.

import { el, time } from "./dom.js";
import * as route from "./route.js";
import { scoreOf } from "./score.js";

// A row shows how a text begins; the browser has no need of the rest.
const MAX_CHARS = 400;

export function rowOf(memory, asked, hit = null) {
  const row = memory ? ofMemory(memory, asked, hit !== null) : ofTurn(hit);
  return el("li", { class: "row" }, row, hit ? scoreOf(hit) : null);
}

function ofMemory(memory, asked, mixed) {
  const quiet = [
    memory.pinned ? el("span", { class: "pin", title: "Always in the profile" }, "pinned") : null,
    mixed ? el("span", {}, memory.category) : null,
    memory.subject ? el("span", { class: "subject" }, memory.subject) : null,
    memory.kind === "note" ? el("span", {}, "note") : null,
    memory.tags.map((tag) => el("span", { class: "tag" }, `#${tag}`)),
    ["person", "agent"].includes(memory.trust) ? null : trustOf(memory.trust),
    memory.forgotten_at
      ? el("span", { class: "gone" }, "forgotten ", time(memory.forgotten_at))
      : time(memory.updated_at),
  ];
  return el(
    "a",
    {
      href: route.link("memories", memory.id, asked),
      "data-row": memory.id,
      class: memory.forgotten_at ? "row-link forgotten" : "row-link",
    },
    el("span", { class: "row-text" }, begun(memory.content)),
    el("span", { class: "row-about" }, quiet),
  );
}

function ofTurn(hit) {
  const { session, sequence, role, at } = hit.event;
  return el(
    "a",
    {
      href: route.link("sessions", session, { at: sequence }),
      "data-row": hit.id,
      class: "row-link turn",
    },
    el("span", { class: "row-text" }, begun(hit.text)),
    el(
      "span",
      { class: "row-about" },
      el("span", {}, `said by ${role}`),
      el("span", { class: "subject" }, `${session} · ${sequence}`),
      time(at),
    ),
  );
}

export function trustOf(trust) {
  return el("span", { class: `trust ${trust}`, title: TRUSTS[trust] ?? "" }, trust);
}

const TRUSTS = {
  person: "A person wrote it",
  agent: "An agent wrote it",
  model: "A model learned it from what was said",
  import: "It was imported",
  tool: "A tool said it: it never reaches the profile",
  document: "A document says it: it never reaches the profile",
};

function begun(text) {
  return text.length > MAX_CHARS ? `${text.slice(0, MAX_CHARS)}…` : text;
}

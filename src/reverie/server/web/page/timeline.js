// The life of a memory, the newest version first: who, when, why, how far to trust it, what changed.

import { el, exactly, time } from "./dom.js";
import { drawn } from "./diff.js";
import * as route from "./route.js";
import { trustOf } from "./rows.js";

const DEEDS = {
  remember: "remembered",
  revise: "revised",
  forget: "forgotten",
  restore: "restored",
  erase: "erased",
  promote: "promoted",
};

export function timeline(versions) {
  const oldestFirst = [...versions].sort((one, other) => one.version_number - other.version_number);
  return el(
    "ol",
    { class: "timeline", reversed: true },
    oldestFirst.map((version, at) => entry(version, oldestFirst[at - 1])).reverse(),
  );
}

function entry(version, before) {
  return el(
    "li",
    { class: `life ${version.op}` },
    el(
      "p",
      { class: "life-head" },
      el("strong", {}, DEEDS[version.op] ?? version.op),
      version.actor ? el("span", {}, ` by ${version.actor}`) : null,
      " ",
      time(version.created_at),
      trustOf(version.trust),
      el(
        "span",
        { class: "figure", title: exactly(version.created_at) },
        `v${version.version_number}`,
      ),
    ),
    version.reason ? el("p", { class: "reason" }, `“${version.reason}”`) : null,
    changes(version, before),
    el(
      "p",
      { class: "life-links" },
      from(version.origin),
      el(
        "a",
        { href: route.link("memories", null, { as_of: String(version.position) }) },
        "what was known then",
      ),
    ),
  );
}

function from(origin) {
  if (!origin) return null;
  // Sequence 0: the session alone, which may have no page.
  if (!origin.sequence) return el("span", { class: "origin" }, `from ${origin.session}`);
  return el(
    "a",
    { class: "origin", href: route.link("sessions", origin.session, { at: origin.sequence }) },
    `from turn ${origin.sequence} of ${origin.session}`,
  );
}

function changes(version, before) {
  if (version.content === null || version.content === undefined)
    return el("p", { class: "quiet" }, "Its content was destroyed.");
  if (!before) return el("p", { class: "diff" }, version.content);
  if (version.op === "forget" || version.op === "restore") return null;
  const shown = [];
  if (before.content !== version.content) shown.push(drawn(before.content ?? "", version.content));
  for (const name of ["category", "subject"]) {
    if ((before[name] ?? "") !== (version[name] ?? "")) {
      shown.push(
        el(
          "p",
          { class: "diff small" },
          `${name} `,
          el("del", {}, before[name] || "none"),
          " ",
          el("ins", {}, version[name] || "none"),
        ),
      );
    }
  }
  const gone = before.tags.filter((tag) => !version.tags.includes(tag));
  const come = version.tags.filter((tag) => !before.tags.includes(tag));
  if (gone.length || come.length) {
    shown.push(
      el(
        "p",
        { class: "diff small" },
        "tags ",
        gone.map((tag) => [el("del", {}, `#${tag}`), " "]),
        come.map((tag) => [el("ins", {}, `#${tag}`), " "]),
      ),
    );
  }
  return shown.length ? shown : el("p", { class: "quiet" }, "pinned or unpinned");
}

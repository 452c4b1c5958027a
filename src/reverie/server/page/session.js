// One conversation: what was said, and beside each turn of the user what was recalled for it.

import { ask, path } from "./api.js";
import { button, count, deed, el, empty, exactly, fill } from "./dom.js";
import * as route from "./route.js";
import { guarded } from "./toast.js";

const PAGE = 100;
const FEW = 3;

export async function openSession(pane, id, at, close) {
  pane.refresh = null;
  if (!id) {
    fill(pane, empty("Open a session to read it.", "Beside each turn stands what was recalled for it."));
    return;
  }
  let limit = PAGE;
  const read = async () => {
    const info = await ask("GET", path`/api/sessions/${id}`);
    // Far enough back for the event that a link leads to.
    if (at) limit = Math.max(limit, info.events - at + 10);
    const [{ events }, summary, pad, { recalls }] = await Promise.all([
      ask("GET", path`/api/sessions/${id}/events`, { query: { limit } }),
      ask("GET", path`/api/sessions/${id}/summary`),
      ask("GET", path`/api/sessions/${id}/scratchpad`),
      ask("GET", path`/api/sessions/${id}/recalls`)]);
    return { info, events, summary, pad, recalls };
  };
  const draw = (known) => {
    const { info, events, summary, pad, recalls } = known;
    const earlier = events.length >= limit && info.events > events.length;
    fill(pane, el("article", { class: "session" },
      el("header", {}, button("←", close, { class: "plain back", "aria-label": "Back to the list" }), el("h2", {}, info.preview), el("code", { class: "id" }, info.id)),
      about(info), kept("Summary", summary.text), kept("Scratchpad", pad.items?.length ? el("ul", {}, pad.items.map((item) => el("li", {}, item))) : null),
      earlier ? deed("Earlier", () => guarded(async () => { limit *= 2; draw(await read()); })) : null,
      el("ol", { class: "chat" }, events.map((event) => turn(event, hitsOf(recalls, event), event.sequence === at)))));
  };
  draw(await read());
  pane.refresh = async () => {
    const top = pane.scrollTop;
    at = null;
    draw(await read());
    pane.scrollTop = top;
  };
  const target = at ? pane.querySelector(".turn.meant") : null;
  if (target) {
    target.scrollIntoView({ block: "center" });
    target.focus({ preventScroll: true });
  } else pane.scrollTop = 0;
}

function about(info) {
  const fork = info.forked_from;
  return el("p", { class: "quiet" }, `${count(info.events, "event")} since ${exactly(info.opened_at)}`,
    fork ? [", forked from ", el("a", { href: route.link("sessions", fork.session, { at: fork.sequence }) }, `${fork.session} · ${fork.sequence}`)] : null);
}

function kept(title, what) {
  return what ? el("details", { class: "kept", open: true }, el("summary", {}, title), el("div", {}, what)) : null;
}

function hitsOf(recalls, event) {
  const made = recalls.filter((recall) => recall.sequence === event.sequence);
  const hits = new Map();
  for (const recall of made) for (const hit of recall.hits) hits.set(hit.id, hit);
  return [...hits.values()];
}

function turn(event, hits, meant) {
  const said = el("div", { class: "said" },
    el("p", { class: "turn-head" }, el("strong", {}, event.role), el("span", { class: "figure" }, `${event.sequence}`), el("time", { datetime: event.at }, exactly(event.at)),
      event.interrupted ? el("span", { class: "gone" }, "cut off") : null),
    el("div", { class: "said-text" }, event.text || el("span", { class: "quiet" }, "nothing in words")));
  return el("li", { class: `turn ${role(event.role)}${meant ? " meant" : ""}`, id: `turn-${event.sequence}`, tabindex: meant ? "-1" : null },
    said, hits.length ? recalled(hits) : null);
}

function recalled(hits) {
  const links = hits.map((hit) => el("li", {}, el("a", { href: addressOf(hit.id) }, hit.text ?? hit.id)));
  const rest = links.slice(FEW);
  return el("aside", { class: "recalled", "aria-label": "Recalled for this turn" },
    el("p", { class: "quiet" }, "recalled"),
    el("ul", {}, links.slice(0, FEW)),
    rest.length ? el("details", {}, el("summary", {}, `${rest.length} more`), el("ul", {}, rest)) : null);
}

/** An event is known by its session and sequence, a memory by its id. */
function addressOf(id) {
  const split = id.lastIndexOf(":");
  return split < 0 ? route.link("memories", id) : route.link("sessions", id.slice(0, split), { at: id.slice(split + 1) });
}

function role(name) {
  return ["user", "assistant", "system", "tool"].includes(name) ? name : "other";
}

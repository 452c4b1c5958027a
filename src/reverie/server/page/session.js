// One conversation: what was said, and beside each turn of the user what was recalled for it.

import { ask, path } from "./api.js";
import { button, count, deed, el, empty, exactly, fill } from "./dom.js";
import * as route from "./route.js";
import { guarded } from "./toast.js";

const PAGE = 100;
const MOST_EVENTS = 1000;
const FEW = 3;
const SHORT = 140;

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
    if (at) limit = Math.min(Math.max(limit, info.events - at + 10), MOST_EVENTS);
    const [{ events }, summary, pad, { recalls }] = await Promise.all([
      ask("GET", path`/api/sessions/${id}/events`, { query: { limit } }),
      ask("GET", path`/api/sessions/${id}/summary`),
      ask("GET", path`/api/sessions/${id}/scratchpad`),
      ask("GET", path`/api/sessions/${id}/recalls`)]);
    return { info, events, summary, pad, recalls };
  };
  const draw = (known) => {
    const { info, events, summary, pad, recalls } = known;
    const said = new Map(events.map((event) => [`${id}:${event.sequence}`, event.text]));
    const earlier = limit < MOST_EVENTS && info.events > events.length;
    fill(pane, el("article", { class: "session" },
      el("header", {}, button("←", close, { class: "plain back", "aria-label": "Back to the list" }), el("h2", {}, info.preview), el("code", { class: "id" }, info.id)),
      about(info), kept("Summary", summary.text), kept("Scratchpad", pad.items?.length ? el("ul", {}, pad.items.map((item) => el("li", {}, item))) : null),
      earlier ? deed("Earlier", () => guarded(async () => { limit = Math.min(limit * 2, MOST_EVENTS); draw(await read()); })) : null,
      el("ol", { class: "chat" }, events.map((event) => turn(event, hitsOf(recalls, event), event.sequence === at, said)))));
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

/** The ids of all that was recalled for an event, each once. */
function hitsOf(recalls, event) {
  return [...new Set(recalls.filter((recall) => recall.sequence === event.sequence).flatMap((recall) => recall.hits))];
}

function turn(event, hits, meant, said) {
  const words = el("div", { class: "said" },
    el("p", { class: "turn-head" }, el("strong", {}, event.role), el("span", { class: "figure" }, `${event.sequence}`), el("time", { datetime: event.at }, exactly(event.at)),
      event.interrupted ? el("span", { class: "gone" }, "cut off") : null),
    el("div", { class: "said-text" }, event.text || el("span", { class: "quiet" }, "nothing in words")));
  return el("li", { class: `turn ${role(event.role)}${meant ? " meant" : ""}`, tabindex: meant ? "-1" : null },
    words, hits.length ? recalled(hits, said) : null);
}

// -- what was recalled ----------------------------------------------------------------------------

function recalled(hits, said) {
  const links = hits.map((id) => el("li", {}, hitOf(id, said)));
  const rest = links.slice(FEW);
  return el("aside", { class: "recalled", "aria-label": "Recalled for this turn" },
    el("p", { class: "quiet" }, "recalled"),
    el("ul", {}, links.slice(0, FEW)),
    rest.length ? el("details", {}, el("summary", {}, `${rest.length} more`), el("ul", {}, rest)) : null);
}

/** A hit is known by its id: an event's is its session and sequence, and what it says may be on this page. */
function hitOf(id, said) {
  const split = id.lastIndexOf(":");
  if (split >= 0) {
    const [session, sequence] = [id.slice(0, split), id.slice(split + 1)];
    return el("a", { href: route.link("sessions", session, { at: sequence }) }, brief(said.get(id) ?? `turn ${sequence} of ${session}`));
  }
  const link = el("a", { href: route.link("memories", id), "data-memory": id }, id);
  whenSeen.observe(link);
  return link;
}

// A conversation of a thousand turns asks for no memory that nobody looks at.
const whenSeen = new IntersectionObserver((seen) => {
  for (const { target, isIntersecting } of seen) {
    if (!isIntersecting) continue;
    whenSeen.unobserve(target);
    ask("GET", path`/api/memory/${target.dataset.memory}`)
      .then((memory) => { target.textContent = brief(memory.content); })
      .catch(() => { target.textContent = `${target.dataset.memory}, which is gone`; });
  }
});

function brief(text) {
  return text.length > SHORT ? `${text.slice(0, SHORT)}…` : text;
}

function role(name) {
  return ["user", "assistant", "system", "tool"].includes(name) ? name : "other";
}

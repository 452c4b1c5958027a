// One conversation: what was said, and beside each turn of the user what was recalled for it.

import { ask, path } from "./api.js";
import { button, count, deed, el, empty, exactly, fill, missing } from "./dom.js";
import * as route from "./route.js";
import { guarded } from "./toast.js";

const PAGE = 100;
// How much of what came after shows with an event that a link leads to.
const AFTER = 20;
const FEW = 3;
const SHORT = 140;

/** Shows a session, its end or around the event `at`. */
export async function openSession(pane, id, at, close) {
  pane.refresh = null;
  if (!id) {
    fill(
      pane,
      empty("Open a session to read it.", "Beside each turn is what was recalled for it."),
    );
    return;
  }
  const part = (until) =>
    ask("GET", path`/api/sessions/${id}/events`, { query: { limit: PAGE, until } }).then(
      ({ events }) => events,
    );
  const around = () =>
    Promise.all(
      ["", "/summary", "/scratchpad", "/recalls"].map((rest) =>
        ask("GET", path`/api/sessions/${id}` + rest),
      ),
    );
  const end = (events) => events.at(-1)?.sequence ?? 0;

  let events, info, summary, pad, recalls, newest;
  try {
    [events, [info, summary, pad, { recalls }], newest] = await Promise.all([
      part(at ? at + AFTER : null),
      around(),
      at ? part(null).then(end) : null,
    ]);
  } catch (error) {
    if (route.read().id !== id) return;
    fill(pane);
    if (error.status !== 404) throw error;
    fill(pane, missing(`No session here has the id ${id}.`, close));
    return;
  }
  newest ??= end(events);

  const earlier = async () => {
    events = [...(await part(events[0].sequence - 1)), ...events];
    draw();
  };
  const later = async () => {
    const last = end(events);
    events = [...events, ...(await part(last + PAGE)).filter((event) => event.sequence > last)];
    draw();
  };
  const draw = () => {
    const said = new Map(events.map((event) => [`${event.session}:${event.sequence}`, event.text]));
    fill(
      pane,
      el(
        "article",
        { class: "session" },
        el(
          "header",
          {},
          button("←", close, { class: "plain back", "aria-label": "Back to the list" }),
          el("h2", {}, info.preview),
          el("code", { class: "id" }, info.id),
        ),
        about(info),
        kept("Summary", summary.text),
        kept(
          "Scratchpad",
          pad.items.length
            ? el(
                "ul",
                {},
                pad.items.map((item) => el("li", {}, item)),
              )
            : null,
        ),
        events[0]?.sequence > 1 ? deed("Earlier", () => guarded(earlier)) : null,
        el(
          "ol",
          { class: "chat" },
          events.map((event) => turn(event, hitsOf(recalls, event), event.sequence === at, said)),
        ),
        end(events) < newest ? deed("Later", () => guarded(later)) : null,
      ),
    );
  };
  draw();
  pane.refresh = async () => {
    const top = pane.scrollTop;
    [info, summary, pad, { recalls }] = await around();
    const fresh = await part(null);
    // Who reads the end sees what is added to it, unless it is too much to come at once.
    const last = end(events);
    if (last >= newest && end(fresh) - last <= PAGE)
      events = [...events, ...fresh.filter((event) => event.sequence > last)];
    newest = end(fresh);
    draw();
    pane.scrollTop = top;
  };
  const target = pane.querySelector(".turn.meant");
  target?.scrollIntoView({ block: "center" });
  target?.focus({ preventScroll: true });
  if (!target) pane.scrollTop = 0;
}

function about(info) {
  const fork = info.forked_from;
  return el(
    "p",
    { class: "quiet" },
    `${count(eventsOf(info), "event")} since ${exactly(info.opened_at)}`,
    fork
      ? [
          ", forked from ",
          el(
            "a",
            { href: route.link("sessions", fork.session, { at: fork.sequence }) },
            `${fork.session} · ${fork.sequence}`,
          ),
        ]
      : null,
  );
}

/** How many events a session has, with those that it goes on from. */
export function eventsOf(info) {
  return info.events + (info.forked_from?.sequence ?? 0);
}

function kept(title, what) {
  return what
    ? el("details", { class: "kept", open: true }, el("summary", {}, title), el("div", {}, what))
    : null;
}

/** The ids of all that was recalled for an event, the best first; that it finds itself says nothing. */
function hitsOf(recalls, event) {
  const hits = new Set(
    recalls.filter((recall) => recall.sequence === event.sequence).flatMap((recall) => recall.hits),
  );
  hits.delete(`${event.session}:${event.sequence}`);
  return [...hits];
}

function turn(event, hits, meant, said) {
  const words = el(
    "div",
    { class: "said" },
    el(
      "p",
      { class: "turn-head" },
      el("strong", {}, event.role),
      el("span", { class: "figure" }, `${event.sequence}`),
      el("time", { datetime: event.at }, exactly(event.at)),
      event.interrupted ? el("span", { class: "gone" }, "cut off") : null,
    ),
    el(
      "div",
      { class: "said-text" },
      event.text || el("span", { class: "quiet" }, "nothing in words"),
    ),
  );
  return el(
    "li",
    { class: `turn ${role(event.role)}${meant ? " meant" : ""}`, tabindex: meant ? "-1" : null },
    words,
    hits.length ? recalled(hits, said) : null,
  );
}

// -- what was recalled ----------------------------------------------------------------------------

function recalled(hits, said) {
  const links = hits.map((id) => el("li", {}, hitOf(id, said)));
  const rest = links.slice(FEW);
  return el(
    "aside",
    { class: "recalled", "aria-label": "Recalled for this turn" },
    el("p", { class: "quiet" }, "recalled"),
    el("ul", {}, links.slice(0, FEW)),
    rest.length
      ? el("details", {}, el("summary", {}, `${rest.length} more`), el("ul", {}, rest))
      : null,
  );
}

/** A hit is known by its id: an event's is its session and sequence, and what it says may be on this page. */
function hitOf(id, said) {
  const split = id.lastIndexOf(":");
  if (split >= 0) {
    const [session, sequence] = [id.slice(0, split), id.slice(split + 1)];
    return el(
      "a",
      { href: route.link("sessions", session, { at: sequence }) },
      brief(said.get(id) ?? `turn ${sequence} of ${session}`),
    );
  }
  const link = el("a", { href: route.link("memories", id), "data-memory": id }, id);
  whenSeen.observe(link);
  return link;
}

// A conversation of a thousand turns asks for no memory that nobody looks at.
const whenSeen = new IntersectionObserver(
  (seen) => {
    for (const { target, isIntersecting } of seen) {
      if (!isIntersecting) continue;
      whenSeen.unobserve(target);
      const id = target.dataset.memory;
      ask("GET", path`/api/memory/${id}`)
        .then(
          (memory) => brief(memory.content),
          () => `${id}, which is gone`,
        )
        .then((text) => {
          target.textContent = text;
          delete target.dataset.memory;
        });
    }
  },
  { rootMargin: "400px" },
);

function brief(text) {
  return text.length > SHORT ? `${text.slice(0, SHORT)}…` : text;
}

function role(name) {
  return ["user", "assistant", "system", "tool"].includes(name) ? name : "other";
}

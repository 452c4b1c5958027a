// The conversations, the one with the newest event first, and one of them beside the list.

import { ask } from "./api.js";
import { count, deed, el, empty, fill, time } from "./dom.js";
import * as route from "./route.js";
import { eventsOf, openSession } from "./session.js";
import { guarded } from "./toast.js";

const PAGE = 50;
const PAUSE = 250;

export function sessions(main) {
  let limit = PAGE;
  let open = null;
  let loaded = false;
  let gathering = 0;
  const rows = el("div", { class: "rows" });
  const foot = el("div", { class: "list-foot", role: "status" });
  const list = el(
    "section",
    { class: "list", "aria-label": "Sessions" },
    el("h1", { class: "list-title" }, "Sessions"),
    rows,
    foot,
  );
  const pane = el("section", { class: "pane", "aria-label": "One session", tabindex: "-1" });
  fill(main, list, pane);

  async function load() {
    const at = document.activeElement?.dataset?.row;
    const { sessions: known } = await ask("GET", "/api/sessions", { query: { limit } });
    fill(
      rows,
      known.length
        ? el("ul", {}, known.map(rowOf))
        : empty(
            "No conversation is kept here yet.",
            "Point a chat program at the proxy (/v1), or append from code: every word said is kept.",
          ),
    );
    fill(
      foot,
      known.length ? el("span", {}, count(known.length, "session")) : null,
      known.length >= limit
        ? deed("More", () => {
            limit += PAGE;
            return guarded(load);
          })
        : null,
    );
    markOpen();
    if (at) rowWith(at)?.focus();
    loaded = true;
  }

  function rowWith(id) {
    return [...rows.querySelectorAll("[data-row]")].find((row) => row.dataset.row === id);
  }

  function markOpen() {
    for (const row of rows.querySelectorAll("[data-row]"))
      row.setAttribute("aria-current", String(row.dataset.row === open));
  }

  const close = () => route.go(route.link("sessions"));
  return {
    async show({ id, at }) {
      const closed = id ? null : open;
      open = id;
      main.classList.toggle("opened", Boolean(id));
      if (!loaded) await load();
      markOpen();
      await openSession(pane, id, at, close);
      if (closed) rowWith(closed)?.focus();
      else if (id && !at && list.offsetParent === null) pane.focus();
    },
    keys: { Escape: () => open && close() },
    changed(change) {
      if (!change.session) return;
      clearTimeout(gathering);
      gathering = setTimeout(
        () =>
          guarded(async () => {
            await load();
            if (change.session === open) await pane.refresh?.();
          }),
        PAUSE,
      );
    },
    close: () => clearTimeout(gathering),
  };
}

function rowOf(session) {
  return el(
    "li",
    { class: "row" },
    el(
      "a",
      { href: route.link("sessions", session.id), "data-row": session.id, class: "row-link" },
      el("span", { class: "row-text" }, session.preview),
      el(
        "span",
        { class: "row-about" },
        el("span", { class: "subject" }, session.id),
        el("span", {}, count(eventsOf(session), "event")),
        session.forked_from ? el("span", {}, "a fork") : null,
        time(session.updated_at),
      ),
    ),
  );
}

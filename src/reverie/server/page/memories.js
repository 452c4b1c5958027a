// What is known: a list by category or the newest first, searched as one types, and one memory beside it.

import { ask, may, mayChange, path, scope } from "./api.js";
import { button, count, deed, el, empty, exactly, fill } from "./dom.js";
import { asideOf, filters, orderOf } from "./filters.js";
import { forget, openMemory, remember } from "./memory.js";
import * as route from "./route.js";
import { rowOf } from "./rows.js";
import { scaleOf } from "./score.js";
import { guarded } from "./toast.js";

const PAGE = 50;
const MOST_HITS = 1000;
const PAUSE = 160;
// More changes at once than this, and the list is read anew.
const MANY = 20;

export function memories(main, aside) {
  let asked = {};
  let open = null;
  let known = { items: [], hits: null, total: 0, next: null };
  let limit = PAGE;
  let reading = null;
  let typing = 0;
  const changed = new Set();
  let gathering = 0;

  const search = el("input", {
    type: "search", placeholder: "Search what is known", "aria-label": "Search memories and turns", autocomplete: "off", spellcheck: "false",
    "aria-keyshortcuts": "/",
  });
  const above = el("div", { class: "asked" });
  const rows = el("div", { class: "rows", "aria-live": "off" });
  const foot = el("div", { class: "list-foot", role: "status" });
  const list = el("section", { class: "list", "aria-label": "Memories" },
    el("div", { class: "list-head" },
      el("div", { class: "search" }, search, may("write") ? button("Remember", () => write(), { class: "primary", "aria-keyshortcuts": "n" }) : null),
      above),
    rows, foot);
  const pane = el("section", { class: "pane", "aria-label": "One memory", tabindex: "-1" });
  fill(main, list, pane);

  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => turn({ ...asked, q: search.value.trim() }), PAUSE);
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") rows.querySelector("[data-row]")?.focus();
  });

  /** Asks for something else; what is open stays open. */
  function turn(wanted) {
    asked = wanted;
    route.replace(route.link("memories", open, asked));
    limit = PAGE;
    drawAbove();
    return guarded(load);
  }

  async function load() {
    reading?.abort();
    reading = new AbortController();
    const { signal } = reading;
    rows.setAttribute("aria-busy", "true");
    scope.asOf = asked.as_of || null;
    if (asked.q) {
      const body = { query: asked.q, limit, explain: true, category: asked.category, as_of: asOf(asked.as_of) };
      if (asked.kind) body.kinds = [asked.kind];
      if (asked.tag) body.tags = [asked.tag];
      const { hits } = await ask("POST", "/api/recall", { body: filled(body), signal });
      known = { items: hits.map((hit) => hit.memory), hits, total: hits.length, next: null };
    } else {
      known = { hits: null, ...(await page(null, signal)) };
    }
    draw();
  }

  async function page(after, signal) {
    const query = {
      category: asked.category, tag: asked.tag, kind: asked.kind === "event" ? null : asked.kind, as_of: asked.as_of,
      include_forgotten: asked.forgotten ? true : null, order: orderOf(asked), limit: PAGE, after,
    };
    const { memories: items, total, next } = await ask("GET", "/api/memory/", { query, signal });
    return { items, total, next };
  }

  async function more() {
    if (known.hits) {
      limit = Math.min(limit * 2, MOST_HITS);
      await load();
    } else {
      const { items, total, next } = await page(known.next);
      known = { ...known, items: [...known.items, ...items], total, next };
      draw();
    }
  }

  function drawAbove() {
    fill(above, filters(asked, turn), asked.as_of
      ? el("p", { class: "then" }, "As it was ", el("strong", {}, /^\d+$/.test(asked.as_of) ? `at position ${asked.as_of}` : exactly(asked.as_of)), " ",
        button("Back to now", () => turn({ ...asked, as_of: "" }), { class: "plain" }))
      : null);
  }

  function draw() {
    const at = document.activeElement?.dataset?.row;
    rows.removeAttribute("aria-busy");
    fill(rows, known.hits ? found(known.hits) : listed(known.items));
    markOpen();
    const rest = known.hits ? known.hits.length >= limit && limit < MOST_HITS : known.next !== null;
    const shown = known.hits ? count(known.hits.length, "hit") : `${known.items.length.toLocaleString("en")} of ${count(known.total, "memory", "memories")}`;
    fill(foot, known.items.length ? el("span", {}, shown) : null, rest ? deed("More", () => guarded(more)) : null);
    if (at) rowWith(at)?.focus();
  }

  function found(hits) {
    if (!hits.length) return empty("Nothing found.", "Fewer or other words may help; filters narrow a search too.");
    const full = scaleOf(hits);
    const missing = hits[0].parts?.degraded;
    return [missing ? el("p", { class: "quiet note" }, `Not everything took part: ${missing}`) : null,
      el("ul", {}, hits.map((hit) => rowOf(hit.memory, asked, { hit, full })))];
  }

  function listed(items) {
    if (!items.length) return nothing();
    if (orderOf(asked) === "newest") return el("ul", {}, items.map((memory) => rowOf(memory, asked)));
    const groups = Map.groupBy(items, (memory) => memory.category);
    return [...groups].map(([category, those]) => [
      el("h2", { class: "group" }, category),
      el("ul", {}, those.map((memory) => rowOf(memory, asked)))]);
  }

  function nothing() {
    const narrowed = route.ASKED.some((name) => asked[name] && name !== "order");
    if (narrowed) return empty("No memory fits.", button("Clear the filters", () => turn({ order: asked.order }), { class: "plain" }));
    return empty("Nothing is remembered here yet.",
      may("write") ? "Press n and write what your agent should know." : "What agents and people remember appears here.",
      el("span", {}, "Or from a shell: ", el("code", {}, `reverie remember "Tea, not coffee" --space ${scope.space ?? "main"}`)));
  }

  function markOpen() {
    for (const row of rows.querySelectorAll("[data-row]")) row.setAttribute("aria-current", String(row.dataset.row === open));
  }

  function rowWith(id) {
    return [...rows.querySelectorAll("[data-row]")].find((row) => row.dataset.row === id);
  }

  /** The memory that a key is about: the row with the focus, else the open one. */
  function meant() {
    return document.activeElement?.dataset?.row ?? open;
  }

  function write() {
    main.classList.add("opened");
    remember(pane, (memory) => route.go(memory ? route.link("memories", memory.id, asked) : route.link("memories", open, asked)));
  }

  async function act(deedOf) {
    const id = meant();
    if (!id || id.includes(":")) return;
    const memory = await ask("GET", path`/api/memory/${id}`);
    if (mayChange(memory)) await deedOf(memory);
  }

  async function follow() {
    const ids = [...changed];
    changed.clear();
    if (asked.as_of) return;
    asideOf(aside, asked);
    if (open && ids.includes(open)) await pane.refresh?.();
    if (known.hits || ids.length > MANY) await load();
    else await Promise.all(ids.map(settle)).then(draw);
  }

  /** One memory changed: it takes the place in the list that it has now. */
  async function settle(id) {
    const memory = await ask("GET", path`/api/memory/${id}`).catch(() => null);
    const before = known.items.length;
    let items = known.items.filter((each) => each.id !== id);
    const had = items.length < before;
    const has = memory !== null && fits(memory);
    if (has) {
      const at = items.findIndex((each) => comesBefore(memory, each));
      if (at >= 0) items = items.toSpliced(at, 0, memory);
      else if (had || known.next === null) items = [...items, memory];
    }
    known = { ...known, items, total: known.total + Number(has) - Number(had) };
  }

  function fits(memory) {
    return (!asked.category || memory.category === asked.category) && (!asked.kind || memory.kind === asked.kind)
      && (!asked.tag || memory.tags.includes(asked.tag)) && (asked.forgotten || !memory.forgotten_at);
  }

  function comesBefore(one, other) {
    if (orderOf(asked) === "newest") return one.created_at >= other.created_at;
    if (one.category !== other.category) return one.category < other.category;
    return one.created_at < other.created_at;
  }

  return {
    async show({ id, asked: wanted }) {
      const before = JSON.stringify(asked);
      asked = Object.fromEntries(route.ASKED.map((name) => [name, wanted[name] ?? ""]));
      const again = before !== JSON.stringify(asked);
      const closed = id ? null : open;
      open = id;
      main.classList.toggle("opened", Boolean(id));
      if (again) {
        if (document.activeElement !== search) search.value = asked.q;
        limit = PAGE;
        await asideOf(aside, asked);
        drawAbove();
        await load();
      }
      markOpen();
      await openMemory(pane, id, () => route.go(route.link("memories", null, asked)));
      // The focus is never left on what cannot be seen.
      if (closed) rowWith(closed)?.focus();
      else if (id && list.offsetParent === null && !pane.cancel) pane.focus();
    },
    keys: {
      n: () => may("write") && write(),
      e: () => guarded(() => act((memory) => {
        if (memory.id === open) pane.edit?.();
        else {
          pane.editNext = memory.id;
          route.go(route.link("memories", memory.id, asked));
        }
      })),
      p: () => pane.pin?.(),
      x: () => guarded(() => act((memory) => (memory.forgotten_at ? null : forget(memory)))),
      Escape: () => (pane.cancel ? pane.cancel() : open && route.go(route.link("memories", null, asked))),
    },
    changed(change) {
      if (!change.memory) return;
      changed.add(change.memory);
      clearTimeout(gathering);
      gathering = setTimeout(() => guarded(follow), PAUSE);
    },
    close() {
      reading?.abort();
      clearTimeout(typing);
      clearTimeout(gathering);
      scope.asOf = null;
    },
  };
}

function asOf(given) {
  return /^\d+$/.test(given) ? Number(given) : given;
}

function filled(body) {
  return Object.fromEntries(Object.entries(body).filter(([, value]) => value));
}

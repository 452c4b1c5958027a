// What is known: a list, searched as one types, and one memory beside it.

import { ask, may, mayChange, path, scope } from "./api.js";
import { button, deed, el, exactly, fill } from "./dom.js";
import { asideOf, filters } from "./filters.js";
import { Known } from "./known.js";
import { extent, listed } from "./listing.js";
import { forget, openMemory, remember } from "./memory.js";
import * as route from "./route.js";
import { guarded } from "./toast.js";

const PAUSE = 160;
// More changes at once than this, and the list is read again.
const MANY = 20;

export class Memories {
  #known = new Known();
  #open = null;
  #changed = new Set();
  #typing = 0;
  #gathering = 0;
  #above = el("div");
  #rows = el("div", { class: "rows" });
  #foot = el("div", { class: "list-foot", role: "status" });
  #list = el("section", { class: "list", "aria-label": "Memories" });
  #pane = el("section", { class: "pane", "aria-label": "One memory", tabindex: "-1" });
  #search = el("input", {
    type: "search",
    placeholder: "Search what is known",
    "aria-label": "Search memories and turns",
    "aria-keyshortcuts": "/",
    autocomplete: "off",
    spellcheck: "false",
  });

  constructor(main, aside) {
    this.main = main;
    this.aside = aside;
    const write = () => this.#write();
    const fresh = may("write")
      ? button("Remember", write, { class: "primary", "aria-keyshortcuts": "n" })
      : null;
    const head = el("div", { class: "search" }, this.#search, fresh);
    fill(this.#list, el("div", { class: "list-head" }, head, this.#above), this.#rows, this.#foot);
    fill(main, this.#list, this.#pane);
    this.#search.addEventListener("input", () => {
      clearTimeout(this.#typing);
      const type = () => this.#turn({ ...this.#known.asked, q: this.#search.value.trim() });
      this.#typing = setTimeout(type, PAUSE);
    });
    this.#search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.#rows.querySelector("[data-row]")?.focus();
    });
  }

  async show({ id, asked }) {
    const wanted = Object.fromEntries(route.ASKED.map((name) => [name, asked[name] ?? ""]));
    const closed = id ? null : this.#open;
    this.#open = id;
    this.main.classList.toggle("opened", Boolean(id));
    if (JSON.stringify(wanted) !== JSON.stringify(this.#known.asked)) {
      if (document.activeElement !== this.#search) this.#search.value = wanted.q;
      // A list that fails keeps nobody from the memory beside it.
      await guarded(async () => {
        await asideOf(this.aside, wanted);
        await this.#read(wanted);
      });
    }
    this.#markOpen();
    await openMemory(this.#pane, id, () => this.#go(null));
    // The focus is never left on what cannot be seen.
    if (closed) this.#rowOf(closed)?.focus();
    else if (id && this.#list.offsetParent === null && !this.#pane.cancel) this.#pane.focus();
  }

  keys = {
    n: () => may("write") && this.#write(),
    e: () => guarded(() => this.#act((memory) => this.#edit(memory))),
    p: () => this.#pane.pin?.(),
    x: () => guarded(() => this.#act((memory) => !memory.forgotten_at && forget(memory))),
    Escape: () => (this.#pane.cancel ? this.#pane.cancel() : this.#open && this.#go(null)),
  };

  changed(change) {
    if (!change.memory) return;
    this.#changed.add(change.memory);
    clearTimeout(this.#gathering);
    this.#gathering = setTimeout(() => guarded(() => this.#follow()), PAUSE);
  }

  close() {
    this.#known.stop();
    clearTimeout(this.#typing);
    clearTimeout(this.#gathering);
    scope.asOf = null;
  }

  /** Asks for something else; what is open stays open. */
  #turn(wanted) {
    const asked = Object.fromEntries(route.ASKED.map((name) => [name, wanted[name] ?? ""]));
    route.replace(route.link("memories", this.#open, asked));
    return guarded(() => this.#read(asked));
  }

  async #read(asked) {
    scope.asOf = asked.as_of || null;
    this.#rows.setAttribute("aria-busy", "true");
    fill(
      this.#above,
      filters(asked, (wanted) => this.#turn(wanted)),
      this.#moment(asked),
    );
    await this.#known.read(asked);
    this.#draw();
  }

  /** The earlier moment that is shown, if one is. */
  #moment(asked) {
    if (!asked.as_of) return null;
    const now = () => this.#turn({ ...asked, as_of: "" });
    const said = /^\d+$/.test(asked.as_of) ? `at position ${asked.as_of}` : exactly(asked.as_of);
    const back = button("Back to now", now, { class: "plain" });
    return el("p", { class: "then" }, "As it was ", el("strong", {}, said), " ", back);
  }

  #draw() {
    const focused = document.activeElement?.dataset?.row;
    const more = async () => {
      await this.#known.more();
      this.#draw();
    };
    this.#rows.removeAttribute("aria-busy");
    fill(
      this.#rows,
      listed(this.#known, (wanted) => this.#turn(wanted)),
    );
    const button = this.#known.rest ? deed("More", () => guarded(more)) : null;
    fill(this.#foot, el("span", {}, extent(this.#known)), button);
    this.#markOpen();
    if (focused) this.#rowOf(focused)?.focus();
  }

  #markOpen() {
    for (const row of this.#rows.querySelectorAll("[data-row]")) {
      row.setAttribute("aria-current", String(row.dataset.row === this.#open));
    }
  }

  #rowOf(id) {
    return [...this.#rows.querySelectorAll("[data-row]")].find((row) => row.dataset.row === id);
  }

  #go(id) {
    route.go(route.link("memories", id, this.#known.asked));
  }

  #write() {
    this.main.classList.add("opened");
    remember(this.#pane, (id) => this.#go(id ?? this.#open));
  }

  #edit(memory) {
    if (memory.id === this.#open) {
      this.#pane.edit?.();
    } else {
      this.#pane.next = { id: memory.id };
      this.#go(memory.id);
    }
  }

  /** Does something with the memory that a key is about: the row with the focus, else the open one. */
  async #act(deed) {
    const id = document.activeElement?.dataset?.row ?? this.#open;
    // A turn that was found is no memory.
    if (!id || id.includes(":")) return;
    const memory = await ask("GET", path`/api/memory/${id}`);
    if (mayChange(memory)) await deed(memory);
  }

  async #follow() {
    const ids = [...this.#changed];
    this.#changed.clear();
    const { asked, hits } = this.#known;
    if (asked.as_of) return;
    await asideOf(this.aside, asked);
    if (ids.includes(this.#open)) await this.#pane.refresh?.();
    if (hits || ids.length > MANY) await this.#known.read();
    else await Promise.all(ids.map((id) => this.#known.settle(id)));
    this.#draw();
  }
}

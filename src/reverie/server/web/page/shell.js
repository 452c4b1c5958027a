// The frame around every view: whose memory it is, the sections, and what is new.

import { ask, may, me, scope } from "./api.js";
import { button, el, fill, select } from "./dom.js";
import { help } from "./help.js";
import { jobs } from "./jobs.js";
import { LIVE, follow } from "./live.js";
import { Memories } from "./memories.js";
import { proposals } from "./proposals.js";
import * as route from "./route.js";
import { sessions } from "./sessions.js";
import { changed, clear, guarded } from "./toast.js";

const VIEWS = {
  memories: (main, aside) => new Memories(main, aside),
  sessions,
  proposals,
  jobs,
};
const TITLES = {
  memories: "Memories",
  sessions: "Sessions",
  proposals: "Proposals",
  jobs: "Jobs",
};
const LAST_SPACE = "reverie.space";
const SHARED = "";
const PAUSE = 150;

export class Shell {
  #spaces = [];
  #view = null;
  #section = null;
  #turns = 0;
  #unfollow = () => {};
  #main = el("main", { id: "main", tabindex: "-1" });
  #whose = el("div", { class: "whose" });
  #links = el("nav", { class: "sections", "aria-label": "Sections" });
  #aside = el("div", { class: "aside" });
  #waiting = el("span", { class: "badge", hidden: true });
  #gathering = 0;
  #live = el("span", { class: "live", title: "Follows changes as they happen" });

  /** Draws the frame; `show` fills it with what the address says. */
  async open(page, leave) {
    await this.#readSpaces();
    const skip = (event) => {
      event.preventDefault();
      this.#main.focus();
    };
    const theme = { class: "plain", "aria-label": "Dark or light", title: "Dark or light" };
    const keys = { class: "plain", "aria-label": "Keys", title: "Keys (?)" };
    const foot = el(
      "div",
      { class: "rail-foot" },
      el("span", { class: "who", title: `This token may ${me.right}` }, `${me.name} · ${me.right}`),
      button("◐", switchTheme, theme),
      button("?", help, keys),
      button("Sign out", leave, { class: "plain" }),
    );
    const brand = el("p", { class: "brand" }, "Reverie", this.#live);
    const rail = [brand, this.#whose, this.#links, this.#aside, foot];
    fill(
      page,
      el("a", { class: "skip", href: "#main", on: { click: skip } }, "To the content"),
      el("header", { class: "rail" }, rail),
      this.#main,
    );
  }

  async show() {
    const turn = (this.#turns += 1);
    this.#main.setAttribute("aria-busy", "true");
    const asked = route.read();
    await this.#enter(asked.asked.space || scope.space || this.#defaultSpace(), asked.asked.user);
    this.#choose(asked.section === "jobs" && !may("admin") ? "memories" : asked.section);
    this.#drawWhose();
    this.#drawLinks();
    this.#countProposals();
    document.title = `${TITLES[this.#section]} · ${scope.space} · Reverie`;
    await guarded(() => this.#view.show(asked));
    if (turn === this.#turns) this.#main.removeAttribute("aria-busy");
  }

  get keys() {
    return this.#view?.keys ?? {};
  }

  go(section) {
    if (section !== "jobs" || may("admin")) route.go(route.link(section));
  }

  close() {
    clearTimeout(this.#gathering);
    this.#unfollow();
    this.#leaveView();
    Object.assign(scope, { space: null, user: null });
  }

  /** Looks at a space, or a user of it; a token that is for one user has no choice. */
  async #enter(space, named) {
    const user = me.user || named || null;
    if (scope.space === space && scope.user === user && this.#view) return;
    Object.assign(scope, { space, user });
    localStorage.setItem(LAST_SPACE, space);
    clear();
    this.#leaveView();
    this.#unfollow();
    if (!this.#spaces.some((each) => each.name === space)) await guarded(() => this.#readSpaces());
    const position = this.#spaces.find((each) => each.name === space)?.position;
    const heard = (change) => {
      if (change.memory) changed(change.memory, change.version);
      this.#view?.changed?.(change);
      if (["propose", "accept", "reject", "erase"].includes(change.op)) this.#countProposals();
    };
    this.#unfollow = follow(position, heard, (state) => {
      this.#live.textContent = state;
      this.#live.classList.toggle("waiting", state !== LIVE);
    });
  }

  #choose(section) {
    if (section === this.#section) return;
    this.#leaveView();
    this.#section = section;
    this.#main.className = `main ${section}`;
    fill(this.#main);
    fill(this.#aside);
    this.#view = VIEWS[section](this.#main, this.#aside);
  }

  #leaveView() {
    this.#view?.close();
    this.#view = this.#section = null;
  }

  async #readSpaces() {
    this.#spaces = (await ask("GET", "/api/spaces", { scoped: false })).spaces;
  }

  #drawWhose() {
    const go = (space, user) => route.go(route.link(this.#section, null, { space, user }));
    const spaces = this.#names().map((name) => [name, name]);
    const known = this.#spaces.find((each) => each.name === scope.space)?.users ?? [];
    const users = [...new Set([...known, ...(scope.user ? [scope.user] : [])])];
    const named = [[SHARED, "no user"], ...users.map((name) => [name, name])];
    const chosen = me.user
      ? el("span", { class: "fixed" }, me.user)
      : select("User", named, scope.user ?? SHARED, (name) => go(scope.space, name));
    fill(
      this.#whose,
      labelled(
        "Space",
        select("Space", spaces, scope.space, (name) => go(name, null)),
      ),
      users.length ? labelled("User", chosen) : null,
    );
  }

  #drawLinks() {
    const offered = route.SECTIONS.filter((each) => each !== "jobs" || may("admin"));
    const link = (each) => {
      const current = each === this.#section ? "page" : null;
      const badge = each === "proposals" ? this.#waiting : null;
      return el("a", { href: route.link(each), "aria-current": current }, TITLES[each], badge);
    };
    fill(this.#links, offered.map(link));
  }

  /** Shows how many proposals wait for an answer beside the link to them. */
  #countProposals() {
    clearTimeout(this.#gathering);
    this.#gathering = setTimeout(async () => {
      const { space, user } = scope;
      if (space === null) return;
      const { proposals: waiting } = await ask("GET", "/api/proposals").catch(() => ({}));
      if (!waiting || scope.space !== space || scope.user !== user) return;
      this.#waiting.hidden = waiting.length === 0;
      this.#waiting.textContent = String(waiting.length);
      this.#waiting.title = `${waiting.length} waiting for an answer`;
    }, PAUSE);
  }

  /** Spaces that are there, that the token is for, and the one that is looked at. */
  #names() {
    const seen = this.#spaces.map((each) => each.name);
    const all = [...seen, ...(me.spaces ?? []), ...(scope.space ? [scope.space] : [])];
    return [...new Set(all)].sort((one, other) => one.localeCompare(other));
  }

  #defaultSpace() {
    const all = this.#names();
    const last = localStorage.getItem(LAST_SPACE);
    return [last, me.space].find((name) => all.includes(name)) ?? all[0] ?? me.space;
  }
}

function labelled(label, field) {
  return el("label", {}, el("span", {}, label), field);
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("reverie.theme", root.dataset.theme);
}

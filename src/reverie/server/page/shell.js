// The frame around every view: whose memory it is, the sections, and what is new.

import { ask, may, me, scope } from "./api.js";
import { button, el, fill, select } from "./dom.js";
import { help } from "./help.js";
import { jobs } from "./jobs.js";
import { LIVE, follow } from "./live.js";
import { memories } from "./memories.js";
import { proposals } from "./proposals.js";
import * as route from "./route.js";
import { sessions } from "./sessions.js";
import { guarded, nothingToUndo } from "./toast.js";

const VIEWS = { memories, sessions, proposals, jobs };
const TITLES = { memories: "Memories", sessions: "Sessions", proposals: "Proposals", jobs: "Jobs" };
const LAST_SPACE = "reverie.space";
const EVERYONE = "";

/** Draws the frame; `show` fills it with what the address says. */
export async function shell(page, leave) {
  const known = await ask("GET", "/api/spaces", { scoped: false });
  let spaces = known.spaces;
  let view = null;
  let section = null;
  let turns = 0;
  let unfollow = () => {};
  const main = el("main", { id: "main", tabindex: "-1" });
  const whose = el("div", { class: "whose" });
  const links = el("nav", { class: "sections", "aria-label": "Sections" });
  const aside = el("div", { class: "aside" });
  const live = el("span", { class: "live", title: "Follows changes as they happen" }, "");
  fill(page,
    el("a", { class: "skip", href: "#main", on: { click: (event) => { event.preventDefault(); main.focus(); } } }, "To the content"),
    el("header", { class: "rail" },
      el("p", { class: "brand" }, "Reverie", live), whose, links, aside,
      el("div", { class: "rail-foot" },
        el("span", { class: "who", title: `This token may ${me.right}` }, `${me.name} · ${me.right}`),
        button("◐", switchTheme, { class: "plain", "aria-label": "Dark or light", title: "Dark or light" }),
        button("?", help, { class: "plain", "aria-label": "Keys", title: "Keys (?)" }),
        button("Sign out", leave, { class: "plain" }))),
    main);

  function enter(space, user) {
    const changed = scope.space !== space || scope.user !== user;
    Object.assign(scope, { space, user });
    if (space) localStorage.setItem(LAST_SPACE, space);
    if (!changed && section) return;
    nothingToUndo();
    view?.close?.();
    view = section = null;
    unfollow();
    const position = spaces.find((each) => each.name === space)?.position ?? null;
    unfollow = follow(position, (change) => view?.changed?.(change), (state) => {
      live.textContent = state;
      live.classList.toggle("waiting", state !== LIVE);
    });
  }

  function drawWhose() {
    const named = names(spaces);
    const at = spaces.find((each) => each.name === scope.space);
    const users = me.user ? [me.user] : [...new Set([...(at?.users ?? []), ...(scope.user ? [scope.user] : [])])];
    const choose = (space, user) => route.go(route.link(section, null, { space, user }));
    fill(whose,
      el("label", {}, el("span", {}, "Space"), select("Space", named.map((name) => [name, name]), scope.space, (name) => choose(name, me.user))),
      users.length ? el("label", {}, el("span", {}, "User"), me.user ? el("span", { class: "fixed" }, me.user)
        : select("User", [[EVERYONE, "shared by all"], ...users.map((name) => [name, name])], scope.user ?? EVERYONE, (name) => choose(scope.space, name))) : null);
  }

  function drawLinks() {
    const offered = route.SECTIONS.filter((each) => each !== "jobs" || may("admin"));
    fill(links, offered.map((each) => el("a", {
      href: route.link(each), "aria-current": each === section ? "page" : null, class: `to-${each}`,
    }, TITLES[each])));
  }

  async function show() {
    const turn = turns += 1;
    main.setAttribute("aria-busy", "true");
    const asked = route.read();
    const before = { ...scope };
    enter(asked.asked.space || scope.space || defaultSpace(spaces), me.user || asked.asked.user || null);
    if (before.space !== scope.space && !spaces.some((each) => each.name === scope.space)) {
      spaces = (await guarded(() => ask("GET", "/api/spaces", { scoped: false })))?.spaces ?? spaces;
    }
    const wanted = asked.section === "jobs" && !may("admin") ? "memories" : asked.section;
    if (wanted !== section) {
      view?.close?.();
      section = wanted;
      main.className = `main ${section}`;
      fill(main);
      fill(aside);
      view = VIEWS[section](main, aside);
      main.scrollTo(0, 0);
    }
    drawWhose();
    drawLinks();
    document.title = `${TITLES[section]} · ${scope.space ?? ""} · Reverie`;
    await guarded(() => view.show(asked));
    if (turn === turns) main.removeAttribute("aria-busy");
  }

  return {
    show,
    get keys() { return view?.keys ?? {}; },
    go: (where) => { if (where !== "jobs" || may("admin")) route.go(route.link(where)); },
    close: () => { unfollow(); view?.close?.(); Object.assign(scope, { space: null, user: null }); },
  };
}

function names(spaces) {
  const all = [...spaces.map((each) => each.name), ...(me.spaces ?? []), ...(scope.space ? [scope.space] : [])];
  return [...new Set(all)].sort((one, other) => one.localeCompare(other));
}

function defaultSpace(spaces) {
  const last = localStorage.getItem(LAST_SPACE);
  const all = names(spaces);
  return [last, me.space].find((name) => all.includes(name)) ?? all[0] ?? me.space;
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("reverie.theme", root.dataset.theme);
}

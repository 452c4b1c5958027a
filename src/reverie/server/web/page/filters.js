// What narrows a list of memories, and the categories there are.

import { ask } from "./api.js";
import { button, el, fill, select } from "./dom.js";
import * as route from "./route.js";

const KINDS = [
  ["", "facts and notes"],
  ["fact", "facts"],
  ["note", "notes"],
  ["event", "turns"],
];
const ORDERS = [
  ["category", "by category"],
  ["newest", "newest first"],
];
// More than this many are not sorted by category unless somebody asks: all of them would be read for each part.
const MANY = 500;
const NARROWS = ["category", "tag", "kind", "forgotten", "as_of"];

let categories = [];

/** The order asked for; without one, by category where that helps. */
export function orderOf(asked) {
  const all = categories.reduce((sum, each) => sum + each.memories, 0);
  return asked.order || (asked.category || all > MANY ? "newest" : "category");
}

export function filters(asked, turn) {
  const set = (name) => (value) => turn({ ...asked, [name]: value });
  const active = NARROWS.filter((name) => asked[name]).length;
  const searching = Boolean(asked.q);
  const named = [
    ...new Set([
      ...categories.map(({ name }) => name),
      ...(asked.category ? [asked.category] : []),
    ]),
  ];
  const tag = el("input", {
    type: "text",
    value: asked.tag,
    placeholder: "any tag",
    "aria-label": "Tag",
    spellcheck: "false",
  });
  tag.addEventListener("change", () => set("tag")(tag.value.trim().replace(/^#/, "")));
  const then = el("input", {
    type: "datetime-local",
    value: localTime(asked.as_of),
    "aria-label": "As of",
  });
  then.addEventListener("change", () =>
    set("as_of")(then.value ? new Date(then.value).toISOString() : ""),
  );
  const kinds = searching ? [["", "all kinds"], ...KINDS.slice(1)] : KINDS.slice(0, 3);
  return el(
    "details",
    { class: "filters", open: active > 0 || null },
    el("summary", {}, active ? `Filters (${active})` : "Filters"),
    el(
      "div",
      { class: "filter-fields" },
      labelled(
        "Category",
        select(
          "Category",
          [["", "every category"], ...named.map((name) => [name, name])],
          asked.category,
          set("category"),
        ),
      ),
      labelled("Kind", select("Kind", kinds, asked.kind, set("kind"))),
      labelled("Tag", tag),
      searching ? null : labelled("Order", select("Order", ORDERS, orderOf(asked), set("order"))),
      labelled("As of", then),
      searching
        ? null
        : el(
            "label",
            { class: "check" },
            el("input", {
              type: "checkbox",
              checked: Boolean(asked.forgotten),
              on: { change: (event) => set("forgotten")(event.target.checked ? "1" : "") },
            }),
            "forgotten too",
          ),
      active
        ? button("Clear", () => turn({ q: asked.q, order: asked.order }), { class: "plain" })
        : null,
    ),
  );
}

/** The categories with how many each holds, beside the sections. */
export async function asideOf(aside, asked) {
  const answer = await ask("GET", "/api/categories").catch(() => null);
  if (!answer || !aside.isConnected) return;
  categories = answer.categories;
  const total = categories.reduce((sum, each) => sum + each.memories, 0);
  const line = (name, label, number) =>
    el(
      "a",
      {
        href: route.link("memories", null, { category: name, order: asked.order }),
        "aria-current": asked.category === name ? "true" : null,
      },
      el("span", {}, label),
      el("span", { class: "figure" }, number.toLocaleString("en")),
    );
  fill(
    aside,
    categories.length
      ? el(
          "nav",
          { class: "categories", "aria-label": "Categories" },
          line("", "Everything", total),
          categories.map((each) => line(each.name, each.name, each.memories)),
        )
      : null,
  );
}

function labelled(label, field) {
  return el("label", {}, el("span", {}, label), field);
}

function localTime(iso) {
  const moment = new Date(iso);
  if (!iso || /^\d+$/.test(iso) || Number.isNaN(moment.getTime())) return "";
  const shifted = new Date(moment.getTime() - moment.getTimezoneOffset() * 60000);
  return shifted.toISOString().slice(0, 16);
}

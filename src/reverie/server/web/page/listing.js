// A list of memories, drawn: hits with their scores, groups by category, or why there is nothing.

import { may, scope } from "./api.js";
import { button, count, el, empty } from "./dom.js";
import { orderOf } from "./filters.js";
import * as route from "./route.js";
import { rowOf } from "./rows.js";

// Hits below this are weak: they get no place in a prompt (model.py:DEFAULT_FLOOR).
const FLOOR = 0.39;

/** `turn` asks for something else. */
export function listed(known, turn) {
  if (known.hits) return hits(known);
  if (!known.items.length) return nothing(known.asked, turn);
  const row = (memory) => rowOf(memory, known.asked);
  if (orderOf(known.asked) === "newest") return el("ul", {}, known.items.map(row));
  const groups = Map.groupBy(known.items, (memory) => memory.category);
  return [...groups].map(([category, items]) => [
    el("h2", { class: "group" }, category),
    el("ul", {}, items.map(row)),
  ]);
}

/** How much of it is shown. */
export function extent(known) {
  if (!known.items.length) return "";
  if (known.hits) return count(known.hits.length, "hit");
  return `${known.items.length.toLocaleString("en")} of ${count(known.total, "memory", "memories")}`;
}

function hits({ hits, asked }) {
  if (!hits.length) {
    return empty("Nothing found.", "Fewer or other words may help; filters narrow a search too.");
  }
  const missing = hits[0].parts.degraded;
  const strong = hits.filter((hit) => hit.score >= FLOOR);
  const rows = (part) =>
    el(
      "ul",
      {},
      part.map((hit) => rowOf(hit.memory, asked, hit)),
    );
  return [
    missing ? el("p", { class: "quiet note" }, `Not everything took part: ${missing}`) : null,
    strong.length ? rows(strong) : null,
    strong.length < hits.length
      ? el(
          "p",
          { class: "quiet note" },
          strong.length
            ? "What follows is weak, and would not get into a prompt."
            : "No good match; these are the nearest.",
        )
      : null,
    strong.length < hits.length ? rows(hits.slice(strong.length)) : null,
  ];
}

function nothing(asked, turn) {
  if (route.ASKED.some((name) => asked[name] && name !== "order")) {
    const clear = () => turn({ order: asked.order });
    return empty("No memory fits.", button("Clear the filters", clear, { class: "plain" }));
  }
  const command = `reverie remember "Tea, not coffee" --space ${scope.space}`;
  return empty(
    "Nothing is remembered here yet.",
    may("write")
      ? "Press n and write what your agent should know."
      : "What agents and people remember appears here.",
    el("span", {}, "Or from a shell: ", el("code", {}, command)),
  );
}

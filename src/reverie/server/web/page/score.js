// A hit's score taken apart: a bar of all that spoke for it, and the numbers.

import { el } from "./dom.js";

/** What is added up: the name, the part of the hit, and what it means. */
const STAGES = [
  ["keyword", "keyword_part", "words in common"],
  ["vector", "vector_part", "nearness in meaning"],
  ["neighbours", "neighbours", "borrowed from the turns beside it"],
  ["speaker", "speaker", "said by whom the query names"],
  ["period", "period", "at the date the query names"],
  ["session", "session", "the best of its session"],
  ["origin", "origin", "lent by a memory that came from it"],
];
/** What comes after the sum, each with a number of its own. */
const AFTERWARDS = [
  ["rerank", "the reranker's own score"],
  ["spread", "spread over all hits"],
  ["recency", "how recent it is"],
];

let made = 0;

/** The bar with its number; its parts show on hover, on focus, and stay when it is pressed. */
export function scoreOf(hit) {
  const id = `score-${(made += 1)}`;
  const said = STAGES.filter(([, part]) => Math.abs(number(hit, part)) >= 0.0005);
  const spoken = said.map(([name, part]) => `${name} ${figure(number(hit, part))}`).join(", ");
  const pressed = el(
    "button",
    {
      type: "button",
      class: "score-bar",
      "aria-expanded": "false",
      "aria-controls": id,
      "aria-label": `Score ${figure(hit.score)}${spoken ? `: ${spoken}` : ""}`,
    },
    el("span", { class: "score-number" }, figure(hit.score)),
    bar(said, hit),
  );
  pressed.addEventListener("click", () => {
    pressed.setAttribute("aria-expanded", String(pressed.getAttribute("aria-expanded") !== "true"));
  });
  return el(
    "div",
    { class: "score" },
    pressed,
    el("dl", { class: "score-parts", id }, rows(said, hit)),
  );
}

/** As long as the score is high, a whole bar is a score of 1; each part has its share of it. */
function bar(said, hit) {
  const drawn = el("span", { class: "score-stack", "aria-hidden": "true" });
  const values = said.map(([name, part]) => [name, Math.max(0, number(hit, part))]);
  const total = values.reduce((sum, [, value]) => sum + value, 0);
  const score = Math.min(1, Math.max(0, hit.score));
  for (const [name, value] of values) {
    const segment = el("span", { class: `stage ${name}` });
    segment.style.flexGrow = total ? (value / total) * score : 0;
    drawn.append(segment);
  }
  const rest = el("span", { class: "stage rest" });
  rest.style.flexGrow = total ? 1 - score : 1;
  drawn.append(rest);
  return drawn;
}

function rows(said, hit) {
  const shown = said.map(([name, part, means]) => row(name, number(hit, part), means, name));
  for (const [name, means] of AFTERWARDS)
    if (name in hit.parts) shown.push(row(name, number(hit, name), means, "after"));
  const others = Math.round(number(hit, "collapsed"));
  if (others) shown.push(row("alike", others, "more that say the same", "after"));
  return shown;
}

function row(name, value, means, kind) {
  return el(
    "div",
    {},
    el("dt", {}, el("span", { class: `stage dot ${kind}` }), name),
    el(
      "dd",
      {},
      el(
        "span",
        { class: "figure" },
        Number.isInteger(value) && value >= 1 ? String(value) : figure(value),
      ),
      ` ${means}`,
    ),
  );
}

function number(hit, part) {
  const value = hit.parts?.[part];
  return typeof value === "number" ? value : 0;
}

function figure(value) {
  return value.toFixed(3);
}

// What changed between two texts, word by word.

import { el } from "./dom.js";

// Beyond this many comparisons the middle is shown as taken out and put in whole.
const MAX_COMPARISONS = 4_000_000;
const AROUND = 12;

/** [kind, text] pairs: "same", "out" or "in". */
export function diff(before, after) {
  const old = words(before);
  const now = words(after);
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head += 1;
  let tail = 0;
  while (
    tail < old.length - head &&
    tail < now.length - head &&
    old.at(-1 - tail) === now.at(-1 - tail)
  )
    tail += 1;
  const middle = compared(old.slice(head, old.length - tail), now.slice(head, now.length - tail));
  const steps = [
    ["same", old.slice(0, head).join("")],
    ...middle,
    ["same", tail ? old.slice(-tail).join("") : ""],
  ];
  return joined(steps);
}

function words(text) {
  // What a mark holds together, such as 9:30 or Ana's, is one word.
  return text.match(/\s+|[\p{L}\p{N}_]+(?:[:.,'’-][\p{L}\p{N}_]+)*|[^\s\p{L}\p{N}_]/gu) ?? [];
}

/** The longest common part of both, and what stands between. */
function compared(old, now) {
  if (!old.length || !now.length || old.length * now.length > MAX_COMPARISONS)
    return [
      ["out", old.join("")],
      ["in", now.join("")],
    ];
  const wide = now.length + 1;
  const common = new Uint32Array((old.length + 1) * wide);
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) {
      common[i * wide + j] =
        old[i] === now[j]
          ? common[(i + 1) * wide + j + 1] + 1
          : Math.max(common[(i + 1) * wide + j], common[i * wide + j + 1]);
    }
  }
  const steps = [];
  let i = 0;
  let j = 0;
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      steps.push(["same", old[i]]);
      i += 1;
      j += 1;
    } else if (
      j === now.length ||
      (i < old.length && common[(i + 1) * wide + j] >= common[i * wide + j + 1])
    ) {
      steps.push(["out", old[i]]);
      i += 1;
    } else {
      steps.push(["in", now[j]]);
      j += 1;
    }
  }
  return steps;
}

/** Neighbours of one kind as one; a space between two changed words belongs to the change. */
function joined(steps) {
  const made = [];
  const push = (kind, text) => {
    if (!text) return;
    if (made.length && made.at(-1)[0] === kind) made.at(-1)[1] += text;
    else made.push([kind, text]);
  };
  let out = "";
  let put = "";
  const flush = () => {
    push("out", out);
    push("in", put);
    out = put = "";
  };
  steps.forEach(([kind, text], at) => {
    const changing = (out || put) && steps[at + 1] && steps[at + 1][0] !== "same";
    if (kind === "out") out += text;
    else if (kind === "in") put += text;
    else if (changing && /^\s+$/.test(text)) {
      out += text;
      put += text;
    } else {
      flush();
      push("same", text);
    }
  });
  flush();
  return made;
}

/** The difference drawn; long stretches that stayed are left out. */
export function drawn(before, after) {
  const steps = diff(before, after);
  const names = { same: "span", out: "del", in: "ins" };
  return el(
    "p",
    { class: "diff" },
    steps.map(([kind, text], at) => {
      const shown = kind === "same" ? shortened(text, at > 0, at < steps.length - 1) : text;
      return el(names[kind], {}, shown);
    }),
  );
}

function shortened(text, before, after) {
  const all = words(text);
  if (all.length <= 6 * AROUND) return text;
  const head = before ? all.slice(0, 2 * AROUND).join("") : "";
  const tail = after ? all.slice(-2 * AROUND).join("") : "";
  return `${head} … ${tail}`;
}

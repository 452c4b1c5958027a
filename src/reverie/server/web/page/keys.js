// The keyboard: a letter where nothing is being written, and 'g' before a section's letter.

import { help } from "./help.js";
import { undoLast } from "./toast.js";

const SECTIONS = { m: "memories", s: "sessions", p: "proposals", j: "jobs" };
const PATIENCE = 1500;

export function listenForKeys(shown) {
  let going = 0;
  document.addEventListener("keydown", (event) => {
    const page = shown();
    if (
      !page ||
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      document.querySelector("dialog[open]")
    )
      return;
    if (writing(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const after = Date.now() - going < PATIENCE;
    going = event.key === "g" ? Date.now() : 0;
    const act =
      after && SECTIONS[event.key]
        ? () => page.go(SECTIONS[event.key])
        : { ...common, ...page.keys }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

const common = {
  "/": () => document.querySelector("[type=search]")?.focus(),
  "?": help,
  j: () => move(1),
  k: () => move(-1),
  u: undoLast,
};

function writing(target) {
  const boxes = ["checkbox", "button"];
  return (
    target.isContentEditable ||
    target.matches("textarea, select") ||
    (target.matches("input") && !boxes.includes(target.type))
  );
}

/** The focus goes from row to row. */
function move(step) {
  const rows = [...document.querySelectorAll("[data-row]")].filter(
    (row) => row.offsetParent !== null,
  );
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement);
  const open = rows.findIndex((row) => row.getAttribute("aria-current") === "true");
  const from = at >= 0 ? at : open >= 0 ? open : step > 0 ? -1 : 0;
  const next = rows[Math.min(Math.max(from + step, 0), rows.length - 1)];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

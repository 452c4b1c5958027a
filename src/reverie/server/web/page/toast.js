// One line at the foot of the page: what was done, with a way back, or what went wrong.

import { button, el } from "./dom.js";

const SECONDS = 9;
const SHORT = 48;
const PHONE = matchMedia("(max-width: 760px)");
/** What can be undone, the newest first: its toast, its button, and the memory as it was left. */
let ways = [];

/** Says something. */
export function say(text) {
  show(text, "toast");
}

/** Says what was done with a memory. `back` undoes it while its toast is shown and the memory is as
 * it was left: from the button, or with the key u. */
export function done(deed, memory, back) {
  changed(memory.id, memory.version);
  const way = { memory, toast: show(`${deed}: ${brief(memory.content)}`, "toast") };
  way.undo = async () => {
    way.toast.remove();
    ways = ways.filter((each) => each !== way);
    await guarded(back);
  };
  way.button = button("Undo", way.undo, { class: "plain", "aria-keyshortcuts": "u" });
  way.toast.append(way.button);
  ways.unshift(way);
}

/** A memory has a new version: what was done before it cannot be undone any more. */
export function changed(id, version) {
  const over = (way) => way.memory.id === id && way.memory.version < version;
  for (const way of ways.filter(over)) way.button.remove();
  ways = ways.filter((way) => !over(way));
}

export function failed(error) {
  if (error.name === "AbortError") return;
  // The door says it.
  if (error.status === 401) window.dispatchEvent(new Event("signed-out"));
  else show(error.message, "toast wrong");
}

/** Undoes what was done last of what still can be. */
export async function undoLast() {
  const way = ways.find(({ toast }) => toast.isConnected);
  if (way) await way.undo();
  else say("Nothing to undo.");
}

/** What was done elsewhere is not told here, and cannot be undone from here. */
export function clear() {
  ways = [];
  document.getElementById("toasts").replaceChildren();
}

/** Runs something; when it fails, says so. */
export async function guarded(act) {
  try {
    return await act();
  } catch (error) {
    failed(error);
    return undefined;
  }
}

/** How a text begins. */
export function brief(text) {
  const line = text.replace(/\s+/g, " ");
  return line.length > SHORT ? `${line.slice(0, SHORT)}…` : line;
}

function show(text, kind) {
  const place = document.getElementById("toasts");
  const shown = el("div", { class: kind }, el("span", {}, text));
  shown.append(
    button("×", () => shown.remove(), { class: "plain close", "aria-label": "Dismiss" }),
  );
  place.prepend(shown);
  while (place.childElementCount > (PHONE.matches ? 1 : 2)) place.lastElementChild.remove();
  let left = setTimeout(() => shown.remove(), SECONDS * 1000);
  // Who reads it or is about to press it is given time.
  const stay = () => clearTimeout(left);
  const leave = () => {
    left = setTimeout(() => shown.remove(), SECONDS * 1000);
  };
  for (const event of ["mouseenter", "focusin"]) shown.addEventListener(event, stay);
  for (const event of ["mouseleave", "focusout"]) shown.addEventListener(event, leave);
  return shown;
}

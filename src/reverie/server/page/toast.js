// One line at the foot of the page: what was done, with a way back, or what went wrong.

import { button, el } from "./dom.js";

const SECONDS = 9;
let undo = null;

/** Says that something was done. `back` undoes it: from the button, or with the key u. */
export function done(text, back = null) {
  const shown = show(text, "toast");
  if (!back) return;
  undo = async () => {
    undo = null;
    shown.remove();
    await guarded(back);
  };
  shown.append(button("Undo", undo, { class: "plain", "aria-keyshortcuts": "u" }));
}

export function failed(error) {
  if (error.name === "AbortError") return;
  show(error.message, "toast wrong");
}

/** Undoes what was done last, once. */
export async function undoLast() {
  if (undo) await undo();
  else show("Nothing to undo.", "toast");
}

/** What was done in another space cannot be undone from this one. */
export function nothingToUndo() {
  undo = null;
}

/** Runs something; when it fails, says so. */
export async function guarded(act) {
  try {
    return await act();
  } catch (error) {
    if (error.status === 401) window.dispatchEvent(new Event("signed-out"));
    failed(error);
    return undefined;
  }
}

function show(text, kind) {
  const place = document.getElementById("toasts");
  const shown = el("div", { class: kind }, el("span", {}, text));
  shown.append(
    button("×", () => shown.remove(), { class: "plain close", "aria-label": "Dismiss" }),
  );
  while (place.childElementCount > 2) place.firstElementChild.remove();
  place.append(shown);
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

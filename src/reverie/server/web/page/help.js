// The keys there are.

import { button, el } from "./dom.js";

const KEYS = [
  ["/", "search"],
  ["j k", "next, previous"],
  ["Enter", "open"],
  ["n", "remember something"],
  ["e", "edit"],
  ["p", "pin"],
  ["x", "forget"],
  ["u", "undo"],
  ["g m", "memories"],
  ["g s", "sessions"],
  ["g p", "proposals"],
  ["g j", "jobs"],
  ["Esc", "close"],
  ["?", "this"],
];

export function help() {
  const shown = el(
    "dialog",
    { class: "help", "aria-labelledby": "help-title" },
    el("h2", { id: "help-title" }, "Keys"),
    el(
      "dl",
      {},
      KEYS.map(([keys, means]) =>
        el(
          "div",
          {},
          el(
            "dt",
            {},
            keys.split(" ").map((key) => el("kbd", {}, key)),
          ),
          el("dd", {}, means),
        ),
      ),
    ),
    button("Close", () => shown.close(), { class: "primary" }),
  );
  shown.addEventListener("close", () => shown.remove());
  document.body.append(shown);
  shown.showModal();
}

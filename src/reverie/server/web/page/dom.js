// Elements are built here and nowhere else. Text only ever becomes text: nothing on this page reads
// a string as HTML, and a link leads to this page alone, or to a file in the program that shows it.

const PROPERTIES = new Set([
  "value",
  "checked",
  "disabled",
  "hidden",
  "open",
  "required",
  "selected",
]);

const OBSIDIAN = "obsidian://open?path=";
const LEADS = ["#", OBSIDIAN];

/** An element: attributes by name, `on` for listeners, then what is inside it. */
export function el(tag, given = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined) continue;
    if (name === "on") listen(made, value);
    else if (PROPERTIES.has(name)) made[name] = value;
    else if (name === "href" && !LEADS.some((each) => String(value).startsWith(each)))
      throw new Error("a link leads elsewhere");
    else if (value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(
    ...children
      .flat(Infinity)
      .filter((child) => child !== null && child !== undefined && child !== false),
  );
  return made;
}

function listen(made, listeners) {
  for (const [event, listener] of Object.entries(listeners)) made.addEventListener(event, listener);
}

/** Puts these in the place of all that was inside. */
export function fill(parent, ...children) {
  parent.replaceChildren(
    ...children
      .flat(Infinity)
      .filter((child) => child !== null && child !== undefined && child !== false),
  );
  return parent;
}

export function button(label, press, given = {}) {
  const { class: kind = "", ...rest } = given;
  return el(
    "button",
    { type: "button", class: `button ${kind}`.trim(), on: { click: press }, ...rest },
    label,
  );
}

/** A button that cannot be pressed again before it is done. */
export function deed(label, act, given = {}) {
  const made = button(
    label,
    async () => {
      made.disabled = true;
      try {
        await act();
      } finally {
        made.disabled = false;
      }
    },
    given,
  );
  return made;
}

export function empty(title, ...hints) {
  return el(
    "div",
    { class: "empty" },
    el("p", { class: "empty-title" }, title),
    hints.map((hint) => el("p", {}, hint)),
  );
}

/** What an address leads to is not there. */
export function missing(title, close) {
  return el("div", {}, empty(title, button("Back to the list", close, { class: "plain" })));
}

/** A choice of values: [value, label] pairs. */
export function select(label, pairs, value, change) {
  const options = pairs.map(([each, name]) =>
    el("option", { value: each, selected: each === value }, name),
  );
  return el(
    "select",
    { "aria-label": label, on: { change: (event) => change(event.target.value) } },
    options,
  );
}

const units = [
  ["year", 31557600],
  ["month", 2629800],
  ["week", 604800],
  ["day", 86400],
  ["hour", 3600],
  ["minute", 60],
];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });
const exact = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });

/** A moment as people say it, the exact one on hover. */
export function time(iso) {
  const moment = new Date(iso);
  if (Number.isNaN(moment.getTime())) return el("span", { class: "when" }, String(iso));
  const seconds = (moment.getTime() - Date.now()) / 1000;
  const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= size) ?? [null, 1];
  const said = unit === null ? "just now" : relative.format(Math.round(seconds / size), unit);
  return el("time", { class: "when", datetime: iso, title: exact.format(moment) }, said);
}

export function exactly(iso) {
  const moment = new Date(iso);
  return Number.isNaN(moment.getTime()) ? String(iso) : exact.format(moment);
}

export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

/** Where a file of the vault is: to copy, and on the machine that has it to open. */
export function file(relative, whole) {
  const copy = button(
    "Copy",
    async () => {
      await navigator.clipboard.writeText(whole ?? relative);
      copy.textContent = "Copied";
    },
    { class: "plain", title: "Copy the path" },
  );
  const open = whole
    ? el("a", { href: OBSIDIAN + encodeURIComponent(whole) }, "Open in Obsidian")
    : null;
  return [el("code", { class: "path" }, relative), copy, open];
}

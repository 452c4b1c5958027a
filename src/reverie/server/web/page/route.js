// Where we are, written in the address after '#': a section, what is open in it, and what was asked.
// '#/sessions/chat-1/4?space=ana' is the fourth event of a session of ana.

import { scope } from "./api.js";

export const SECTIONS = ["memories", "sessions", "proposals", "jobs"];
/** What is asked of a list of memories. */
export const ASKED = ["q", "category", "tag", "kind", "forgotten", "order", "as_of"];

export function read(hash = location.hash) {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [section, id, at] = path.split("/").map(decoded);
  const asked = Object.fromEntries(new URLSearchParams(search));
  return {
    section: SECTIONS.includes(section) ? section : "memories",
    id: id || null,
    at: Number(at) || null,
    asked,
  };
}

/** The address of something in the scope that is looked at. */
export function link(section, id = null, { at = null, ...asked } = {}) {
  const path = [section, id, at]
    .filter((part) => part !== null && part !== "")
    .map((part) => encodeURIComponent(part));
  const query = new URLSearchParams();
  const all = { space: scope.space, user: scope.user, ...asked };
  for (const [name, value] of Object.entries(all)) if (value) query.set(name, value);
  const search = query.toString();
  return `#/${path.join("/")}${search ? `?${search}` : ""}`;
}

export function go(address) {
  if (location.hash === address) window.dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = address;
}

/** Keeps the address true without a step for the back button. */
export function replace(address) {
  history.replaceState(null, "", address);
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

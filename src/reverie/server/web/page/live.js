// The feed of changes. It rests while nobody looks: a browser lends few connections to one server.

import { Problem, stream } from "./api.js";

export const LIVE = "live";
const FIRST_WAIT = 1000;
const LONGEST_WAIT = 15000;

/** Calls `heard` with every change after a position, until the function it returns is called. */
export function follow(position, heard, state) {
  let open = null;
  let last = position;
  let wait = FIRST_WAIT;
  let timer = 0;
  let ended = false;

  const start = async () => {
    if (ended || open || document.hidden) return;
    open = new AbortController();
    try {
      const reader = await stream("/api/changes", { after: last }, open.signal);
      state(LIVE);
      wait = FIRST_WAIT;
      for await (const change of changes(reader)) {
        last = change.position;
        heard(change);
      }
    } catch (error) {
      // A server that refuses will refuse again; one that went away comes back.
      if (error instanceof Problem && error.status >= 400 && error.status < 429) ended = true;
    }
    open = null;
    if (ended || document.hidden) return;
    state("waits for the server");
    timer = setTimeout(start, wait);
    wait = Math.min(wait * 2, LONGEST_WAIT);
  };

  const look = () => {
    clearTimeout(timer);
    if (document.hidden) open?.abort();
    else start();
  };

  document.addEventListener("visibilitychange", look);
  start();
  return () => {
    ended = true;
    clearTimeout(timer);
    open?.abort();
    document.removeEventListener("visibilitychange", look);
  };
}

/** Server-sent events: blocks of lines with an empty line after each. */
async function* changes(reader) {
  let kept = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (kept + value.replaceAll("\r", "")).split("\n\n");
    kept = blocks.pop();
    for (const block of blocks) {
      const data = block
        .split("\n")
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice(5).trim());
      if (data.length) yield JSON.parse(data.join("\n"));
    }
  }
}

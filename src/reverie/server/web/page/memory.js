// One memory: what it says now, what can be done with it, and its history.

import { ask, may, mayChange, path, scope } from "./api.js";
import { button, deed, el, empty, exactly, file, fill, missing, time } from "./dom.js";
import { editor } from "./editor.js";
import * as route from "./route.js";
import { trustOf } from "./rows.js";
import { timeline } from "./timeline.js";
import { done, guarded, say } from "./toast.js";

/** Shows a memory in its pane; without an id, what the pane is for. */
export async function openMemory(pane, id, close) {
  Object.assign(pane, { edit: null, pin: null, cancel: null, refresh: null });
  if (!id) {
    fill(
      pane,
      empty("Open a memory to see its history.", "j and k move, Enter opens, ? shows every key."),
    );
    return;
  }
  const read = () => ask("GET", path`/api/memory/${id}`);
  let memory;
  try {
    memory = await read();
  } catch (error) {
    if (route.read().id !== id) return;
    fill(pane);
    if (error.status !== 404) throw error;
    fill(pane, missing(`No memory here has the id ${id}.`, close));
    return;
  }
  if (route.read().id !== id) return;
  draw(pane, memory, close);
  // What somebody is writing is not taken from under their hands; saving will tell.
  const idle = () => !pane.cancel && route.read().id === id;
  pane.refresh = async () => {
    const now = idle() ? await read() : null;
    // An editor may have been opened while the answer was awaited.
    if (now && idle()) draw(pane, now, close, true);
  };
  const { next } = pane;
  pane.next = null;
  if (next?.id === id) pane.edit?.(next.draft);
}

function draw(pane, memory, close, quiet = false) {
  const can = mayChange(memory);
  const top = quiet ? pane.scrollTop : 0;
  const content = el("div", { class: "content" }, memory.content ?? "This memory was erased.");
  const space = el("div", {}, content, actions(pane, memory, can));
  const stop = () => {
    pane.cancel = null;
    fill(space, content, actions(pane, memory, can));
  };
  pane.edit =
    can && !memory.forgotten_at
      ? (draft = null) => {
          pane.cancel = () => {
            stop();
            pane.focus();
          };
          fill(
            space,
            editor(
              memory,
              async (saved, before) => {
                stop();
                await pane.refresh();
                if (saved.version === before.version) say("Nothing was changed.");
                else done("Saved", saved, () => undoRevision(saved, before));
              },
              pane.cancel,
              { draft },
            ),
          );
        }
      : null;
  pane.pin = can && !memory.forgotten_at ? () => guarded(() => pin(memory)) : null;
  fill(
    pane,
    el(
      "article",
      { class: memory.forgotten_at ? "memory forgotten" : "memory" },
      el(
        "header",
        {},
        button("←", close, { class: "plain back", "aria-label": "Back to the list" }),
        el("h2", {}, memory.subject || memory.category),
        el("code", { class: "id", title: "Its id" }, memory.id),
      ),
      space,
      facts(memory),
      el("h3", {}, "Its life"),
      timeline(memory.versions ?? []),
    ),
  );
  pane.scrollTop = top;
}

function actions(pane, memory, can) {
  if (!can) {
    const shared = may("write") && scope.user && memory.user === null;
    return shared
      ? el("p", { class: "quiet" }, "Shared by all users: it is changed where no user is chosen.")
      : null;
  }
  if (memory.forgotten_at) {
    return el(
      "div",
      { class: "actions" },
      el("span", { class: "gone" }, "Forgotten ", time(memory.forgotten_at)),
      deed("Restore", () => guarded(() => restore(memory)), { class: "primary" }),
    );
  }
  return el(
    "div",
    { class: "actions" },
    button("Edit", () => pane.edit(), { "aria-keyshortcuts": "e" }),
    deed(memory.pinned ? "Unpin" : "Pin", () => pane.pin(), {
      "aria-keyshortcuts": "p",
      title: "Pinned memories come first in the profile",
    }),
    deed("Forget", () => guarded(() => forget(memory)), { "aria-keyshortcuts": "x", class: "bad" }),
  );
}

function facts(memory) {
  const pairs = [
    [
      "Category",
      el(
        "a",
        { href: route.link("memories", null, { category: memory.category }) },
        memory.category,
      ),
    ],
    ["Subject", memory.subject],
    [
      "Tags",
      memory.tags.length
        ? memory.tags.map((tag) =>
            el("a", { class: "tag", href: route.link("memories", null, { tag }) }, `#${tag}`),
          )
        : null,
    ],
    ["Kind", memory.kind === "note" ? "note" : null],
    ["Trust", trustOf(memory.trust)],
    ["Source", memory.source],
    ["User", memory.user],
    [
      "Only in session",
      memory.session
        ? el("a", { href: route.link("sessions", memory.session) }, memory.session)
        : null,
    ],
    ["Happened", memory.happened_at ? exactly(memory.happened_at) : null],
    ["Expires", memory.expires_at ? exactly(memory.expires_at) : null],
    ["Holds from", memory.valid_from ? exactly(memory.valid_from) : null],
    ["Holds until", memory.valid_to ? exactly(memory.valid_to) : null],
    ["Metadata", metadataOf(memory.metadata)],
    ["File", memory.file ? file(memory.file, memory.local_file) : null],
  ];
  return el(
    "dl",
    { class: "facts" },
    pairs
      .filter(([, value]) => value)
      .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  );
}

function metadataOf(metadata) {
  const names = Object.keys(metadata ?? {});
  if (!names.length) return null;
  const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  return names.map((name) =>
    el("div", { class: "metadata" }, el("span", { class: "quiet" }, name), " ", shown(metadata[name])),
  );
}

// -- deeds ----------------------------------------------------------------------------------------

export async function forget(memory) {
  await ask("DELETE", path`/api/memory/${memory.id}`);
  const left = { ...memory, version: memory.version + 1 };
  done("Forgotten", left, () => ask("POST", path`/api/memory/${memory.id}/restore`));
}

async function restore(memory) {
  const restored = await ask("POST", path`/api/memory/${memory.id}/restore`);
  done("Restored", restored, () => ask("DELETE", path`/api/memory/${memory.id}`));
}

async function pin(memory) {
  const revise = (pinned, version) =>
    ask("PATCH", path`/api/memory/${memory.id}`, {
      body: { pinned },
      headers: { "If-Match": `"${version}"` },
    });
  const saved = await revise(!memory.pinned, memory.version);
  done(saved.pinned ? "Pinned" : "Unpinned", saved, () => revise(memory.pinned, saved.version));
}

function undoRevision(saved, before) {
  const body = {
    content: before.content,
    category: before.category,
    subject: before.subject,
    tags: before.tags,
    metadata: before.metadata,
    reason: "undone",
  };
  return ask("PATCH", path`/api/memory/${saved.id}`, {
    body,
    headers: { "If-Match": `"${saved.version}"` },
  });
}

/** A form for a new memory in the place of what is open. */
export function remember(pane, close) {
  Object.assign(pane, {
    edit: null,
    pin: null,
    cancel: () => {
      pane.cancel = null;
      close(null);
    },
  });
  fill(
    pane,
    el(
      "article",
      { class: "memory" },
      el(
        "header",
        {},
        button("←", () => pane.cancel(), { class: "plain back", "aria-label": "Back to the list" }),
        el("h2", {}, "Something to remember"),
      ),
      editor(
        null,
        (memory) => {
          pane.cancel = null;
          done("Remembered", memory, () => ask("DELETE", path`/api/memory/${memory.id}`));
          close(memory.id);
        },
        () => pane.cancel(),
        {
          reviseInstead: (id, draft) => {
            Object.assign(pane, { cancel: null, next: { id, draft } });
            close(id);
          },
        },
      ),
    ),
  );
}

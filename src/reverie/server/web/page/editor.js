// Writing a memory, new or again. When somebody else was faster, both are shown.

import { ask, path } from "./api.js";
import { button, deed, el, fill } from "./dom.js";
import { drawn } from "./diff.js";

/** A form. `memory` null: a new one. `saved` gets what is kept now and what was before. A `draft` is
 * what it shall say; `reviseInstead` gets the id of a memory that is known already, and a draft. */
export function editor(memory, saved, cancel, { draft = null, reviseInstead = null } = {}) {
  const fields = fieldsOf(memory, draft);
  const about = el("div", { class: "conflict", role: "alert" });
  let known = memory;

  const save = async (force = false) => {
    settle();
    try {
      const kept = known
        ? await revise(known, written(fields))
        : await create(written(fields), force);
      await saved(kept, known);
    } catch (error) {
      if (error.title === "VersionConflict") await meet();
      else if (error.title === "SubjectExists") offer(error.body);
      else fill(about, el("p", { class: "wrong" }, error.message));
    }
  };

  /** Puts a choice in the place of the button that led to it. */
  function choose(first, second, ...why) {
    fill(about, why, el("div", { class: "actions" }, first, second));
    submit.hidden = true;
    first.focus();
  }

  function settle() {
    fill(about);
    submit.hidden = false;
  }

  /** Another version came meanwhile: theirs and ours, and a choice. */
  async function meet() {
    const theirs = await ask("GET", path`/api/memory/${memory.id}`);
    const over = () => {
      known = theirs;
      return save();
    };
    choose(
      deed("Save yours over theirs", over, { class: "primary" }),
      button("Keep theirs", cancel),
      el(
        "p",
        { class: "wrong" },
        `It was revised meanwhile: this is version ${theirs.version}, yours began at ${known.version}.`,
      ),
      el(
        "div",
        { class: "both" },
        el("div", {}, el("h4", {}, "Theirs"), el("p", { class: "diff" }, theirs.content)),
        el(
          "div",
          {},
          el("h4", {}, "Yours, beside theirs"),
          drawn(theirs.content, fields.content.value),
        ),
      ),
    );
  }

  function offer(existing) {
    const revised = () => reviseInstead(existing.existing_id, written(fields));
    choose(
      button("Revise that one", revised, { class: "primary" }),
      deed("Remember this too", () => save(true)),
      el("p", { class: "wrong" }, "The same subject is remembered already:"),
      el("p", { class: "diff" }, existing.existing_content),
    );
  }

  const submit = el("button", { class: "button primary" }, memory ? "Save" : "Remember");
  const form = el(
    "form",
    { class: "editor" },
    labelled("What is known", fields.content, "wide"),
    labelled("Category", fields.category),
    labelled("Subject", fields.subject),
    labelled("Tags", fields.tags),
    labelled("Metadata", fields.metadata),
    fields.reason ? labelled("Why", fields.reason) : null,
    about,
    el(
      "div",
      { class: "actions" },
      submit,
      button("Cancel", cancel),
      el("span", { class: "quiet hint" }, "Ctrl Enter saves, Esc leaves"),
    ),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    await save();
    submit.disabled = false;
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      cancel();
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  // Of another subject there may be nothing yet.
  for (const field of [fields.category, fields.subject]) field.addEventListener("input", settle);
  queueMicrotask(() => fields.content.focus());
  return form;
}

function fieldsOf(memory, draft) {
  const tags = [...new Set([...(memory?.tags ?? []), ...(draft?.tags ?? [])])];
  const text = (value, given = {}) =>
    el("input", { type: "text", value: value ?? "", autocomplete: "off", ...given });
  return {
    content: el("textarea", { value: draft?.content ?? memory?.content ?? "", required: true, rows: "4" }),
    category: text(memory?.category ?? "general", { required: true }),
    subject: text(memory?.subject, { placeholder: "what it is about" }),
    tags: text(tags.join(", "), { placeholder: "work, travel" }),
    metadata: text(Object.keys(memory?.metadata ?? {}).length ? JSON.stringify(memory.metadata) : "", {
      placeholder: '{"team": "web"}',
    }),
    reason: memory ? text("", { placeholder: "kept with the version" }) : null,
  };
}

function written(fields) {
  return {
    content: fields.content.value,
    category: fields.category.value.trim(),
    subject: fields.subject.value.trim() || null,
    tags: fields.tags.value
      .split(",")
      .map((tag) => tag.trim().replace(/^#/, "").toLowerCase())
      .filter(Boolean),
    metadata: metadataIn(fields.metadata.value.trim()),
    reason: fields.reason?.value.trim() || undefined,
  };
}

function metadataIn(text) {
  let value = {};
  try {
    if (text) value = JSON.parse(text);
  } catch {
    value = null;
  }
  if (value === null || typeof value !== "object" || Array.isArray(value))
    throw new Error('Metadata is a JSON object, such as {"team": "web"}.');
  return value;
}

/** Only what is different: a version says what was meant. */
function revise(known, now) {
  const body = {};
  for (const name of ["content", "category", "subject"])
    if (now[name] !== known[name]) body[name] = now[name];
  if (now.tags.join() !== known.tags.join()) body.tags = now.tags;
  if (JSON.stringify(now.metadata) !== JSON.stringify(known.metadata)) body.metadata = now.metadata;
  if (!Object.keys(body).length) return known;
  if (now.reason) body.reason = now.reason;
  return ask("PATCH", path`/api/memory/${known.id}`, {
    body,
    headers: { "If-Match": `"${known.version}"` },
  });
}

function create({ reason, ...now }, force) {
  return ask("POST", "/api/memory/", { body: { ...now, force } });
}

function labelled(label, field, kind = null) {
  return el("label", { class: kind }, el("span", {}, label), field);
}

// Writing a memory, new or again. When somebody else was faster, both are shown.

import { ask, path } from "./api.js";
import { button, deed, el, fill } from "./dom.js";
import { drawn } from "./diff.js";

/** A form. `memory` null: a new one. `saved` gets what is kept now and what was before. */
export function editor(memory, saved, cancel) {
  const fields = fieldsOf(memory);
  const about = el("div", { class: "conflict", role: "alert" });
  let known = memory;
  let force = false;

  const save = async () => {
    try {
      const kept = known
        ? await revise(known, written(fields))
        : await create(written(fields), force);
      await saved(kept, known);
    } catch (error) {
      if (error.title === "VersionConflict") await meet(error);
      else if (error.title === "SubjectExists") offer(error.body);
      else fill(about, el("p", { class: "wrong" }, error.message));
    }
  };

  /** Another version came meanwhile: theirs and ours, and a choice. */
  async function meet() {
    const theirs = await ask("GET", path`/api/memory/${memory.id}`);
    fill(
      about,
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
      el(
        "div",
        { class: "actions" },
        deed(
          "Save yours over theirs",
          () => {
            known = theirs;
            return save();
          },
          { class: "primary" },
        ),
        button("Keep theirs", cancel),
      ),
    );
  }

  function offer(existing) {
    fill(
      about,
      el("p", { class: "wrong" }, "The same subject is remembered already:"),
      el("p", { class: "diff" }, existing.existing_content),
      deed("Remember this too", () => {
        force = true;
        return save();
      }),
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
  queueMicrotask(() => fields.content.focus());
  return form;
}

function fieldsOf(memory) {
  const text = (value, given = {}) =>
    el("input", { type: "text", value: value ?? "", autocomplete: "off", ...given });
  return {
    content: el("textarea", { value: memory?.content ?? "", required: true, rows: "4" }),
    category: text(memory?.category ?? "general", { required: true }),
    subject: text(memory?.subject, { placeholder: "what it is about" }),
    tags: text(memory?.tags.join(", "), { placeholder: "work, travel" }),
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
    reason: fields.reason?.value.trim() || undefined,
  };
}

/** Only what is different: a version says what was meant. */
function revise(known, now) {
  const body = {};
  for (const name of ["content", "category", "subject"])
    if (now[name] !== known[name]) body[name] = now[name];
  if (now.tags.join() !== known.tags.join()) body.tags = now.tags;
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

// Who are you? A token to paste, when no link with a code was followed.

import { el } from "./dom.js";

export function signInForm(why, enter) {
  const wrong = el("p", { class: "wrong", role: "alert" }, why);
  const token = el("input", {
    id: "token",
    type: "password",
    required: true,
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "rv_…",
    "aria-describedby": "token-help",
  });
  const keep = el("input", { id: "keep", type: "checkbox" });
  const submit = el("button", { class: "button primary" }, "Open");
  const form = el(
    "form",
    { class: "signin-form" },
    el("label", { for: "token" }, "Token"),
    token,
    el(
      "p",
      { id: "token-help", class: "quiet" },
      el("code", {}, "reverie serve"),
      " prints a new link to this page each time it starts. The operator's token is in the file that it prints as Token; ",
      el("code", {}, "reverie token create"),
      " makes tokens for others.",
    ),
    el("label", { class: "check" }, keep, "Stay signed in in this browser"),
    wrong,
    submit,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    try {
      await enter(token.value.trim(), keep.checked);
    } catch (error) {
      wrong.textContent =
        error.status === 401 ? "The server does not know this token." : error.message;
      submit.disabled = false;
      token.select();
    }
  });
  queueMicrotask(() => token.focus());
  return el(
    "main",
    { class: "signin" },
    el("h1", { class: "brand" }, "Reverie"),
    el("p", { class: "motto" }, "What your agent knows."),
    form,
  );
}

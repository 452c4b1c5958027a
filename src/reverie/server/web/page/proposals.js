// What a model would remember if it may.

import { ask, may, path } from "./api.js";
import { button, deed, el, empty, fill, time } from "./dom.js";
import * as route from "./route.js";
import { brief, done, guarded, say } from "./toast.js";

const PAUSE = 250;

export function proposals(main) {
  let answered = false;
  let gathering = 0;
  const rows = el("div", { class: "cards" });
  const toggle = button(
    "Answered too",
    () => {
      answered = !answered;
      toggle.setAttribute("aria-pressed", String(answered));
      guarded(load);
    },
    { class: "plain", "aria-pressed": "false" },
  );
  fill(
    main,
    el(
      "section",
      { class: "single", "aria-label": "Proposals" },
      el("header", { class: "single-head" }, el("h1", {}, "Proposals"), toggle),
      el(
        "p",
        { class: "quiet" },
        "What a model heard and would keep. Nothing of it is remembered before somebody accepts it.",
      ),
      rows,
    ),
  );

  async function load() {
    const { proposals: known } = await ask("GET", "/api/proposals", {
      query: { include_answered: answered || null },
    });
    fill(
      rows,
      known.length
        ? known.map(card)
        : empty(
            "Nothing waits for an answer.",
            el(
              "span",
              {},
              "With the setting ",
              el("code", {}, "write_policy = ask"),
              " what is learned from conversations waits here.",
            ),
          ),
    );
  }

  function card(proposal) {
    const { origin } = proposal;
    const answer = (verb) =>
      guarded(async () => {
        const memory = await ask("POST", path`/api/proposals/${proposal.id}/${verb}`, { body: {} });
        if (verb === "accept")
          done("Remembered", memory, () => ask("DELETE", path`/api/memory/${memory.id}`));
        else say(`Rejected: ${brief(proposal.content)}`);
        await load();
      });
    return el(
      "article",
      { class: "card" },
      el(
        "a",
        {
          class: "card-text",
          "data-row": proposal.id,
          href: origin
            ? route.link("sessions", origin.session, { at: origin.sequence })
            : route.link("proposals"),
        },
        proposal.content,
      ),
      el(
        "p",
        { class: "row-about" },
        el("span", {}, proposal.category),
        proposal.subject ? el("span", { class: "subject" }, proposal.subject) : null,
        origin ? el("span", {}, `from turn ${origin.sequence} of ${origin.session}`) : null,
        el("span", {}, `by ${proposal.source}`),
        time(proposal.proposed_at),
      ),
      proposal.answer
        ? el(
            "p",
            { class: "quiet" },
            proposal.answer === "accept"
              ? [
                  "accepted: ",
                  el("a", { href: route.link("memories", proposal.memory_id) }, "the memory"),
                ]
              : "rejected",
          )
        : may("write")
          ? el(
              "div",
              { class: "actions" },
              deed("Accept", () => answer("accept"), { class: "primary", "data-answer": "accept" }),
              deed("Reject", () => answer("reject"), { "data-answer": "reject" }),
            )
          : null,
    );
  }

  return {
    show: load,
    keys: {},
    changed(change) {
      if (!["propose", "accept", "reject"].includes(change.op)) return;
      clearTimeout(gathering);
      gathering = setTimeout(() => guarded(load), PAUSE);
    },
    close: () => clearTimeout(gathering),
  };
}

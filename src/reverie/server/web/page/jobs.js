// What is to be done later, and what kept failing: the operator's.

import { ask, path } from "./api.js";
import { count, deed, el, empty, fill, time } from "./dom.js";
import { guarded, say } from "./toast.js";

const LOOK = 5000;
const KINDS = {
  embed: "works out the vectors of what was written",
  learn: "takes what is worth keeping from a turn",
  summarise: "brings the summary of a session up to date",
  expire: "forgets a memory whose time is over",
  prune: "drops old notes of what was recalled",
  scrub: "empties the files of what was erased",
};

export function jobs(main) {
  let timer = 0;
  const rows = el("div", { class: "cards" });
  fill(
    main,
    el(
      "section",
      { class: "single", "aria-label": "Jobs" },
      el("header", { class: "single-head" }, el("h1", {}, "Jobs")),
      el(
        "p",
        { class: "quiet" },
        "Learning, vectors, upkeep: whatever happens later is a job. One that keeps failing is parked until somebody looks.",
      ),
      rows,
    ),
  );

  async function load() {
    const { jobs: known } = await ask("GET", "/api/jobs", { scoped: false });
    const parked = known.filter((job) => job.state === "parked");
    const waiting = known.filter((job) => job.state !== "parked");
    const groups = [];
    if (parked.length)
      groups.push(
        el("h2", { class: "group" }, count(parked.length, "parked job")),
        parked.map(card),
      );
    if (waiting.length)
      groups.push(
        el("h2", { class: "group" }, count(waiting.length, "pending job")),
        waiting.map(card),
      );
    fill(
      rows,
      groups.length
        ? groups
        : empty(
            "Nothing is left to do.",
            "Jobs appear here while they wait, and stay when they fail.",
          ),
    );
  }

  function card(job) {
    const at = path`/api/jobs/${job.space}/${job.id}`;
    const act = (method, where, message) =>
      guarded(async () => {
        await ask(method, where, { scoped: false });
        say(message);
        await load();
      });
    const drop = deed(
      "Drop",
      async () => {
        if (drop.dataset.sure) return act("DELETE", at, "Dropped.");
        drop.dataset.sure = "yes";
        drop.textContent = "Drop it for good?";
        return null;
      },
      { class: "bad" },
    );
    return el(
      "article",
      { class: `card job ${job.state}` },
      el(
        "p",
        { class: "card-text", tabindex: "0", "data-row": `${job.space}/${job.id}` },
        el("strong", {}, job.kind),
        KINDS[job.kind] ? ` ${KINDS[job.kind]}` : null,
      ),
      el(
        "p",
        { class: "row-about" },
        el("span", {}, "space ", el("span", { class: "subject" }, job.space)),
        el("span", {}, job.state),
        el("span", {}, count(job.attempts, "attempt")),
        el("span", {}, "due ", time(job.due_at)),
        payload(job),
      ),
      job.error ? el("p", { class: "wrong" }, job.error) : null,
      el(
        "div",
        { class: "actions" },
        job.state === "parked"
          ? deed("Retry", () => act("POST", `${at}/retry`, "It will be tried again."))
          : null,
        job.state === "running" ? null : drop,
      ),
    );
  }

  return {
    async show() {
      await load();
      clearInterval(timer);
      // Jobs are no entries of the log, so the feed does not tell of them.
      timer = setInterval(
        () => document.hidden || rows.querySelector("[data-sure]") || load().catch(() => {}),
        LOOK,
      );
    },
    keys: {},
    close: () => clearInterval(timer),
  };
}

function payload(job) {
  const said = Object.entries(job.payload ?? {})
    .filter(([, value]) => ["string", "number"].includes(typeof value))
    .map(([name, value]) => `${name} ${value}`);
  return said.length ? el("span", { class: "subject" }, said.join(", ")) : null;
}

// The memories of a list, as far as they were asked for: its parts, its hits, and what changes in it.

import { ask, path } from "./api.js";
import { orderOf } from "./filters.js";

const PART = 50;
const MAX_HITS = 1000;

export class Known {
  asked = {};
  items = [];
  /** The hits of a search; null where nothing is searched for. */
  hits = null;
  total = 0;
  rest = false;
  #limit = PART;
  #reading = null;

  /** Reads what is asked for from its beginning; an answer that is still awaited is let go. */
  async read(asked = this.asked) {
    if (asked !== this.asked) this.#limit = PART;
    this.asked = asked;
    this.stop();
    this.#reading = new AbortController();
    const { signal } = this.#reading;
    if (asked.q) {
      const { hits } = await ask("POST", "/api/recall", { body: this.#question(), signal });
      const rest = hits.length >= this.#limit && this.#limit < MAX_HITS;
      Object.assign(this, { hits, items: hits.map((hit) => hit.memory), total: hits.length, rest });
    } else {
      const { memories: items, total, next } = await this.#part(null, signal);
      Object.assign(this, { hits: null, items, total, rest: next !== null });
    }
  }

  /** Reads on. */
  async more() {
    if (this.hits) {
      this.#limit = Math.min(this.#limit * 2, MAX_HITS);
      await this.read();
      return;
    }
    const { memories: items, total, next } = await this.#part(this.items.at(-1)?.id);
    const fresh = items.filter((memory) => !this.items.some((each) => each.id === memory.id));
    Object.assign(this, { items: [...this.items, ...fresh], total, rest: next !== null });
  }

  /** One memory changed: it takes the place that it has now, or none. */
  async settle(id) {
    const memory = await ask("GET", path`/api/memory/${id}`).catch(() => null);
    let items = this.items.filter((each) => each.id !== id);
    const had = items.length < this.items.length;
    const has = memory !== null && this.#admits(memory);
    if (has) {
      const at = items.findIndex((each) => this.#precedes(memory, each));
      // Behind the last one that was read it will come with the rest.
      if (at >= 0) items = items.toSpliced(at, 0, memory);
      else if (had || !this.rest) items = [...items, memory];
    }
    Object.assign(this, { items, total: this.total + Number(has) - Number(had) });
  }

  stop() {
    this.#reading?.abort();
  }

  #question() {
    const { q, category, kind, tag, as_of } = this.asked;
    const moment = /^\d+$/.test(as_of) ? Number(as_of) : as_of;
    const body = { query: q, limit: this.#limit, explain: true, note: false };
    if (category) body.category = category;
    if (kind) body.kinds = [kind];
    if (tag) body.tags = [tag];
    if (moment) body.as_of = moment;
    return body;
  }

  #part(after, signal) {
    const { category, kind, tag, forgotten, as_of } = this.asked;
    const query = { category, tag, as_of, after, limit: PART, order: orderOf(this.asked) };
    // A kind that only a search knows.
    if (kind !== "event") query.kind = kind;
    if (forgotten) query.include_forgotten = true;
    return ask("GET", "/api/memory/", { query, signal });
  }

  #admits(memory) {
    const { category, kind, tag, forgotten } = this.asked;
    return (
      (!category || memory.category === category) &&
      (!kind || memory.kind === kind) &&
      (!tag || memory.tags.includes(tag)) &&
      (forgotten || !memory.forgotten_at)
    );
  }

  #precedes(one, other) {
    if (orderOf(this.asked) === "newest") return one.created_at >= other.created_at;
    if (one.category !== other.category) return one.category < other.category;
    return one.created_at < other.created_at;
  }
}

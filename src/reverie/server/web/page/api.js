// Everything the page asks of the server: the token goes along, and so does the scope.

const RIGHTS = ["read", "write", "admin"];
const TOKEN = "reverie.token";

/** Whose token this is, and what it may do. */
export const me = { token: null, name: null, right: null, spaces: null, user: null, space: null };
/** What the page looks at: a space, and a user of it or null for what all of them share. */
export const scope = { space: null, user: null };

/** An answer that says no, as one line. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `the server answered ${status}`);
    this.status = status;
    this.title = body.title || "";
    this.body = body;
  }
}

export function may(right) {
  return RIGHTS.indexOf(me.right) >= RIGHTS.indexOf(right);
}

/** Whether this memory can be changed from here: what is shared is not a user's to change. */
export function mayChange(memory) {
  return may("write") && !scope.asOf && (memory.user ?? null) === (scope.user ?? null);
}

// -- who ------------------------------------------------------------------------------------------

/** A token that was kept: in this tab, or in this browser where that was asked for. */
export function keptToken() {
  return sessionStorage.getItem(TOKEN) ?? localStorage.getItem(TOKEN);
}

export async function signIn(token, keep = false) {
  me.token = token;
  try {
    Object.assign(me, await ask("GET", "/api/whoami", { scoped: false }));
  } catch (error) {
    signOut();
    throw error;
  }
  sessionStorage.setItem(TOKEN, token);
  if (keep) localStorage.setItem(TOKEN, token);
}

export function signOut() {
  sessionStorage.removeItem(TOKEN);
  localStorage.removeItem(TOKEN);
  Object.assign(me, { token: null, name: null, right: null, spaces: null, user: null });
}

/** Trades a one-time code for a token. */
export async function redeem(code) {
  const { token } = await ask("POST", "/login", { body: { code }, scoped: false });
  return token;
}

// -- asking ---------------------------------------------------------------------------------------

/** One request. A write carries a key, so that it can be repeated when no answer came. */
export async function ask(
  method,
  path,
  { query = {}, body, headers = {}, signal, scoped = true } = {},
) {
  const asked = request(method, body, headers, signal);
  const address = withQuery(path, scoped ? { ...scopeOf(), ...query } : query);
  const answer = await twice(address, asked);
  if (!answer.ok) throw new Problem(answer.status, await answer.json().catch(() => ({})));
  return answer.status === 204 ? null : answer.json();
}

/** An answer that goes on, as a reader of text. */
export async function stream(path, query, signal) {
  const answer = await fetch(
    withQuery(path, { ...scopeOf(), ...query }),
    request("GET", undefined, {}, signal),
  );
  if (!answer.ok) throw new Problem(answer.status, await answer.json().catch(() => ({})));
  return answer.body.pipeThrough(new TextDecoderStream()).getReader();
}

function request(method, body, headers, signal) {
  const sent = { ...headers };
  if (me.token) sent.Authorization = `Bearer ${me.token}`;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  if (method !== "GET") sent["Idempotency-Key"] = freshKey();
  return {
    method,
    headers: sent,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
    credentials: "omit",
  };
}

async function twice(address, asked) {
  try {
    return await fetch(address, asked);
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  try {
    return await fetch(address, asked);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { detail: "the server does not answer: is it still running?" });
  }
}

function scopeOf() {
  return { space: scope.space, user: scope.user };
}

function withQuery(path, query) {
  const given = Object.entries(query).filter(
    ([, value]) => value !== null && value !== undefined && value !== "",
  );
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

function freshKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `page-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** A path of the server with names in it. */
export function path(strings, ...names) {
  return String.raw({ raw: strings }, ...names.map(encodeURIComponent));
}

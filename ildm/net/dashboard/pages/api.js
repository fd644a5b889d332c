// What the server is asked.

const HEADER = { "X-ILDM-Dashboard": "1" };

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

let leave = () => {};
/** `then` is called when the login is over. */
export function onLogout(then) {
  leave = then;
}

async function send(path, options) {
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", credentials: "same-origin", ...options });
  } catch {
    throw new Refused(0, "the node does not answer");
  }
  const told = answer.headers.get("Content-Type")?.startsWith("application/json") ? await answer.json() : null;
  if (answer.ok) return told;
  if (answer.status === 401 && path !== "/login") leave();
  throw new Refused(answer.status, told?.error ?? `${answer.status} ${answer.statusText}`);
}

export function get(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return send(given.length ? `${path}?${new URLSearchParams(given)}` : path, {});
}

export const post = (path, body = {}) =>
  send(path, { method: "POST", headers: { ...HEADER, "Content-Type": "application/json" }, body: JSON.stringify(body) });

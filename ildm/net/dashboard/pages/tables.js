// Clients, subscriptions, retained messages and events: searched at the node, shown a page at a time.

import { get, post } from "./api.js";
import { ask, element, fill, keyed, name, text, visible } from "./dom.js";
import { at, bytes, count, duration, since, time } from "./format.js";

const PAGE = 50;
const MOST = 1000;
const TYPING = 250; // milliseconds without a key before the node is asked
const FRESH = 4000; // milliseconds between two looks at a table that changes

/** A tab with a search, a table below it and a button for more. */
export class Table {
  /**
   * `columns`: [title, class, fill(cell, row)]; `inputs`: [parameter, label, placeholder]; `key` of a row; `live`:
   * looked at again by itself while it shows its first page; `nothing` is said when a search finds nothing, `none` when
   * there is nothing to search in.
   */
  constructor({ path, inputs, columns, key, live = false, cursor = "cursor", caption, nothing, none = nothing }) {
    Object.assign(this, { path, columns, key, live, cursor, nothing, none });
    this.asked = 0;
    this.next = null;
    this.rows = [];
    this.fields = inputs.map(([parameter, label, placeholder]) =>
      element("input", { type: "search", name: parameter, "aria-label": label, placeholder, autocomplete: "off", spellcheck: "false" }),
    );
    this.count = element("span", { class: "side", role: "status" });
    this.problem = element("p", { class: "refused", role: "alert" });
    this.body = element("tbody");
    this.empty = element("p", { class: "nothing", hidden: true });
    this.table = element(
      "div",
      { class: "scroll tall", role: "region", "aria-label": caption, tabindex: "0" },
      element("table", {}, element("thead", {}, element("tr", {}, columns.map(([title, style]) => element("th", { scope: "col", class: style ?? null }, title || element("span", { class: "unseen" }, "Action"))))), this.body),
    );
    this.button = element("button", { type: "button", onclick: () => this.more() }, "Show more");
    this.rest = element("div", { class: "more", hidden: true }, this.button);
    this.root = element("div", {}, element("form", { class: "bar", role: "search", onsubmit: (event) => this.submit(event) }, this.fields, element("button", { type: "submit" }, "Search"), this.count), this.problem, this.table, this.empty, this.rest);
    let wait = 0;
    for (const field of this.fields) {
      field.addEventListener("input", () => {
        clearTimeout(wait);
        wait = setTimeout(() => this.look(), TYPING);
      });
    }
  }

  opened() {
    this.look();
    if (this.live) this.timer = setInterval(() => document.hidden || this.rows.length > PAGE || this.look(true), FRESH);
  }

  closed() {
    clearInterval(this.timer);
  }

  submit(event) {
    event.preventDefault();
    this.look();
  }

  query() {
    return { limit: PAGE, ...Object.fromEntries(this.fields.map((field) => [field.name, field.value.trim()])) };
  }

  async look(again = false) {
    const page = await this.ask(this.query());
    if (!page) return;
    this.rows = page.items;
    this.searched = page.looked_at ?? 0;
    this.show(page);
    if (!again) this.table.scrollTop = 0;
  }

  async more() {
    this.button.disabled = true;
    const page = await this.ask({ ...this.query(), [this.cursor]: this.next });
    this.button.disabled = false;
    if (!page) return;
    this.rows = [...this.rows, ...page.items];
    this.searched += page.looked_at ?? 0;
    this.show(page);
  }

  /** The page, or nothing if it is refused or a later question was asked. */
  async ask(query) {
    const number = ++this.asked;
    try {
      const page = await get(this.path, query);
      if (number !== this.asked) return null;
      text(this.problem, "");
      return page;
    } catch (error) {
      if (number === this.asked) text(this.problem, visible(error.message));
      return null;
    }
  }

  show(page) {
    this.next = page.cursor;
    keyed(
      this.body,
      this.rows,
      this.key,
      () => element("tr", {}, this.columns.map(([, style]) => element("td", { class: style ?? null }))),
      (line, row) => this.columns.forEach(([, , put], index) => put(line.children[index], row)),
    );
    const full = this.rows.length >= MOST;
    this.empty.hidden = this.rows.length > 0 || this.next !== null;
    this.table.hidden = this.rows.length === 0;
    this.rest.hidden = this.next === null;
    this.button.hidden = full;
    text(this.button, this.rows.length ? "Show more" : "Search on");
    if (full && this.rest.lastElementChild === this.button) this.rest.append(" More than this is for a narrower search.");
    const searching = this.fields.some((field) => field.value.trim());
    text(this.empty, searching ? this.nothing : this.none);
    const shown = `${count(this.rows.length)}${this.next === null ? "" : "+"}`;
    text(this.count, page.total === undefined ? "" : searching ? `${shown} found among ${count(page.total)}` : `${shown} of ${count(page.total)}`);
  }
}

const put = (make) => (cell, row) => {
  const value = make(row);
  text(cell, value);
};

const named = (key) => (cell, row) => {
  const held = cell.firstElementChild;
  if (held && held.textContent === visible(row[key])) return;
  fill(cell, name(row[key]));
};

export function clients(write) {
  const columns = [
    ["Client", "wrap", named("client_id")],
    ["Address", "tight wide", put((row) => visible(row.peer))],
    ["MQTT", "tight wide", put((row) => row.version)],
    ["Connected", "tight", (cell, row) => {
      text(cell, row.connected ? `for ${since(row.since)}` : "away, session kept");
      cell.title = row.since ? `since ${at(row.since)}` : "";
    }],
    ["Filters", "right wide", put((row) => count(row.subscriptions))],
    ["In", "right", put((row) => count(row.messages_in))],
    ["Out", "right", put((row) => count(row.messages_out))],
  ];
  if (write) {
    columns.push(["", "right", (cell, row) => {
      if (!row.connected || cell.firstElementChild) return cell.firstElementChild && (cell.firstElementChild.hidden = !row.connected);
      cell.append(element("button", { type: "button", class: "small", "aria-label": `End the connection of ${visible(row.client_id)}`, onclick: () => kick(row.client_id) }, "End"));
    }]);
  }
  const table = new Table({
    path: "/api/clients", live: true, key: (row) => row.client_id, columns, caption: "Clients",
    inputs: [["q", "Client or address", "Client or address"]], nothing: "No such client.",
    none: "Nobody is connected.",
  });

  async function kick(client) {
    if (!(await ask(`End the connection of ${visible(client)}? It may come again.`, "End it"))) return;
    try {
      await post("/api/kick", { client_id: client });
      await table.look(true);
    } catch (error) {
      text(table.problem, visible(error.message));
    }
  }
  return table;
}

export const subscriptions = () =>
  new Table({
    path: "/api/subscriptions", key: (row) => `${row.source} ${row.filter}`, caption: "Subscriptions",
    inputs: [["q", "Filter or who has it", "Filter, client or neighbour"], ["topic", "Who gets a message on this topic", "Who gets a message on topic …"]],
    columns: [
      ["Filter", "wrap mono", named("filter")],
      ["QoS", "right", put((row) => row.qos)],
      ["Wanted by", "wrap", named("source")],
    ],
    nothing: "No such subscription.",
    none: "Nobody has subscribed to anything.",
  });

export const retained = () =>
  new Table({
    path: "/api/retained", key: (row) => row.topic, caption: "Retained messages",
    inputs: [["filter", "Topic filter", "Topic filter, as in plant/#"]],
    columns: [
      ["Topic", "wrap mono", named("topic")],
      ["Payload", "wrap mono", (cell, row) => text(cell, payload(row))],
      ["Size", "right wide", put((row) => bytes(row.size))],
      ["QoS", "right wide", put((row) => row.qos)],
      ["Age", "right", put((row) => since(row.since))],
      ["Entered at", "tight wide", put((row) => visible(row.origin))],
      ["Expires in", "right wide", put((row) => (row.expires_in === null ? "–" : duration(row.expires_in)))],
    ],
    nothing: "The node remembers no such retained message.",
    none: "The node remembers no retained message.",
  });

const SHOWN = 80;
function payload(row) {
  const raw = Uint8Array.from(atob(row.payload), (letter) => letter.charCodeAt(0));
  let found;
  try {
    found = new TextDecoder("utf-8", { fatal: true }).decode(raw, { stream: raw.length < row.size });
  } catch {
    return `${[...raw.slice(0, 16)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ")}${raw.length > 16 ? " …" : ""}`;
  }
  return visible(found.length > SHOWN || raw.length < row.size ? `${found.slice(0, SHOWN)}…` : found);
}

const GRADES = { error: "bad", warning: "warn", info: "soft" };

export const events = () =>
  new Table({
    path: "/api/history", cursor: "before", live: true, key: (row) => row.number, caption: "Events",
    inputs: [["q", "Words of an event", "Words of an event"]],
    columns: [
      ["Time", "tight", (cell, row) => {
        text(cell, time(row.time));
        cell.title = at(row.time);
      }],
      ["Level", "tight wide", (cell, row) => {
        cell.className = `tight wide ${GRADES[row.level] ?? "soft"}`;
        text(cell, row.level);
      }],
      ["Event", "wrap", (cell, row) => {
        cell.className = `wrap ${row.level === "info" ? "" : (GRADES[row.level] ?? "")}`;
        text(cell, row.event);
      }],
      ["About", "wrap soft", (cell, row) => {
        text(cell, Object.entries(row.fields).map(([key, value]) => `${key} ${visible(value)}`).join(" · "));
      }],
    ],
    nothing: "No such event.",
  });


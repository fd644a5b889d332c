// The overlay: each key with its neighbours in the rings, level by level.

import { get } from "./api.js";
import { element, fill, name, put, shown, text, visible } from "./dom.js";
import { count, plural } from "./format.js";

const PAGE = 20;

export class Overlay {
  constructor() {
    this.field = element("input", { type: "search", "aria-label": "Key", placeholder: "Key", autocomplete: "off", spellcheck: "false" });
    this.count = element("span", { class: "side", role: "status" });
    this.problem = element("p", { class: "refused", role: "alert" });
    this.list = element("div");
    this.button = element("button", { type: "button", onclick: () => this.look(this.next) }, "Show more");
    this.rest = element("div", { class: "more", hidden: true }, this.button);
    this.tables = element("div");
    this.root = element(
      "div",
      {},
      element("form", { class: "bar", role: "search", onsubmit: (event) => { event.preventDefault(); this.look(); } }, this.field, element("button", { type: "submit" }, "Search"), this.count),
      this.problem,
      this.list,
      this.rest,
      this.tables,
    );
  }

  opened() {
    this.look();
  }

  closed() {}

  async look(cursor = null) {
    let page;
    try {
      page = await get("/api/overlay", { q: this.field.value.trim(), limit: PAGE, cursor });
      text(this.problem, "");
    } catch (error) {
      text(this.problem, visible(error.message));
      return;
    }
    if (cursor === null) fill(this.list);
    put(this.list, page.items.map(ring));
    if (!this.list.firstElementChild) fill(this.list, element("p", { class: "nothing" }, "No such key at this node."));
    this.next = page.cursor;
    this.rest.hidden = page.cursor === null;
    const members = page.members === null ? "" : ` in an overlay of ${plural(page.members, "node")}`;
    text(this.count, `${plural(page.total, "key")} of this node${members}`);
    fill(
      this.tables,
      facts(page.facts),
      Object.entries(page.tables).map(([title, rows]) => table(title, rows)),
    );
  }
}

function facts(found) {
  const pairs = Object.entries(found);
  return pairs.length ? element("dl", { class: "facts" }, pairs.map(([key, value]) => element("div", {}, element("dt", {}, visible(key)), element("dd", {}, shown(value))))) : null;
}

/** Neighbours to the left and to the right of a key; the highest level, the fewest members, first. */
function ring(key) {
  const others = Object.entries(key.facts).map(([fact, value]) => `${visible(fact)} ${shown(value)}`);
  const levels = key.levels.map(([left, right], level) => [
    element("dt", {}, `level ${level}`),
    element("dd", { class: "left mono" }, left === null ? "–" : name(left)),
    element("dd", { class: "soft", "aria-label": "around the key" }, "◂ ▸"),
    element("dd", { class: "mono" }, right === null ? "–" : name(right)),
  ]);
  return element(
    "section",
    { class: "levels" },
    element("header", {}, element("h3", { class: "mono" }, name(key.key)), element("span", { class: "soft" }, [visible(key.status), ...others].join(" · "))),
    levels.length ? element("dl", { class: "ring" }, levels.reverse()) : null,
  );
}

function table(title, { total, items }) {
  if (!items.length) return null;
  const columns = Object.keys(items[0]);
  return element(
    "section",
    {},
    element("h3", { class: "bar" }, visible(title), element("span", { class: "side" }, items.length < total ? `${count(items.length)} of ${count(total)}` : "")),
    element(
      "div",
      { class: "scroll", role: "region", "aria-label": visible(title), tabindex: "0" },
      element(
        "table",
        {},
        element("thead", {}, element("tr", {}, columns.map((column) => element("th", { scope: "col" }, visible(column))))),
        element("tbody", {}, items.map((row) => element("tr", {}, columns.map((column) => element("td", { class: "wrap" }, shown(row[column] ?? null)))))),
      ),
    ),
  );
}

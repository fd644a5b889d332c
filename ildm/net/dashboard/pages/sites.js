// Sites and the links between them: a picture, and the neighbours as a table.

import { ask, attribute, element, find, keyed, name, text, visible } from "./dom.js";
import { bytes, count, milliseconds, plural, rate, since } from "./format.js";
import { post } from "./api.js";
import { Picture } from "./graph.js";

const SYMBOLS = { active: ["full", "good"], blocked: ["half", "soft"], connecting: ["", "warn"], duplicate: ["half", "soft"], down: ["", "bad"], refused: ["square", "bad"] };
const KEPT = 4;

let edges = [];
let gone = [];
let own = "";
let topology = "tree";
const before = new Map();
const picture = new Picture(find("graph"));

export function graph(told) {
  edges = told.edges;
  gone = told.gone;
  own = told.node;
  topology = told.topology;
}

const called = (row) => row.node_id || row.address;

/** Rates of a link over the last looks: [out, in], or null. */
function rates(row, moment) {
  const key = called(row);
  const looks = before.get(key) ?? [];
  const last = looks.at(-1);
  if (last && (row.transferred_out < last[1] || row.transferred_in < last[2])) looks.length = 0;
  if (!looks.length || moment > looks.at(-1)[0]) looks.push([moment, row.transferred_out, row.transferred_in]);
  if (looks.length > KEPT) looks.shift();
  before.set(key, looks);
  const passed = moment - looks[0][0];
  return passed > 0 ? [(row.transferred_out - looks[0][1]) / passed, (row.transferred_in - looks[0][2]) / passed] : null;
}

export function show(told, write) {
  find("sites").hidden = told.algorithm === null; // a node that only relays has no others
  if (told.algorithm === null) return;
  const rows = told.neighbors;
  const speeds = new Map(rows.map((row) => [called(row), rates(row, told.time)]));
  for (const key of before.keys()) if (!speeds.has(key)) before.delete(key);
  table(rows, speeds, write);
  const links = rows.map((row) => ({ far: called(row), state: row.state, rates: speeds.get(called(row)) }));
  const sites = picture.show(own, links, edges, gone);
  const more = told.neighbors_total - rows.length;
  text(
    find("sites-count"),
    `${plural(sites, "site")}${topology === "tree" ? "" : ", as far as this node has links"}${more > 0 ? `; ${count(more)} more neighbours are not shown` : ""}`,
  );
}

function table(rows, speeds, write) {
  find("no-neighbors").hidden = rows.length > 0;
  for (const each of document.querySelectorAll(".writing")) each.hidden = !write;
  keyed(
    find("neighbors"),
    rows,
    called,
    (row) =>
      element(
        "tr",
        {},
        element("td", { class: "wrap" }, name(called(row))),
        element("td", {}, element("span", { class: "state" }, element("span", { "aria-hidden": "true" }), element("span"))),
        element("td", { class: "tight wide" }),
        element("td", { class: "right tight wide" }),
        element("td", { class: "right" }),
        element("td", { class: "right" }),
        element("td", { class: "right" }, element("span"), element("span", { class: "wide" })),
        element("td", { class: "right wide" }),
        element("td", { class: "right wide" }),
        element(
          "td",
          { class: "right writing", hidden: !write },
          element("button", { type: "button", class: "small", "aria-label": `Remove ${visible(called(row))}`, title: `Remove ${visible(called(row))}`, onclick: () => remove(called(row)) }, element("span", { class: "wide" }, "Remove"), element("span", { class: "narrow" }, "✕")),
        ),
      ),
    (line, row) => {
      const [, state, length, trip, out, into, waiting, oldest, dropped] = line.children;
      const [shape, grade] = SYMBOLS[row.state] ?? ["", "soft"];
      attribute(state.firstElementChild, "class", `state ${grade}`);
      attribute(state.firstElementChild.firstElementChild, "class", `dot ${shape}`);
      text(state.firstElementChild.lastElementChild, row.on_demand ? `${row.state}, on demand` : row.state);
      const spoken = row.protocol === null ? "" : `, release ${visible(row.release ?? "0.2 or older")}, protocol ${row.protocol}`;
      attribute(line, "title", row.reason ? visible(row.reason) : row.address ? `at ${visible(row.address)}${spoken}` : null);
      const speed = speeds.get(called(row));
      text(length, since(row.since));
      text(trip, row.rtt === null ? "–" : milliseconds(row.rtt));
      text(out, rate(speed?.[0]));
      text(into, rate(speed?.[1]));
      text(waiting.firstElementChild, count(row.queued_messages));
      text(waiting.lastElementChild, row.queued_messages ? ` · ${bytes(row.queued_bytes)}` : "");
      text(oldest, since(row.oldest));
      text(dropped, count(row.dropped));
      attribute(dropped, "class", row.dropped ? "right wide bad" : "right wide");
    },
  );
}

async function remove(target) {
  const problem = find("neighbors-problem");
  text(problem, "");
  if (!(await ask(`Remove the neighbour ${visible(target)}, also for the next start? The link to it is closed.`, "Remove"))) return;
  try {
    await post("/api/neighbors/remove", { target });
  } catch (error) {
    if (error.status === 409 && (await ask(`${visible(error.message)}. Remove it all the same?`, "Throw away and remove"))) {
      try {
        await post("/api/neighbors/remove", { target, force: true });
      } catch (again) {
        text(problem, visible(again.message));
      }
    } else if (error.status !== 409) text(problem, visible(error.message));
  }
}

export function build() {
  const form = find("add-neighbor");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const problem = find("neighbors-problem");
    text(problem, "");
    try {
      await post("/api/neighbors", { address: find("address").value.trim() });
      form.reset();
    } catch (error) {
      text(problem, visible(error.message));
    }
  });
}

// What is wrong, then figures: rates, what waits, what was dropped.

import { chart, formats, History } from "./charts.js";
import { attribute, element, fill, find, keyed, name, text, visible } from "./dom.js";
import { at, bytes, count, duration, now, plural, rate, since } from "./format.js";

const RATES = [
  ["from clients", "messages_in", "from-clients"],
  ["to clients", "messages_out", "to-clients"],
  ["to other sites", "sent", "to-sites"],
  ["from other sites", "transferred_in", "from-sites"],
];
const KINDS = { broker: "local broker", neighbor: "link", site: "site", node: "this node", spool: "spool", state: "state", clock: "clocks", messages: "were" };
const PLACES = { link: "link", injection: "to the broker", spool: "spool", transfer: "not transferable" };
const SMOOTH = 3;

export const history = new History();
let hovered = null;

const values = {};
const ratesChart = lazy(() =>
  chart(find("rates-chart"), RATES.map(([, , colour]) => `--${colour}`), formats.rate, 4, (index) => {
    hovered = index;
    showRates();
  }),
);
const waitingChart = lazy(() => chart(find("waiting-chart"), ["--accent"], formats.bytes, 1000, () => {}));

function lazy(make) {
  let made = null;
  return (...given) => (made ??= make())(...given);
}

export function build() {
  fill(
    find("rates"),
    RATES.map(([words, column, colour]) =>
      element("div", {}, element("dt", {}, element("span", { class: `swatch c-${colour}` }), words), (values[column] = element("dd", {}, "–"))),
    ),
  );
  for (const [id, list] of [
    ["waiting", [["messages", "messages"], ["bytes", "bytes"], ["oldest", "oldest kept"], ["spool", "kept on disk"]]],
    ["dropped", [["total", "messages"], ["minute", "last minute"]]],
  ]) {
    fill(find(id), list.map(([key, words]) => element("div", {}, element("dt", {}, words), (values[`${id}-${key}`] = element("dd", {}, "–")))));
  }
}

export function show(told) {
  header(told);
  problems(told);
  facts(told);
  figures(told);
}

function header(told) {
  text(find("node"), visible(told.node_id));
  document.title = `${told.problems.length ? `(${told.problems.length}) ` : ""}${visible(told.node_id)} · ILDM`;
  const parts = [told.algorithm ? `algorithm ${told.algorithm}` : "relays only", ...told.filters.map((each) => `filter ${each}`), `ILDM ${told.version}`];
  text(find("about"), `${parts.join(" · ")} · up ${duration(told.uptime)}`);
  const bad = told.problems.filter((each) => each.grade === "bad").length;
  const grade = bad ? "bad" : told.problems.length ? "warn" : "good";
  const verdict = find("verdict");
  attribute(verdict, "class", `pill ${grade}`);
  text(verdict, told.problems.length ? plural(told.problems.length, "problem") : "all is well");
}

function problems(told) {
  const panel = find("problems");
  if (!told.problems.length) {
    if (panel.firstElementChild?.className !== "well") {
      fill(panel, element("p", { class: "well" }, element("span", { class: "dot full good", "aria-hidden": "true" }), element("span")));
    }
    const links = told.links.active + told.links.on_demand;
    text(
      panel.firstElementChild.lastElementChild,
      `Nothing is wrong: the broker is there${told.algorithm ? `, ${links ? plural(links, "link") : "no link"} ${links === 1 ? "is" : "are"} active` : ""}${told.links.blocked ? `, ${told.links.blocked} blocked as meant` : ""}.`,
    );
    return;
  }
  if (panel.firstElementChild?.tagName !== "UL") fill(panel, element("ul"));
  keyed(
    panel.firstElementChild,
    told.problems,
    (each) => `${each.kind} ${each.name} ${each.state}`,
    (each) =>
      element(
        "li",
        { class: each.grade },
        element("span", { class: `dot ${each.grade === "bad" ? "full" : "half"} ${each.grade}`, "aria-hidden": "true" }),
        name(each.name, { class: "name" }),
        element("span", { class: `what ${each.grade}` }, `${KINDS[each.kind] ?? each.kind} ${each.state}`),
        element("span", { class: "since" }),
        element("span", { class: "reason" }),
      ),
    (row, each) => {
      text(row.children[3], each.since === null ? "" : `for ${since(each.since)}`);
      attribute(row.children[3], "title", each.since === null ? null : `since ${at(each.since)}`);
      text(row.children[4], visible(each.reason ?? "no reason known"));
    },
  );
}

function facts(told) {
  const { links, broker, pair, spool } = told;
  const parts = [["active", "active"], ["blocked", "blocked"], ["down", "down"], ["refused", "refused"], ["on_demand", "on demand"]]
    .filter(([key]) => links[key])
    .map(([key, words]) => `${count(links[key])} ${words}`);
  const rows = [
    ["Clients", count(told.clients), told.persistent_sessions ? `${count(told.persistent_sessions)} sessions kept` : ""],
    ["Links", told.algorithm ? parts.join(", ") || "none" : "relays only", ""],
    ...(told.mixed_releases ? [["Releases", "mixed", told.mixed_releases, "widest"]] : []),
    ...(pair ? [["Pair", `member ${pair.member}`, pair.state === "owner" ? `owns the site, epoch ${pair.epoch}` : pair.state, "widest"]] : []),
    ["Local broker", broker.address, broker.connected ? `${broker.protocol ? `MQTT ${broker.protocol}, ` : ""}for ${since(broker.since)}` : "down", "widest"],
    ["Clients connect to", told.listen, "", "widest"],
    ["Retained", count(told.retained), ""],
    ["Spool", spool.mode === "off" ? "off" : bytes(spool.disk_bytes), spool.mode === "off" ? "" : `of ${bytes(spool.limit)}`],
  ];
  keyed(
    find("facts"),
    rows,
    ([title]) => title,
    ([title, , , width]) => element("div", { class: width ?? null }, element("dt", {}, title), element("dd", {}, element("span"), " ", element("small"))),
    (part, [, value, note]) => {
      text(part.lastElementChild.firstElementChild, visible(value));
      text(part.lastElementChild.lastElementChild, visible(note));
    },
  );
}

function figures(told) {
  const times = history.times();
  if (times.length > 1) {
    ratesChart([times, ...RATES.map(([, column]) => history.rates(column))]);
    waitingChart([times, history.level("waiting_bytes")]);
  }
  showRates();
  const { injection, links, dropped } = told.queues;
  text(values["waiting-messages"], count(injection.messages + links.messages));
  text(values["waiting-bytes"], bytes(injection.bytes + links.bytes));
  text(values["waiting-oldest"], told.spool.oldest === null || told.spool.oldest === undefined ? "–" : duration(now() - told.spool.oldest));
  text(values["waiting-spool"], told.spool.mode === "off" ? "off" : count(told.spool.messages));
  const lately = Math.max(0, history.grown("dropped", 60));
  text(values["dropped-total"], count(dropped));
  text(values["dropped-minute"], lately ? `+${count(lately)}` : "0");
  attribute(values["dropped-minute"], "class", lately ? "bad" : null);
  const list = find("drops");
  if (!told.drops.length) {
    if (list.held?.size !== 0 || !list.firstElementChild) {
      list.held = new Map();
      fill(list, element("li", { class: "soft" }, "Nothing that was to cross was dropped."));
    }
    return;
  }
  if (!list.held?.size) fill(list);
  keyed(
    list,
    told.drops.slice(0, 6),
    (each) => `${each.where} ${each.reason} ${each.qos}`,
    (each) => element("li", {}, element("span", {}, `${each.reason.replaceAll("_", " ")}${each.qos ? `, QoS ${each.qos}` : ""} `, element("span", { class: "soft" }, PLACES[each.where] ?? each.where)), element("b")),
    (row, each) => text(row.lastElementChild, count(each.messages)),
  );
}

function showRates() {
  for (const [, column] of RATES) {
    const all = history.rates(column);
    let shown = hovered === null ? undefined : all[hovered];
    if (shown === undefined) {
      const last = all.slice(-SMOOTH).filter((each) => each !== null);
      shown = last.length ? last.reduce((sum, each) => sum + each, 0) / last.length : null;
    }
    text(values[column], rate(shown));
  }
}

// The way of a message: asked for at the node, then looked at until it is there.

import { get, post } from "./api.js";
import { element, fill, name, shown, text, visible } from "./dom.js";
import { milliseconds, plural } from "./format.js";

const AGAIN = 250;

export class Trace {
  constructor() {
    this.field = element("input", { name: "topic", "aria-label": "Topic", placeholder: "Topic, as in plant/1/temperature", autocomplete: "off", spellcheck: "false", required: true });
    this.button = element("button", { type: "submit", class: "main" }, "Trace");
    this.count = element("span", { class: "side", role: "status" });
    this.problem = element("p", { class: "refused", role: "alert" });
    this.result = element("div", { class: "hops" }, element("p", { class: "soft" }, "Which sites a message on this topic would reach from here, by which way, and in what time. A probe is sent, no message."));
    this.root = element("div", {}, element("form", { class: "bar", onsubmit: (event) => this.begin(event) }, this.field, this.button, this.count), this.problem, this.result);
  }

  opened() {}

  closed() {}

  async begin(event) {
    event.preventDefault();
    this.button.disabled = true;
    text(this.problem, "");
    text(this.count, "on its way …");
    try {
      let trace = await post("/api/traces", { topic: this.field.value });
      while (trace.state === "running") {
        await new Promise((then) => setTimeout(then, AGAIN));
        trace = await get(`/api/traces/${trace.id}`);
      }
      text(this.count, "");
      if (trace.state === "failed") text(this.problem, visible(trace.error));
      else this.show(trace.result);
    } catch (error) {
      text(this.count, "");
      text(this.problem, visible(error.message));
    }
    this.button.disabled = false;
  }

  show(found) {
    if (found.hops) {
      text(this.count, plural(found.hops.length - 1, "other site"));
      fill(this.result, nested(found.hops));
    } else {
      text(this.count, `${plural(found.nodes, "node")} reached by ${plural(found.messages, "message")}${found.complete ? "" : "; not all have answered"}`);
      const reaching = found.trees.filter((tree) => tree.tree);
      fill(
        this.result,
        reaching.map((tree) => [
          element("h3", {}, visible(tree.name), " ", element("span", { class: "soft" }, facts(tree))),
          element("ol", {}, branch(tree.tree)),
        ]),
        verdicts(found.trees.filter((tree) => !tree.tree), reaching.length > 0),
      );
    }
  }
}

const facts = (tree) => Object.entries(tree.facts).map(([key, value]) => `${visible(key)} ${shown(value)}`).join(" · ");

/** One line for all trees alike that reach nobody: one of them says nothing of the message. */
function verdicts(trees, others) {
  if (!trees.length && !others) return [element("p", { class: "soft" }, "Such a message goes nowhere.")];
  const names = new Map();
  for (const tree of trees) names.set(facts(tree), [...(names.get(facts(tree)) ?? []), visible(tree.name)]);
  return [...names].map(([why, which]) =>
    element("p", { class: "soft" }, `${others ? "Nobody else" : "Nobody"} is reached by ${which.join(", ")}${why ? ` (${why})` : ""}.`),
  );
}

function nested(hops) {
  const root = element("ol");
  const way = [root];
  for (const hop of hops) {
    const notes = [
      hop.seconds === null ? "" : hop.depth ? `after ${milliseconds(hop.seconds)}` : "here",
      hop.queued ? `${plural(hop.queued, "message")} wait for this link` : "",
      hop.injecting ? `${plural(hop.injecting, "message")} wait for its broker` : "",
      hop.note,
    ].filter(Boolean);
    const below = element("ol");
    way.length = hop.depth + 1;
    way.at(-1).append(element("li", {}, name(hop.node, { class: "name" }), " ", element("span", { class: "soft" }, visible(notes.join(" · "))), below));
    way.push(below);
  }
  return root;
}

function branch(node) {
  return element(
    "li",
    {},
    name(node.node),
    " ",
    element("span", { class: "soft mono" }, node.keys.length ? node.keys.map(visible).join(", ") : "passes it on"),
    node.children.length ? element("ol", {}, node.children.map(branch)) : null,
  );
}

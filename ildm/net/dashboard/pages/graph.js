// The picture of the sites: forces find the places, in small steps so that the page stays fluid.

import { attribute, text, visible } from "./dom.js";
import { rate } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const STEP = 6; // milliseconds of one frame that forces may take
const NAMED = 40; // with more sites only neighbours, and those with a problem, have their names beside them
const RATED = 12; // with more links rates are in the table alone
const HALF = 44; // pixels, of the width of such a rate
const WORST = ["down", "refused", "connecting", "blocked", "duplicate", "active", "far"];

function svg(tag, ...classes) {
  const made = document.createElementNS(SVG, tag);
  if (classes.length) made.setAttribute("class", classes.join(" "));
  return made;
}

const classOf = (state) => ({ refused: "down", duplicate: "blocked" })[state] ?? state;
const short = (label) => (label.length > 22 ? `${label.slice(0, 21)}…` : label);

export class Picture {
  constructor(root) {
    this.root = root;
    this.lines = svg("g");
    this.dots = svg("g");
    this.words = svg("g");
    root.append(this.lines, this.dots, this.words);
    this.nodes = new Map();
    this.links = new Map();
    this.shape = "";
    this.frame = 0;
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    new ResizeObserver(() => this.place()).observe(root);
  }

  /**
   * `links` are this node's own: peer, state, rates; `edges` are all of the tree; `gone` are sites that cannot be
   * reached any more, each with the one that it was linked with. Gives the number of sites.
   */
  show(own, links, edges, gone) {
    const found = new Map();
    const add = (a, b, state, rates) => {
      const key = a < b ? `${a}\n${b}` : `${b}\n${a}`;
      const held = found.get(key);
      if (!held || WORST.indexOf(state) < WORST.indexOf(held.state)) found.set(key, { key, a, b, state, rates });
    };
    for (const link of links) add(own, link.far, link.state, link.rates);
    for (const [a, b, used] of edges) if (a !== own && b !== own) add(a, b, used ? "far" : "blocked", null);
    for (const [site, beside] of gone) add(beside, site, "down", null);
    const states = new Map([[own, "own"]]);
    for (const { a, b, state } of found.values()) {
      for (const site of [a, b]) if (!states.has(site)) states.set(site, "");
      if (a === own) states.set(b, classOf(state));
      else if (b === own) states.set(a, classOf(state));
    }
    for (const [site] of gone) states.set(site, "down");
    this.own = own;
    this.many = states.size > NAMED;
    this.rated = links.length <= RATED;
    this.sync(states, found);
    const shape = JSON.stringify([[...states.keys()].sort(), [...found.keys()].sort()]);
    if (shape !== this.shape) {
      this.shape = shape;
      this.settle();
    }
    const broken = [...found.values()].filter(({ state }) => classOf(state) === "down").length;
    attribute(this.root, "aria-label", `Graph of ${states.size} sites and ${found.size} links, ${broken} of them down`);
    return states.size;
  }

  sync(states, found) {
    for (const [site, node] of this.nodes) {
      if (!states.has(site)) {
        node.dot.remove();
        this.nodes.delete(site);
      }
    }
    for (const [site, state] of states) {
      let node = this.nodes.get(site);
      if (!node) {
        const dot = svg("g");
        const title = svg("title");
        text(title, visible(site));
        dot.append(title, svg("circle"), svg("text"));
        this.dots.append(dot);
        node = { id: site, dot };
        this.nodes.set(site, node);
      }
      attribute(node.dot, "class", state);
      attribute(node.dot.children[1], "r", state === "own" ? "8" : this.many ? "4.5" : "7");
      text(node.dot.children[2], !this.many || state === "own" || state === "down" ? short(visible(site)) : "");
    }
    for (const [key, link] of this.links) {
      if (!found.has(key)) {
        link.line.remove();
        link.word.remove();
        this.links.delete(key);
      }
    }
    for (const [key, told] of found) {
      let link = this.links.get(key);
      if (!link) {
        link = { key, line: svg("line"), word: svg("text", "rate") };
        this.lines.append(link.line);
        this.words.append(link.word);
        this.links.set(key, link);
      }
      link.source = this.nodes.get(told.a);
      link.target = this.nodes.get(told.b);
      link.rates = told.rates;
      link.state = told.state;
      attribute(link.line, "class", classOf(told.state));
    }
    this.rates();
  }

  settle() {
    const nodes = [...this.nodes.values()];
    const links = [...this.links.values()].map(({ source, target }) => ({ source, target }));
    for (const node of nodes) {
      node.fx = node.id === this.own ? 0 : null;
      node.fy = node.id === this.own ? 0 : null;
    }
    const apart = nodes.length > NAMED ? 26 : 90;
    const simulation = d3
      .forceSimulation(nodes)
      .force("link", d3.forceLink(links).distance(apart).strength(0.7))
      .force("apart", d3.forceManyBody().strength(nodes.length > NAMED ? -60 : -420).distanceMax(600))
      .force("x", d3.forceX().strength(0.02))
      .force("y", d3.forceY().strength(nodes.length > NAMED ? 0.06 : 0.16))
      .alphaDecay(0.035)
      .stop();
    cancelAnimationFrame(this.frame);
    const step = () => {
      const begun = performance.now();
      while (simulation.alpha() > 0.01 && performance.now() - begun < STEP) simulation.tick();
      const more = simulation.alpha() > 0.01;
      if (!more || !this.calm.matches) this.place();
      if (more) this.frame = requestAnimationFrame(step);
    };
    step();
  }

  /** Scales what the forces have found to the room there is. */
  place() {
    const width = this.root.clientWidth;
    const height = this.root.clientHeight;
    const nodes = [...this.nodes.values()].filter((node) => node.x !== undefined);
    if (!width || !height || !nodes.length) return;
    attribute(this.root, "viewBox", `0 0 ${width} ${height}`);
    const xs = nodes.map((node) => node.x);
    const ys = nodes.map((node) => node.y);
    const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const [sideways, above] = [Math.min(80, width / 5), 34];
    const scale = Math.min(2.2, (width - 2 * sideways) / Math.max(1, right - left), (height - 2 * above) / Math.max(1, bottom - top));
    for (const node of nodes) {
      node.sx = width / 2 + (node.x - (left + right) / 2) * scale;
      node.sy = height / 2 + (node.y - (top + bottom) / 2) * scale;
      const [, circle, word] = node.dot.children;
      attribute(circle, "cx", node.sx.toFixed(1));
      attribute(circle, "cy", node.sy.toFixed(1));
      attribute(word, "x", node.sx.toFixed(1));
      attribute(word, "y", (node.sy + (node.sy > height / 2 ? 21 : -13)).toFixed(1));
    }
    for (const { line, source, target } of this.links.values()) {
      if (source.sx === undefined || target.sx === undefined) continue;
      attribute(line, "x1", source.sx.toFixed(1));
      attribute(line, "y1", source.sy.toFixed(1));
      attribute(line, "x2", target.sx.toFixed(1));
      attribute(line, "y2", target.sy.toFixed(1));
    }
    this.rates();
  }

  rates() {
    for (const { word, source, target, rates, state } of this.links.values()) {
      const shown = this.rated && !this.many && rates && state === "active" && source.sx !== undefined && target.sx !== undefined;
      text(word, shown ? `${arrow(source, target)} out ${rate(rates[0])} · in ${rate(rates[1])} ${arrow(target, source)}` : "");
      if (!shown) continue;
      const [x, y] = [target.sx - source.sx, target.sy - source.sy];
      const length = Math.max(1, Math.hypot(x, y));
      const beside = (8 + (HALF * Math.abs(y)) / length) / length;
      const up = x > 0 ? -1 : 1; // to the side of the line that is above it
      attribute(word, "x", ((source.sx + target.sx) / 2 - up * y * beside).toFixed(1));
      attribute(word, "y", ((source.sy + target.sy) / 2 + up * x * beside + 4).toFixed(1));
    }
  }
}

/** From one site to another, as the eye goes. */
function arrow(from, to) {
  const [x, y] = [to.sx - from.sx, to.sy - from.sy];
  return Math.abs(x) > Math.abs(y) ? (x > 0 ? "→" : "←") : y > 0 ? "↓" : "↑";
}

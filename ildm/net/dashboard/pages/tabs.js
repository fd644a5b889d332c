// Tabs, as ARIA's authoring practices have them: arrows move, the chosen one is in the address.

import { attribute, element, find } from "./dom.js";

export class Tabs {
  /** `tabs`: [name, title, what has `root`, `opened()` and `closed()`]. */
  constructor(tabs) {
    this.tabs = tabs.map(([id, title, content]) => {
      const button = element("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `panel-${id}`, "aria-selected": "false", tabindex: "-1", onclick: () => this.choose(id) }, title);
      const panel = element("div", { role: "tabpanel", id: `panel-${id}`, "aria-labelledby": `tab-${id}`, hidden: true }, content.root);
      return { id, button, panel, content };
    });
    find("tabs").replaceChildren(...this.tabs.map(({ button }) => button));
    find("tab-panels").replaceChildren(...this.tabs.map(({ panel }) => panel));
    find("tabs").onkeydown = (event) => this.key(event);
    window.onhashchange = () => this.choose(location.hash.slice(1));
    this.choose(location.hash.slice(1));
  }

  choose(id) {
    const chosen = this.tabs.find((tab) => tab.id === id && !tab.button.hidden) ?? this.current ?? this.tabs[0];
    if (chosen === this.current) return;
    this.close();
    this.current = chosen;
    for (const tab of this.tabs) {
      attribute(tab.button, "aria-selected", String(tab === chosen));
      attribute(tab.button, "tabindex", tab === chosen ? "0" : "-1");
      tab.panel.hidden = tab !== chosen;
    }
    if (location.hash.slice(1) !== chosen.id) history.replaceState(null, "", `#${chosen.id}`);
    chosen.content.opened();
  }

  close() {
    this.current?.content.closed();
    this.current = null;
  }

  /** Nothing is asked any more. */
  end() {
    this.close();
    window.onhashchange = null;
  }

  key(event) {
    const shown = this.tabs.filter((tab) => !tab.button.hidden);
    const here = shown.indexOf(this.current);
    const to = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: shown.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = shown[(to + shown.length) % shown.length];
    this.choose(next.id);
    next.button.focus();
  }
}

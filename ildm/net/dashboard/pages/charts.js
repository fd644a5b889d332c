// Charts over the last ten minutes.

import { bytes, rate } from "./format.js";

const HEIGHT = 146;
const SHOWN = 600;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A chart in `parent`; `series`: names of colours; it reaches up to `least` at least; `hover` gets the index under
 * the pointer, or null. */
export function chart(parent, series, format, least, hover) {
  let plot = null;
  let data = [[], ...series.map(() => [])];

  const draw = () => {
    plot?.destroy();
    const axis = { stroke: colour("--soft"), font: "11px system-ui", ticks: { show: false } };
    const grid = { stroke: colour("--line"), width: 1 };
    plot = new uPlot(
      {
        width: Math.max(80, parent.clientWidth - 12),
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, points: { size: 5 }, sync: { key: "time" } },
        scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.12, least)] } },
        axes: [
          { ...axis, grid: { show: false }, space: 70, size: 24, values: (_, ticks) => ticks.map(minutes) },
          { ...axis, grid, size: 52, space: 34, values: (_, ticks) => ticks.map((tick) => format(tick)) },
        ],
        series: [{}, ...series.map((name) => ({ stroke: colour(name), width: 1.6, points: { show: false }, spanGaps: false }))],
        hooks: { setCursor: [(self) => hover(self.cursor.idx ?? null)] },
      },
      data,
      parent,
    );
  };

  new ResizeObserver(() => {
    if (plot && parent.clientWidth) plot.setSize({ width: Math.max(80, parent.clientWidth - 12), height: HEIGHT });
  }).observe(parent);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  return (fresh) => {
    data = fresh;
    if (!plot) draw();
    else plot.setData(data);
  };
}

function minutes(seconds) {
  const moment = new Date(seconds * 1000);
  const two = (number) => String(number).padStart(2, "0");
  return `${two(moment.getHours())}:${two(moment.getMinutes())}${moment.getSeconds() ? `:${two(moment.getSeconds())}` : ""}`;
}

/** Samples of the node: counters become rates, the newest last. */
export class History {
  constructor() {
    this.columns = [];
    this.rows = [];
  }

  whole(columns, rows) {
    this.columns = columns;
    this.rows = rows;
  }

  add(row) {
    if (this.rows.length && row[0] <= this.rows.at(-1)[0]) return;
    this.rows.push(row);
    if (this.rows.length > SHOWN) this.rows.shift();
  }

  times() {
    return this.rows.map((row) => row[0]);
  }

  level(name) {
    const index = this.columns.indexOf(name);
    return this.rows.map((row) => row[index]);
  }

  /** Grown since so many seconds. */
  grown(name, seconds) {
    const index = this.columns.indexOf(name);
    const last = this.rows.at(-1);
    if (!last) return 0;
    const first = this.rows.find((row) => row[0] >= last[0] - seconds);
    return last[index] - first[index];
  }

  /** A second; the node has started anew where a counter has shrunk. */
  rates(name) {
    const index = this.columns.indexOf(name);
    return this.rows.map((row, number) => {
      const before = this.rows[number - 1];
      if (!before || row[0] <= before[0] || row[index] < before[index]) return null;
      return (row[index] - before[index]) / (row[0] - before[0]);
    });
  }
}

export const formats = { rate, bytes };

"""The pictures: how long it takes to recover, latency with and without faults, one run as it went."""

from __future__ import annotations

from math import exp, log
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ildm_bench.chaos.outcome import STEP, Course, Durations, Outcome, merged
from ildm_bench.chaos.report.tables import NO_FAULT, Key, together
from ildm_bench.report import numbers
from ildm_bench.report.plots_run import share_axes, time_scale
from ildm_bench.report.style import ALARM, INK, MUTED, look, new_figure, plain_grid, short
from ildm_bench.report.svg import Picture

MOST_COURSES = 4
MOST_ROWS = 40
_DASHED: Any = (0, (3, 1.2))


def recovery(outcome: Outcome) -> Picture | None:
    """Median, 95 % and longest time to recover, by kind of fault; None without any."""
    found = _live(together(outcome, "recovery"))
    if not found:
        return None
    if len(found) > MOST_ROWS:
        few: dict[Key, Durations] = {}
        for (other, name, engine, fault), each in found.items():
            key = (other, name if other else "all algorithms", engine, fault)
            few[key] = merged(few.get(key), each)
        found = few
    names = list(dict.fromkeys(name for _, name, _, _ in found))
    rows = sorted(found.items(), key=lambda item: (item[0][3], item[0]))
    figure = new_figure(1.4 + 0.21 * len(rows))
    axes = figure.subplots()
    for place, ((_, name, _, _), each) in enumerate(rows):
        style = look(names.index(name))
        median, high = each.quantile(0.5), each.quantile(0.95)
        axes.plot([median, each.longest], [place] * 2, color=style.color, linewidth=1.0, alpha=0.6)
        axes.plot([median, high], [place] * 2, color=style.color, linewidth=4.0, solid_capstyle="butt")
        axes.plot([median], [place], color=style.color, marker=style.marker, markersize=5.5)
        axes.plot([each.longest], [place], color=style.color, marker="|", markersize=7)
    labels, before = [], ""
    for (_, name, _, fault), _ in rows:
        label = short(name, 20)
        labels.append(f"{fault}:  {label}" if fault != before else label)
        before = fault
    axes.set_yticks(range(len(rows)), labels)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xscale("log")
    shortest = min(each.quantile(0.5) for _, each in rows)
    axes.set_xlim(shortest / 1.3, max(max(each.longest for _, each in rows) * 1.2, shortest * 4))
    _seconds(axes, "x")
    plain_grid(axes, "x")
    axes.tick_params(axis="y", length=0)
    axes.set_title("Time to recover, from the end of a fault")
    axes.set_xlabel("To the first message across, of each subscriber that the fault had cut off")
    handles = [
        Line2D([], [], color=look(n).color, marker=look(n).marker, linewidth=3) for n in range(len(names))
    ]
    figure.legend(handles, [short(name, 30) for name in names], loc="outside lower center", ncols=4)
    return Picture(
        "recovery",
        "Time to recover",
        "; ".join(
            f"{fault}, {name}: median {_told(each, 0.5)}, longest {numbers.duration(each.longest * 1e6)}"
            for (_, name, _, fault), each in rows
        ),
        "Marker: median; thick line: up to 95 %; thin line: up to the longest. A fault that ends a process "
        "is over when it has been started again; what it does until it is back counts.",
        figure,
    )


def latency(outcome: Outcome) -> Picture | None:
    """Cumulative distributions with and without faults, what took longest at the right; None without any."""
    found = _live(together(outcome, "latency"))
    if not found:
        return None
    names = list(dict.fromkeys(name for _, name, _, _ in found))
    figure = new_figure(3.5)
    left, right = figure.subplots(1, 2)
    lowest = smallest = float("inf")
    for (_, name, _, fault), each in found.items():
        style = look(names.index(name))
        kind: dict[str, Any] = {
            "color": style.color,
            "linestyle": "-" if fault == NO_FAULT else (0, (3, 1.2)),
        }
        values, share = cumulative(each)
        left.plot(values, share * 100, drawstyle="steps-post", linewidth=1.5, **kind)
        rest = (1 - share) * 100
        seen = rest > 50 / each.messages
        right.plot(values[seen], rest[seen], drawstyle="steps-post", linewidth=1.5, **kind)
        lowest, smallest = min(lowest, values[0]), min(smallest, 100 / each.messages)
    share_axes(left, right, "Latency", smallest)
    highest = max(each.longest for each in found.values()) * 1e6
    for axes in (left, right):
        axes.set_xlim(lowest / 1.15, highest * 1.05)
        time_scale(axes, lowest)
        axes.set_xlabel("From publisher to a subscriber at another site")
    handles = [Line2D([], [], color=look(n).color, linewidth=2.5) for n in range(len(names))]
    handles += [Line2D([], [], color=MUTED, linestyle=line) for line in ("-", _DASHED)]
    labels = [*(short(name, 24) for name in names), "runs without a fault", "runs with faults"]
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return Picture(
        "latency",
        "Latency with and without faults",
        "; ".join(
            f"{name}, {'without' if fault == NO_FAULT else 'with'} faults: "
            f"median {_told(each, 0.5)}, 99 % {_told(each, 0.99)}"
            for (_, name, _, fault), each in found.items()
        ),
        "Messages of all QoS that crossed, first receipts. Under faults the tail is what waited for the "
        "fault to end; without, it is the system itself.",
        figure,
    )


def _live(found: dict[Key, Durations]) -> dict[Key, Durations]:
    """Real time alone, where there is any: in virtual time everything but waiting takes none."""
    return {key: each for key, each in found.items() if key[2] == "live"} or found


def _told(each: Durations, share: float) -> str:
    return numbers.duration(each.quantile(share) * 1e6)


def cumulative(each: Durations) -> tuple[Any, Any]:
    """Upper ends of buckets in microseconds, and the share that took at most as long."""
    buckets = sorted(each.counts)
    upper = np.array([min(exp((bucket + 1) * log(STEP)), each.longest) for bucket in buckets]) * 1e6
    share = np.cumsum([each.counts[bucket] for bucket in buckets]) / each.messages
    return upper, share


def courses(outcome: Outcome) -> Picture | None:
    """Latency over time in one live run each, faults shaded; None without any."""
    ours = {each.setting.name for each in outcome.counted if each.setting.target == "ildm"}
    drawn = sorted((c for c in outcome.courses if c.moments), key=lambda course: -len(course.troubles))
    others = [course for course in drawn if course.name not in ours][:1]
    shown = [course for course in drawn if course.name in ours][: MOST_COURSES - len(others)] + others
    if not shown:
        return None
    figure = new_figure(0.9 + 1.75 * len(shown))
    grid = figure.subplots(len(shown), 1, squeeze=False)[:, 0]
    for axes, course in zip(grid, shown, strict=True):
        _course(axes, course)
    lows = [moment.p50 for course in shown for moment in course.moments]
    highs = [moment.longest for course in shown for moment in course.moments]
    for axes in grid:
        axes.set_ylim(min(lows) / 1.5, max(highs) * 6)
    grid[-1].set_xlabel("Seconds since the run began")
    handles = [
        Line2D([], [], color=look(0).color, marker="o", markersize=2.5, linewidth=1.2),
        Line2D([], [], color=MUTED, linewidth=0.8),
        Patch(facecolor=ALARM, alpha=0.18),
    ]
    figure.legend(handles, ["median", "longest", "fault"], loc="outside lower center", ncols=3)
    return Picture(
        "courses",
        "Runs as they went",
        "; ".join(f"{course.name} over {course.broker}, run {course.run}" for course in shown),
        "Latency of what was received in each stretch of time, from publisher to subscribers at other sites. "
        "Each is the live run with the most faults of its algorithm and make of broker; lines break where "
        "nothing came.",
        figure,
    )


def _course(axes: Axes, course: Course) -> None:
    times = np.array([moment.t for moment in course.moments])
    longest = np.array([moment.longest for moment in course.moments])
    median = np.array([moment.p50 for moment in course.moments])
    # No line where nothing came.
    gaps = np.flatnonzero(np.diff(times) > 1.5 * np.min(np.diff(times), initial=np.inf)) + 1
    times, longest, median = (np.insert(values, gaps, np.nan) for values in (times, longest, median))
    axes.plot(times, longest, color=MUTED, linewidth=0.8)
    axes.plot(times, median, color=look(0).color, marker="o", markersize=2.5, linewidth=1.2)
    end = max([times[-1], *(trouble.begins for trouble in course.troubles)])
    axes.set_yscale("log")
    _seconds(axes, "y")
    axes.set_xlim(0, end * 1.02 + 0.1)
    for place, trouble in enumerate(course.troubles):
        ends = trouble.ends if trouble.ends is not None else end
        axes.axvspan(
            trouble.begins, max(ends, trouble.begins + end / 400), color=ALARM, alpha=0.18, linewidth=0
        )
        axes.annotate(
            f"{trouble.kind} {trouble.target}",
            (trouble.begins, 0.97 - 0.11 * (place % 3)),
            xycoords=("data", "axes fraction"),
            xytext=(2, 0),
            textcoords="offset points",
            fontsize=6.5,
            va="top",
            color=INK,
        )
    title = f"{course.name} over {course.broker}, run {course.run}" if course.broker else course.name
    axes.set_title(short(title, 70))
    axes.set_ylabel("Latency")


def _seconds(axes: Axes, which: str) -> None:
    axis, (low, high) = (axes.xaxis, axes.get_xlim()) if which == "x" else (axes.yaxis, axes.get_ylim())
    few = high < 30 * low
    axis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=9))
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: numbers.duration(value * 1e6)))

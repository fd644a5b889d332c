"""The pictures of one run: throughput over time, latency, use of resources, the search for the limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from ildm_bench.measure.figures import LIMIT_RATIO, Histogram, Limit, Point, RunFigures
from ildm_bench.report import numbers
from ildm_bench.report.distribution import cumulative
from ildm_bench.report.entries import ROLES, in_order, latency_words
from ildm_bench.report.style import (
    ALARM,
    INK,
    MUTED,
    Look,
    look,
    new_figure,
    plain_grid,
    role_look,
    short,
)
from ildm_bench.report.svg import Picture

MOST_PROCESSES = 40
Curve = tuple[str, Look, Histogram]


def throughput(figures: RunFigures) -> Picture | None:
    """Egress with what was due, and ingress, in each second of the run; None without seconds."""
    if not figures.per_second:
        return None
    seconds = sorted(figures.per_second, key=lambda second: second.second)
    times = [second.second for second in seconds]
    figure = new_figure(4.3)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    due = [second.ingress * figures.sp_ratio for second in seconds]
    egress = [second.egress for second in seconds]
    ingress = [second.ingress for second in seconds]
    factor, unit = numbers.rate_axis(max([1, *due, *egress]))
    top.plot(times, [value / factor for value in due], color=MUTED, linestyle=(0, (2, 1.5)), linewidth=1.2)
    top.plot(times, [value / factor for value in egress], color=look(0).color)
    _mean(top, figures.egress, factor)
    top.set_title("Throughput in each second of the run")
    top.set_ylabel(f"Egress\n{unit}")
    handles = [
        Line2D([], [], color=look(0).color),
        Line2D([], [], color=MUTED, linestyle=(0, (2, 1.5)), linewidth=1.2),
    ]
    names = ["received", f"due: ingress {numbers.TIMES} sp-ratio"]
    top.legend(handles, names, loc="lower center", ncols=2)
    factor, unit = numbers.rate_axis(max([1, *ingress]))
    bottom.plot(times, [value / factor for value in ingress], color=look(5).color)
    _mean(bottom, figures.ingress, factor)
    bottom.set_ylabel(f"Ingress\n{unit}")
    bottom.set_xlabel("Seconds since the start of the load")
    for axes in (top, bottom):
        axes.set_ylim(0, axes.get_ylim()[1] * 1.08)
        axes.set_xlim(times[0], max(times[-1], times[0] + 1))
    figure.align_ylabels()
    return Picture(
        "throughput",
        "Throughput over time",
        f"Mean within the window: ingress {numbers.rate(figures.ingress)}, "
        f"egress {numbers.rate(figures.egress)}; {len(seconds)} seconds are drawn.",
        "The numbers at the right are the means within the window that is measured. Where egress stays below "
        "what was due, messages queue up or are lost.",
        figure,
    )


def _mean(axes: Axes, value: float, factor: float) -> None:
    axes.axhline(value / factor, color=INK, linewidth=0.7, alpha=0.5)
    axes.annotate(
        f"mean\n{numbers.rate(value)}",
        (1, value / factor),
        xycoords=("axes fraction", "data"),
        xytext=(7, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
    )


def latency(figures: RunFigures) -> Picture | None:
    """The distributions of the run's latencies; None without any."""
    curves = [
        (latency_words(key), look(place), figures.histograms[key])
        for place, key in enumerate(in_order(figures.histograms))
        if sum(figures.histograms[key].counts)
    ]
    if not curves:
        return None
    described = [
        f"{latency_words(key)}: median {numbers.duration(value.p50)}, p99 {numbers.duration(value.p99)}, "
        f"largest {numbers.duration(value.max)}"
        for key in in_order(figures.latency)
        for value in [figures.latency[key]]
    ]
    return distributions("latency", "Latency", "", curves, "; ".join(described))


def share_axes(left: Axes, right: Axes, title: str, smallest: float) -> None:
    """Name and scale the shares of a distribution and of its tail, in which ``smallest`` % is one message."""
    left.set_title(f"{title}: cumulative distribution")
    left.set_ylabel("Messages that arrived by then (%)")
    left.set_ylim(0, 101)
    right.set_title("Tail")
    right.set_ylabel("Messages that took longer (%)")
    right.set_yscale("log")
    right.set_ylim(max(smallest / 2, 1e-7), 110)
    right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.12g}"))
    right.yaxis.set_minor_locator(NullLocator())


def distributions(name: str, title: str, about: str, curves: Sequence[Curve], description: str) -> Picture:
    """Curves over each other: share that arrived in time at the left, the tail at the right.

    `about` says whose latency it is, where that is the same for all.
    """
    rows = -(-len(curves) // 3)
    figure = new_figure(3.0 + 0.2 * rows)
    left, right = figure.subplots(1, 2)
    lowest = smallest = float("inf")
    for _, style, histogram in curves:
        values, share = cumulative(histogram)
        kind: dict[str, Any] = {"color": style.color, "linestyle": style.line, "linewidth": 1.5}
        left.plot(values, share * 100, drawstyle="steps-post", **kind)
        rest = (1 - share) * 100
        seen = rest > 100 / sum(histogram.counts) / 2
        # Without the last step down to nothing, which has no place on a logarithmic axis.
        right.plot(values[seen], rest[seen], drawstyle="steps-post", **kind)
        lowest = min(lowest, values[int((share > 0.001).argmax())])
        smallest = min(smallest, 100 / sum(histogram.counts))
    share_axes(left, right, title, smallest)
    for axes in (left, right):
        time_scale(axes, lowest)
        axes.set_xlabel(f"Latency, {about}" if about else "Latency")
    if len(curves) > 1 or curves[0][0]:
        handles = [Line2D([], [], color=style.color, linestyle=style.line) for _, style, _ in curves]
        labels = [short(label, 34) for label, _, _ in curves]
        figure.legend(handles, labels, loc="outside lower center", ncols=min(3, len(curves)))
    caption = (
        "Axes are logarithmic but for the share at the left; the tail shows what the slowest messages took. "
        "Since sent: from when a message was handed to the socket; since due: from when the schedule wanted "
        "it sent."
    )
    return Picture(name, title, description, caption, figure)


def time_scale(axes: Axes, lowest: float) -> None:
    """A logarithmic axis of latency from `lowest` microseconds on, its ticks with units."""
    axes.set_xscale("log")
    highest = axes.get_xlim()[1]
    axes.set_xlim(lowest / 1.15, max(highest, lowest * 2))
    few = highest / lowest < 30
    axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=9))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: numbers.duration(value)))


def resources(figures: RunFigures) -> Picture | None:
    """Cores and memory of each process; None where nothing was sampled."""
    if not figures.processes:
        return None
    rank = {role: place for place, role in enumerate(ROLES)}
    processes = sorted(figures.processes, key=lambda process: -process.cores)[:MOST_PROCESSES]
    processes.sort(key=lambda process: rank.get(process.role, len(rank)))
    rows = range(len(processes))
    figure = new_figure(1.35 + 0.235 * len(processes))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
    looks = [role_look(process.role) for process in processes]
    factor, unit = numbers.size_axis(max(process.rss_bytes for process in processes))
    for axes, values in (
        (left, [process.cores for process in processes]),
        (right, [process.rss_bytes / factor for process in processes]),
    ):
        bars = axes.barh(rows, values, 0.72, color=[style.color for style in looks], edgecolor="white")
        for bar, style in zip(bars, looks, strict=True):
            bar.set_hatch(style.hatch)
        plain_grid(axes, "x")
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(0, max([*values, 1e-9]) * 1.2)
    for row, process in zip(rows, processes, strict=True):
        if process.quota is not None:
            left.plot([process.quota] * 2, [row - 0.42, row + 0.42], color=ALARM, linewidth=2.2)
        past = _past_quota(process.cores, process.quota, left)
        _number(left, past, row, numbers.significant(process.cores))
        _number(right, process.rss_bytes / factor, row, numbers.size(process.rss_bytes))
    quotas = [process.quota for process in processes if process.quota is not None]
    left.set_xlim(0, max([left.get_xlim()[1], *(quota * 1.08 for quota in quotas)]))
    left.set_yticks(rows, [short(process.name, 22) for process in processes])
    left.set_ylim(len(processes) - 0.4, -0.6)
    left.set_title("Use of resources by process")
    left.set_xlabel("Cores used (CPU seconds per second)")
    right.set_xlabel(f"Memory, largest resident set ({unit})")
    roles = dict.fromkeys(process.role for process in processes)
    handles: list[Patch | Line2D] = [_patch(role_look(role)) for role in roles]
    names = list(roles)
    if quotas:
        handles.append(Line2D([], [], color=ALARM, linewidth=2.2, marker="|", linestyle="none", markersize=9))
        names.append("cores allowed")
    figure.legend(handles, names, loc="outside lower center", ncols=5)
    left_out = len(figures.processes) - len(processes)
    return Picture(
        "resources",
        "Use of resources",
        "; ".join(f"{process.name}: {numbers.significant(process.cores)} cores" for process in processes),
        f"Within the window; {left_out} processes that used less are in the table only."
        if left_out
        else "Within the window that is measured.",
        figure,
    )


def _past_quota(cores: float, quota: float | None, axes: Axes) -> float:
    # Else the number would stand on the mark of the quota.
    if quota is not None and 0 <= quota - cores < axes.get_xlim()[1] * 0.12:
        return quota
    return cores


def _number(axes: Axes, end: float, row: float, text: str) -> None:
    axes.annotate(
        text, (end, row), xytext=(4, 0), textcoords="offset points", va="center_baseline", fontsize=7.5
    )


def _patch(style: Look) -> Patch:
    return Patch(facecolor=style.color, hatch=style.hatch, edgecolor="white")


def search(limit: Limit) -> Picture | None:
    """Ratio of Definition 1 by interval, all of it and close to the limit; None without measurements."""
    if not limit.points:
        return None
    figure = new_figure(3.3)
    whole, close = figure.subplots(1, 2, width_ratios=[3, 2])
    for axes in (whole, close):
        search_curve(axes, limit, look(0))
        search_axes(axes, [limit])
        axes.set_xlabel("Interval of a publisher in ms (logarithmic)")
        if limit.interval_ms is not None:
            axes.axvline(limit.interval_ms, color=look(0).color, linewidth=0.9, linestyle=(0, (1, 2)))
    whole.set_title("Search for the limit")
    whole.set_ylabel(f"egress / (ingress {numbers.TIMES} sp-ratio)")
    close.set_title("Close to 0.99")
    close.set_ylim(0.94, max(1.005, *(min(p.ratio, 1.02) for p in limit.points)) + 0.002)
    near = [p.interval_ms for p in limit.points if p.verdict != "void" and 0.94 <= p.ratio <= 1.02]
    if limit.interval_ms is not None:
        near = [x for x in near if limit.interval_ms / 1.5 <= x <= limit.interval_ms * 1.5]
        whole.annotate(
            f"limit {numbers.interval(limit.interval_ms)}",
            (limit.interval_ms, 0.05),
            xycoords=("data", "axes fraction"),
            xytext=(4, 0) if _left(limit) else (-4, 0),
            textcoords="offset points",
            ha="left" if _left(limit) else "right",
            fontsize=8.5,
            fontweight="bold",
        )
    if near:
        interval_scale(close, min(near) / 1.06, max(near) * 1.06)
    figure.legend(*search_legend(limit.points, look(0)), loc="outside lower center", ncols=4)
    return Picture("limit", "Search for the limit", found(limit), SEARCH_CAPTION, figure)


def _left(limit: Limit) -> bool:
    """The limit is in the left half of the intervals: its name has room at the right."""
    intervals = [point.interval_ms for point in limit.points]
    return (limit.interval_ms or 0.0) ** 2 < min(intervals) * max(intervals)


SEARCH_CAPTION = (
    "Each mark is one measurement. From the dashed line on (0.99) the load is under the limit. A void "
    "measurement says nothing: the generator missed its own target."
)


def search_curve(axes: Axes, limit: Limit, style: Look) -> None:
    """The measurements of a search; void ones are crosses, refused ones hollow."""
    points = sorted(limit.points, key=lambda point: point.interval_ms)
    told = [point for point in points if point.verdict != "void"]
    axes.plot(
        [p.interval_ms for p in told],
        [p.ratio for p in told],
        color=style.color,
        linestyle=style.line,
        linewidth=1.0,
        alpha=0.75,
    )
    for verdict, mark in _marks(style).items():
        here = [point for point in points if point.verdict == verdict]
        axes.plot([p.interval_ms for p in here], [p.ratio for p in here], linestyle="none", **mark)


def _marks(style: Look) -> dict[str, dict[str, Any]]:
    hollow: dict[str, Any] = {"markerfacecolor": "white", "markeredgewidth": 1.3}
    return {
        "ok": {"marker": style.marker, "color": style.color},
        "refused": {"marker": style.marker, "color": style.color, "markersize": 6, **hollow},
        "void": {"marker": "x", "color": ALARM, "markersize": 6, "markeredgewidth": 1.6},
    }


def search_legend(points: Sequence[Point], style: Look) -> tuple[list[Line2D], list[str]]:
    """Marks that occur among the points, with their words."""
    words = {"ok": "measured", "refused": "refused: over the limit", "void": "void"}
    seen = [verdict for verdict in words if any(point.verdict == verdict for point in points)]
    marks = _marks(style)
    return [Line2D([], [], linestyle="none", **marks[verdict]) for verdict in seen], [words[v] for v in seen]


def search_axes(axes: Axes, limits: Sequence[Limit]) -> None:
    """Scales for the searches that were drawn, and the line of Definition 1."""
    points = [point for limit in limits for point in limit.points]
    intervals = [point.interval_ms for point in points]
    ratios = [point.ratio for point in points]
    interval_scale(axes, min(intervals) / 1.15, max(intervals) * 1.15)
    axes.set_ylim(max(0.0, min([0.9, *ratios]) - 0.05), max([1.02, *ratios]) + 0.03)
    axes.axhline(LIMIT_RATIO, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    axes.annotate(
        f"{LIMIT_RATIO:g} ",
        (1, LIMIT_RATIO),
        xycoords=("axes fraction", "data"),
        xytext=(0, -9),
        textcoords="offset points",
        ha="right",
        fontsize=8,
    )


def interval_scale(axes: Axes, first: float, last: float) -> None:
    """A logarithmic axis of intervals in milliseconds."""
    axes.set_xscale("log")
    axes.set_xlim(first, last)
    axes.xaxis.set_minor_locator(NullLocator())
    if last / first > 4:
        axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0), numticks=12))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def found(limit: Limit) -> str:
    """The outcome of a search in a sentence."""
    if limit.interval_ms is None:
        return "No interval that was measured is under the limit."
    words = {
        "target": "the next smaller interval is over the limit",
        "generator": "the generator could not do the next smaller interval, so the limit may be higher",
        "schedule": "no smaller interval was to be measured, so the limit may be higher",
    }
    return (
        f"The smallest interval under the limit is {numbers.interval(limit.interval_ms)}: "
        f"{words[limit.bounded_by]}."
    )

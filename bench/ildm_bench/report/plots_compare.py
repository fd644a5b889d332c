"""The pictures of a comparison: bars as in Fig. 5.10 to 5.15 of the thesis, curves, CPU by role."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter

from ildm_bench.measure.figures import Comparison, Course, Limit
from ildm_bench.report import numbers
from ildm_bench.report.entries import (
    ROLES,
    Entry,
    cpu_by_role,
    cpu_of_target,
    labels_of,
    latency_key,
    latency_of,
    latency_words,
    reference_of,
)
from ildm_bench.report.plots_run import SEARCH_CAPTION, distributions, found, search_axes, search_curve
from ildm_bench.report.style import (
    ALARM,
    MUTED,
    Look,
    look,
    new_figure,
    one_line,
    plain_grid,
    role_look,
    short,
)
from ildm_bench.report.svg import Picture

_ROW = 12
"""Bars beside each other that still leave room for their numbers."""
_SHORTEST = 8
_GAP = 0.7

Value = Callable[[Entry], float | None]


def looks_of(entries: Sequence[Entry]) -> dict[str, Look]:
    """A look for each label: PF looks the same in all groups."""
    return {label: look(place) for place, label in enumerate(labels_of(entries))}


def rate_bars(comparison: Comparison, entries: Sequence[Entry], which: str) -> Picture | None:
    """Bars of ``ingress`` or ``egress`` (Fig. 5.10, 5.11, 5.13, 5.14); None without any rate."""

    def value(entry: Entry) -> float | None:
        return entry.ingress if which == "ingress" else entry.egress

    values = [v for entry in entries if (v := value(entry)) is not None]
    if not values:
        return None
    factor, unit = numbers.rate_axis(max(values))
    reference = reference_of(comparison, entries)
    base = value(reference) if reference else None

    def text(entry: Entry) -> str:
        here = value(entry)
        if here is None:
            return "no limit\nfound"
        bound = "\N{GREATER-THAN OR EQUAL TO}" if entry.at_least else ""
        times = f"\n{numbers.factor(here / base)}" if base and entry is not reference else ""
        return f"{bound}{numbers.significant(here / factor)}{times}"

    caption = f"Messages that t-clients {'sent' if which == 'ingress' else 'received'}, at the limit."
    if base and reference:
        caption += f" {numbers.TIMES}: multiple of {reference.name}."
    if any(entry.at_least for entry in entries):
        caption += (
            " \N{GREATER-THAN OR EQUAL TO}: the search was ended by the generator or the schedule, not by "
            "the brokers."
        )
    title = f"{which.capitalize()} throughput at the limit"
    return _bars(which, title, f"{which.capitalize()}, {unit}", caption, entries, value, text, factor)


def latency_bars(entries: Sequence[Entry]) -> Picture | None:
    """Bars of the mean latency (Fig. 5.12, 5.15); None where there is none."""
    key = latency_key(entries)

    def value(entry: Entry) -> float | None:
        latency = latency_of(entry, key)
        return latency.mean if latency else None

    values = [v for entry in entries if (v := value(entry)) is not None]
    if key is None or not values:
        return None
    factor, unit = numbers.time_axis(max(values))

    def text(entry: Entry) -> str:
        here = value(entry)
        return numbers.NONE if here is None else numbers.significant(here / factor)

    at = "at the limit" if entries[0].limit else "of the runs"
    caption = f"Mean latency of what was received within the window: {latency_words(key)}."
    return _bars("latency", f"Latency {at}", f"Mean latency, {unit}", caption, entries, value, text, factor)


def _bars(
    name: str,
    title: str,
    axis: str,
    caption: str,
    entries: Sequence[Entry],
    value: Value,
    text: Callable[[Entry], str],
    factor: float,
) -> Picture:
    looks = looks_of(entries)
    rows = _rows(entries)
    figure = new_figure(0.35 + 2.4 * len(rows))
    panels = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
    top = max([v for entry in entries if (v := value(entry)) is not None]) / factor or 1.0
    slots = max(len(row) + _GAP * len({e.group for e in row}) for row in rows)
    for axes, row in zip(panels, rows, strict=True):
        _bar_row(axes, row, value, text, factor, looks, slots)
        axes.set_ylim(0, top * 1.22)
        axes.set_ylabel(axis)
        plain_grid(axes, "y")
        axes.tick_params(axis="x", length=0)
    panels[0].set_title(title)
    words = "; ".join(f"{entry.name}: {' '.join(text(entry).split())}" for entry in entries)
    return Picture(name, title, f"{axis}. {words}.", caption, figure)


def _rows(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Rows of bars: whole groups as long as they fit, larger ones by themselves in parts."""
    rows: list[list[Entry]] = [[]]
    for group in dict.fromkeys(entry.group for entry in entries):
        members = [entry for entry in entries if entry.group == group]
        for start in range(0, len(members), _ROW):
            part = members[start : start + _ROW]
            if rows[-1] and len(rows[-1]) + len(part) > _ROW:
                rows.append([])
            rows[-1] += part
    return rows


def _bar_row(
    axes: Axes,
    row: Sequence[Entry],
    value: Value,
    text: Callable[[Entry], str],
    factor: float,
    looks: dict[str, Look],
    slots: float,
) -> None:
    places: list[float] = []
    spans: dict[str, list[float]] = {}
    place = 0.0
    for index, entry in enumerate(row):
        place += 1 + (_GAP if index and row[index - 1].group != entry.group else 0)
        places.append(place)
        spans.setdefault(entry.group, []).append(place)
    for at, entry in zip(places, row, strict=True):
        style, height = looks[entry.label], (value(entry) or 0.0) / factor
        axes.bar(at, height, 0.8, color=style.color, hatch=style.hatch, edgecolor="white", linewidth=0)
        axes.annotate(
            text(entry),
            (at, height),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=7.5,
            color=MUTED if value(entry) is None else None,
        )
    # All rows have the scale of the longest, else their bars would differ in width.
    middle = (places[0] + places[-1]) / 2
    half = max(slots, 6) / 2 + 0.15
    axes.set_xlim(middle - half, middle + half)
    chars = 86 / max(slots, 6)
    # A group's share of the gaps beside it is room for the names of its bars.
    names = [_wrapped(e.label, int(chars * (1 + _GAP / len(spans[e.group]))), 3) for e in row]
    if all(len(spans[entry.group]) == 1 and entry.group in {"", entry.label} for entry in row):
        axes.set_xticks(places, names)
        return
    lines = max(name.count("\n") for name in names) + 1
    axes.set_xticks(places, names)
    groups = axes.secondary_xaxis("bottom")
    groups.set_xticks(
        [sum(at) / len(at) for at in spans.values()],
        [
            "\n" * (lines + (lines > 2)) + _wrapped(group, int(chars * 1.15 * (len(at) + _GAP)), 2)
            for group, at in spans.items()
        ],
        fontweight="bold",
    )
    groups.tick_params(axis="x", length=0)
    groups.spines["bottom"].set_visible(False)


def _wrapped(label: str, width: int, lines: int) -> str:
    width = max(width, _SHORTEST)  # words as short as HAProxy stay whole
    return textwrap.fill(one_line(label), width, max_lines=lines, placeholder="\N{HORIZONTAL ELLIPSIS}")


def searches(entries: Sequence[Entry]) -> Picture | None:
    """The searches for the limit, one panel for each group; None without measurements."""
    with_points = [entry for entry in entries if entry.limit and entry.limit.points]
    if not with_points:
        return None
    looks = looks_of(entries)
    groups: dict[str, list[Entry]] = {}
    for entry in with_points:
        groups.setdefault(entry.group, []).append(entry)
    columns = min(2, len(groups))
    rows = -(-len(groups) // columns)
    figure = new_figure(0.7 + 1.9 * rows)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    panels = list(grid.flat)
    limits: list[Limit] = [entry.limit for entry in with_points if entry.limit]
    for axes, (group, members) in zip(panels, groups.items(), strict=False):
        for entry in members:
            if entry.limit:
                search_curve(axes, entry.limit, looks[entry.label])
        search_axes(axes, limits)
        axes.set_title(short(group or "Search for the limit", 40))
    for axes in panels[len(groups) :]:
        axes.set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("Ratio of Definition 1")
    for place, axes in enumerate(panels[: len(groups)]):
        if place + columns >= len(groups):
            axes.set_xlabel("Interval in ms (logarithmic)")
            axes.tick_params(axis="x", labelbottom=True)
    labels = labels_of(with_points)
    handles = [_line(looks[label]) for label in labels]
    names = [short(label, 30) for label in labels]
    if any(point.verdict == "refused" for limit in limits for point in limit.points):
        handles.append(Line2D([], [], linestyle="none", marker="o", color=MUTED, markerfacecolor="white"))
        names.append("refused: over the limit")
    if any(point.verdict == "void" for limit in limits for point in limit.points):
        handles.append(Line2D([], [], linestyle="none", marker="x", color=ALARM, markeredgewidth=1.6))
        names.append("void")
    figure.legend(handles, names, loc="outside lower center", ncols=5)
    words = " ".join(f"{entry.name}: {found(entry.limit)}" for entry in with_points if entry.limit)
    return Picture("limit", "Search for the limit", words, SEARCH_CAPTION, figure)


def _line(style: Look) -> Line2D:
    return Line2D([], [], color=style.color, linestyle=style.line, marker=style.marker)


def course(of: Course, place: int) -> Picture | None:
    """Lines over time; None without any. ``place`` tells the pictures of a page apart."""
    drawn = [line for line in of.lines if line.seconds]
    if not drawn:
        return None
    figure = new_figure(3.4)
    axes = figure.subplots()
    for index, line in enumerate(drawn):
        style = look(index)
        axes.plot(line.seconds, line.values, color=style.color, linestyle=style.line)
    for what, second in of.marks.items():
        axes.axvline(second, color=MUTED, linewidth=0.8)
        axes.annotate(
            short(what, 30),
            (second, 1),
            xycoords=("data", "axes fraction"),
            xytext=(3, -3),
            textcoords="offset points",
            va="top",
            fontsize=8,
            color=MUTED,
        )
    if of.logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlim(min(line.seconds[0] for line in drawn), max(line.seconds[-1] for line in drawn))
    axes.set_title(of.title)
    axes.set_xlabel("Seconds")
    axes.set_ylabel(of.axis)
    handles = [_line_of(look(index)) for index in range(len(drawn))]
    names = [short(line.label, 30) for line in drawn]
    figure.legend(handles, names, loc="outside lower center", ncols=5)
    words = "; ".join(
        f"{line.label}: from {numbers.significant(line.values[0])} to "
        f"{numbers.significant(line.values[-1])}, at most {numbers.significant(max(line.values))}"
        for line in drawn
    )
    return Picture(f"course-{place}", of.title, f"{of.axis}. {words}.", of.caption, figure)


def _line_of(style: Look) -> Line2D:
    return Line2D([], [], color=style.color, linestyle=style.line)


def cdf(entries: Sequence[Entry]) -> Picture | None:
    """The distributions of latency over each other; None where there is none."""
    key = latency_key(entries)
    shown = [entry for entry in entries if latency_of(entry, key)]
    if key is None:
        return None
    curves = [
        (entry.name, look(place), histogram)
        for place, entry in enumerate(shown)
        if entry.figures
        and (histogram := entry.figures.histograms.get(key)) is not None
        and sum(histogram.counts)
    ]
    if not curves:
        return None
    words = "; ".join(
        f"{entry.name}: median {numbers.duration(latency.p50)}, p99 {numbers.duration(latency.p99)}"
        for entry in shown
        if (latency := latency_of(entry, key))
    )
    return distributions("cdf", "Latency", latency_words(key), curves, words)


def cpu(entries: Sequence[Entry]) -> Picture | None:
    """CPU per delivered message, stacked by role; None where nothing was sampled."""
    shown = [
        entry
        for entry in entries
        if entry.figures and entry.figures.processes and entry.figures.verdict != "void"
    ]
    if not shown:
        return None
    uses = [cpu_by_role(entry.figures) for entry in shown if entry.figures]
    roles = list(dict.fromkeys(role for use in uses for role in use))
    roles.sort(key=_rank)
    longest = max([sum(use.values()) for use in uses]) or 1.0
    factor, unit = numbers.time_axis(longest)
    figure = new_figure(1.25 + 0.29 * len(shown))
    axes = figure.subplots()
    for row, (entry, use) in enumerate(zip(shown, uses, strict=True)):
        start = 0.0
        for role in roles:
            width = use.get(role, 0.0) / factor
            style = role_look(role)
            axes.barh(
                row,
                width,
                0.7,
                left=start,
                color=style.color,
                hatch=style.hatch,
                edgecolor="white",
                linewidth=0,
            )
            start += width
        own = cpu_of_target(entry.figures) if entry.figures else None
        if own is not None:
            load = f" + {numbers.duration(use['generator'])}" if "generator" in use else ""
            axes.annotate(
                numbers.duration(own) + load,
                (start, row),
                xytext=(5, 0),
                textcoords="offset points",
                va="center_baseline",
                fontsize=8,
            )
    axes.set_yticks(range(len(shown)), [short(entry.name, 34) for entry in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(0, longest / factor * 1.3)
    axes.set_xlabel(f"CPU per message delivered to a t-client, {unit}")
    axes.set_title("CPU per delivered message by role")
    axes.tick_params(axis="y", length=0)
    plain_grid(axes, "x")
    handles = [Patch(facecolor=s.color, hatch=s.hatch, edgecolor="white") for s in map(role_look, roles)]
    figure.legend(handles, roles, loc="outside lower center", ncols=5)
    words = "; ".join(
        f"{entry.name}: " + ", ".join(f"{role} {numbers.duration(value)}" for role, value in use.items())
        for entry, use in zip(shown, uses, strict=True)
    )
    caption = "The generator is not part of what is measured; its CPU is the second of the numbers."
    return Picture("cpu", "CPU per delivered message", words, caption, figure)


def _rank(role: str) -> int:
    return ROLES.index(role) if role in ROLES else len(ROLES)

"""The pictures of the experiments, in the manner of `ildm_bench.report`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from ildm_bench.report import numbers
from ildm_bench.report.style import INK, MUTED, Look, look, new_figure, plain_grid
from ildm_bench.report.svg import Picture

_METHODS = {
    "SG-TBPS": 0,
    "Scribe": 1,
    "SFB": 2,
    "MRF": 0,
    "PF": 3,
    "SF": 4,
    "Scribe with DHT": 5,
    "ATM-TBPS": 2,
    "STLA": 5,
    "ST": 0,
    "LATK alone": 3,
    "one broker": 6,
    "diagonal": 6,
}
_LOOKS = 7
FEW_POINTS = 6

Points = tuple[Sequence[float], Sequence[float]]
Ends = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""By label the lower and upper ends of the error bars, in the order of the points."""


@dataclass(frozen=True)
class Words:
    """What is written at a picture. ``name`` is the file's without suffix."""

    name: str
    title: str
    x: str
    y: str
    caption: str


def looks_of(labels: Sequence[str]) -> list[Look]:
    """A method looks the same in all pictures, and its variants (``SFB, random``) have its colour; other
    labels look as their place says."""
    seen: Counter[str] = Counter()
    found = []
    for place, label in enumerate(labels):
        method = label.partition(",")[0].partition(" and ")[0]
        base = look(_METHODS.get(method, place))
        if method in _METHODS:
            other = look((_METHODS[method] + 3 * seen[method]) % _LOOKS)
            base = Look(base.color, other.hatch, other.line, other.marker)
            seen[method] += 1
        found.append(base)
    return found


def curves(
    words: Words,
    series: Mapping[str, Points],
    *,
    errors: Ends | None = None,
    log_x: int = 0,
    log_y: int = 0,
    steps: bool = False,
    markers: bool = True,
    height: float = 2.9,
    marks: Sequence[tuple[float, float, str]] = (),
    limit_y: tuple[float | None, float | None] | None = None,
    looks: Mapping[str, Look] | None = None,
) -> Picture:
    """A line for each series. ``log_x``, ``log_y``: base of a logarithmic axis, 0 for a plain one, which the
    label then says. ``marks``: points with a word beside them."""
    figure = new_figure(height)
    axes = figure.subplots()
    _lines(axes, series, errors or {}, steps=steps, markers=markers, looks=looks)
    for x, y, text in marks:
        axes.plot([x], [y], marker="o", color=INK, markersize=5, linestyle="none")
        axes.annotate(text, (x, y), xytext=(0, 7), textcoords="offset points", ha="center", fontsize=8)
    _scales(axes, log_x, log_y)
    _points_on_axis(axes, series, log_x)
    if limit_y:
        axes.set_ylim(*limit_y)
    _finish(axes, words, len(series), log_x, log_y)
    return Picture(words.name, words.title, _spoken(words, series), words.caption, figure)


def panels(
    words: Words,
    parts: Mapping[str, Mapping[str, Points]],
    *,
    errors: Mapping[str, Ends] | None = None,
    log_x: int = 0,
    log_y: int = 0,
    steps: bool = False,
    markers: bool = True,
    height: float = 3.2,
    limit_y: tuple[float | None, float | None] | None = None,
    shared: bool = False,
) -> Picture:
    """`curves` beside each other, by the title of each panel; a label looks the same in all of them.

    ``shared``: one y axis for all; otherwise each panel has the scale that its values need.
    """
    figure = new_figure(height)
    drawn = figure.subplots(1, len(parts), squeeze=False, sharey=shared)[0]
    labels = list(dict.fromkeys(label for series in parts.values() for label in series))
    looks = dict(zip(labels, looks_of(labels), strict=True))
    for axes, (title, series) in zip(drawn, parts.items(), strict=True):
        ends = (errors or {}).get(title, {})
        _lines(axes, series, ends, steps=steps, markers=markers, looks=looks)
        _scales(axes, log_x, log_y)
        _points_on_axis(axes, series, log_x)
        if limit_y:
            axes.set_ylim(*limit_y)
        axes.set_title(title, fontweight="normal")
        axes.set_xlabel(_said(words.x, log_x))
    drawn[0].set_ylabel(_said(words.y, log_y))
    figure.suptitle(words.title, x=0.01, ha="left", fontsize=9.5, fontweight="bold")
    handles = {
        label: handle
        for axes in drawn
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        [handles[label] for label in labels],
        labels,
        loc="outside lower center",
        ncols=max(1, min(len(labels), 100 // (max(map(len, labels)) + 9))),
        labelcolor=MUTED,
    )
    spoken = " ".join(f"{title}: {_spoken(words, series)}" for title, series in parts.items())
    return Picture(words.name, words.title, spoken, words.caption, figure)


def _lines(
    axes: Axes,
    series: Mapping[str, Points],
    errors: Ends,
    *,
    steps: bool,
    markers: bool,
    looks: Mapping[str, Look] | None,
) -> None:
    if all(isinstance(x, int) for xs, _ in series.values() for x in xs):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    found = looks or dict(zip(series, looks_of([*series]), strict=True))
    # The same points are marked on all lines, or one would seem to have fewer.
    every = max(1, max((len(xs) for xs, _ in series.values()), default=1) // 40)
    for label, (xs, ys) in series.items():
        how = found[label]
        drawn: dict[str, Any] = {"color": how.color, "linestyle": how.line, "label": label}
        if markers:
            drawn |= {"marker": how.marker, "markevery": every}
        if steps:
            axes.step(xs, ys, where="post", **drawn)
        else:
            axes.plot(xs, ys, **drawn)
        if label in errors:
            axes.errorbar(
                xs,
                ys,
                yerr=_apart(ys, errors[label]),
                fmt="none",
                ecolor=how.color,
                elinewidth=1,
                capsize=2.5,
            )


def _apart(ys: Sequence[float], ends: tuple[Sequence[float], Sequence[float]]) -> list[list[float]]:
    lows, highs = ends
    return [
        [max(0.0, y - low) for y, low in zip(ys, lows, strict=True)],
        [max(0.0, high - y) for y, high in zip(ys, highs, strict=True)],
    ]


def _spoken(words: Words, series: Mapping[str, Points]) -> str:
    each = "; ".join(f"{label}: {_ends(xs, ys)}" for label, (xs, ys) in series.items())
    return f"{words.y} over {words.x}. {each}."


def bars(
    words: Words,
    groups: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    *,
    errors: Ends | None = None,
    log_y: int = 0,
    height: float = 2.9,
    numbered: bool = True,
) -> Picture:
    """Bars beside each other: a group for each label on the x axis, in it one bar for each series."""
    ends = errors or {}
    figure = new_figure(height)
    axes = figure.subplots()
    width = 0.84 / len(series)
    for place, (how, (label, values)) in enumerate(zip(looks_of([*series]), series.items(), strict=True)):
        at = [n + (place - (len(series) - 1) / 2) * width for n in range(len(groups))]
        there = [(x, value) for x, value in zip(at, values, strict=True) if value is not None]
        axes.bar(
            [x for x, _ in there],
            [value for _, value in there],
            width * 0.92,
            label=label,
            color="white" if how.hatch else how.color,
            edgecolor=how.color,
            hatch=how.hatch,
            linewidth=0.9,
        )
        tops = [value for _, value in there]
        if label in ends:
            apart = _apart([value or 0 for value in values], ends[label])
            apart = [
                [a for a, value in zip(side, values, strict=True) if value is not None] for side in apart
            ]
            axes.errorbar(
                [x for x, _ in there], tops, yerr=apart, fmt="none", ecolor=INK, elinewidth=0.8, capsize=2
            )
            tops = [top + more for top, more in zip(tops, apart[1], strict=True)]
        for (x, value), top in zip(there, tops, strict=True) if numbered else ():
            axes.annotate(
                compact(value),
                (x, max(top, 0)),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=6.5 if len(groups) * len(series) > 12 else 7.5,
            )
    axes.set_xticks(range(len(groups)), list(groups))
    axes.tick_params(axis="x", length=0)
    _scales(axes, 0, log_y)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * 1.6 if log_y else high * 1.06)
    _finish(axes, words, len(series), 0, log_y)
    plain_grid(axes, "y")
    spoken = "; ".join(
        f"{label}: "
        + ", ".join(
            f"{group} {numbers.NONE if value is None else numbers.significant(value)}"
            for group, value in zip(groups, values, strict=True)
        )
        for label, values in series.items()
    )
    return Picture(words.name, words.title, f"{words.y} by {words.x}. {spoken}.", words.caption, figure)


def clouds(
    words: Words, series: Mapping[str, Points], remarks: Mapping[str, str], height: float = 3.2
) -> Picture:
    """A panel of points for each series, with a remark such as its correlation in the title."""
    figure = new_figure(height)
    panels = figure.subplots(1, len(series), squeeze=False, sharex=True, sharey=True)[0]
    for axes, how, (label, (xs, ys)) in zip(panels, looks_of([*series]), series.items(), strict=True):
        axes.scatter(xs, ys, s=11, marker=how.marker, facecolors="none", edgecolors=how.color, linewidths=0.7)
        axes.set_title(f"{label}: {remarks[label]}", fontweight="normal")
        axes.set_xlabel(words.x)
    panels[0].set_ylabel(words.y)
    figure.suptitle(words.title, x=0.01, ha="left", fontsize=9.5, fontweight="bold")
    spoken = "; ".join(f"{label}: {remarks[label]}, {len(xs)} points" for label, (xs, _) in series.items())
    return Picture(words.name, words.title, f"{words.y} over {words.x}. {spoken}.", words.caption, figure)


def compact(value: float) -> str:
    """A number on an axis: 131k, 10M."""
    for factor, unit in ((1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{numbers.significant(value / factor)}{unit}"
    return numbers.significant(value)


def _scales(axes: Axes, log_x: int, log_y: int) -> None:
    # Matplotlib's own labels of powers are mathematical text, which the reports' style has switched off.
    for base, axis, scale in ((log_x, axes.xaxis, axes.set_xscale), (log_y, axes.yaxis, axes.set_yscale)):
        if base:
            scale("log", base=base)
            axis.set_major_formatter(FuncFormatter(_powers_of_two if base == 2 else _compact))
            axis.set_minor_formatter(NullFormatter())
            axis.set_minor_locator(NullLocator())
        elif max(map(abs, axis.get_view_interval())) >= 1_000:
            axis.set_major_formatter(FuncFormatter(_separated))


def _points_on_axis(axes: Axes, series: Mapping[str, Points], log_x: int) -> None:
    """Few points on a logarithmic axis are named themselves, instead of the powers among them."""
    points = sorted({x for xs, _ in series.values() for x in xs})
    if log_x and len(points) <= FEW_POINTS:
        axes.set_xticks(points, [f"{x:,.0f}" for x in points])


def _compact(value: float, _: object) -> str:
    return compact(value)


def _separated(value: float, _: object) -> str:
    return f"{value:,.0f}"


def _powers_of_two(value: float, _: object) -> str:
    return f"{value:,.0f}" if value >= 1 else numbers.significant(value)


def _said(label: str, log: int) -> str:
    return f"{label} (log)" if log else label


def _finish(axes: Axes, words: Words, series: int, log_x: int, log_y: int) -> None:
    axes.set_title(words.title)
    axes.set_xlabel(_said(words.x, log_x))
    axes.set_ylabel(_said(words.y, log_y))
    if series > 1:
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), borderaxespad=0, labelcolor=MUTED)


def _ends(xs: Sequence[float], ys: Sequence[float]) -> str:
    if not len(xs):
        return "nothing"
    first, last = (f"{numbers.significant(ys[n])} at {numbers.significant(xs[n])}" for n in (0, -1))
    return f"from {first} to {last}"

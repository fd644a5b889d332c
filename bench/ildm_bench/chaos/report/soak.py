"""The page of a soak: each gauge of each node over the events, its slope, and what was left after quiet."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from ildm_bench.chaos.soak.figures import GAUGES, Soak
from ildm_bench.report import html, numbers
from ildm_bench.report.html import Tile, Tone
from ildm_bench.report.pages import save, write
from ildm_bench.report.style import drawing, look, new_figure
from ildm_bench.report.svg import Picture
from ildm_bench.report.tables import Table

WORDS = {
    "rss_bytes": "Memory",
    "objects": "Objects",
    "entries": "Entries of tables",
    "descriptors": "Descriptors",
    "tasks": "Tasks",
    "timers": "Timers",
}
ABOUT = (
    "Three nodes in a row, under load, while clients come and go, the link between a and b is cut and node c "
    "is killed now and then. Slopes are those of Theil and Sen over the last half of the samples. Objects "
    "are those that hold others and that can be reached from the node."
)


def write_soak(soak: Soak, directory: Path, command: str = "") -> Path:
    """Write ``report.html`` into a directory, which is made.

    Raises:
        OSError: the directory cannot be written.
    """
    with drawing():
        pictures = save(directory, [gauges(soak)])
    problems = soak.problems()
    content, tones = slopes(soak)
    body = [
        html.header("Soak: does anything grow?", [soak.title, soak.machine]),
        html.paragraph(ABOUT),
        html.command(command) if command else "",
        html.tiles(
            [
                Tile("Messages", numbers.count(soak.messages), f"in {numbers.significant(soak.seconds)} s"),
                Tile("Connects", numbers.count(soak.connects)),
                Tile("Link cuts", numbers.count(soak.cuts)),
                Tile("Kills", numbers.count(soak.kills), "of node c"),
            ]
        ),
        html.verdict("under", "Nothing grows, nothing is left.", [])
        if not problems
        else html.verdict("void", "Something grows, or is left.", problems),
        html.heading("Pictures"),
        *pictures,
        html.heading("Figures"),
        html.table(content, tones=tones),
    ]
    return write(directory, "Soak", body)


def gauges(soak: Soak) -> Picture | None:
    """All gauges over events; None without samples."""
    if not soak.samples:
        return None
    figure = new_figure(6.2)
    grid = figure.subplots(3, 2, sharex=True)
    for axes, (gauge, words) in zip(grid.flat, WORDS.items(), strict=True):
        _gauge(axes, soak, gauge)
        axes.set_title(words)
    for axes in grid[-1]:
        axes.set_xlabel("Events")
    handles = [Line2D([], [], color=look(place).color, linewidth=2) for place in range(len(soak.nodes))]
    labels = [f"node {node}" for node in soak.nodes]
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return Picture(
        "gauges",
        "What nodes have in memory",
        "; ".join(f"node {node}: {_slope(soak, node, 'rss_bytes')} an event" for node in soak.nodes),
        "A line begins anew where its node was killed. Descriptors and tasks rise and fall with the clients.",
        figure,
    )


def _gauge(axes: Axes, soak: Soak, gauge: str) -> None:
    for place, node in enumerate(soak.nodes):
        samples = [sample for sample in soak.samples if sample.node == node]
        for life in sorted({sample.life for sample in samples}):
            lived = [sample for sample in samples if sample.life == life]
            values = [getattr(sample, gauge) for sample in lived]
            style = look(place)
            axes.plot(
                [s.events for s in lived],
                values,
                color=style.color,
                linewidth=1.3,
                marker=".",
                markersize=2.5,
            )
    axes.set_ylim(0, max(getattr(sample, gauge) for sample in soak.samples) * 1.15)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    size = gauge.endswith("_bytes")
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: numbers.size(value) if size else _short(value))
    )


def _short(value: float) -> str:
    for factor, unit in ((1e6, " M"), (1e3, " k")):
        if value >= factor:
            return f"{numbers.significant(value / factor)}{unit}"
    return numbers.significant(value)


def slopes(soak: Soak) -> tuple[Table, dict[tuple[int, int], Tone]]:
    """Of each gauge of each node what it was, what it became, and how it rose."""
    rows: list[list[str]] = []
    tones: dict[tuple[int, int], Tone] = {}
    problems = " ".join(soak.growing())
    for node in soak.nodes:
        life = soak.life(node)
        for gauge, words in WORDS.items():
            shown = numbers.size if gauge.endswith("_bytes") else numbers.count
            values = [getattr(sample, gauge) for sample in life]
            grows = f"node {node}: {gauge} grows" in problems
            if soak.slope(node, gauge) is not None:
                tones[len(rows), 5] = "bad" if grows else "good"
            allowed = numbers.significant(GAUGES[gauge][0])
            cells = [shown(values[0]), shown(max(values)), shown(values[-1])]
            rows.append([f"node {node}", words, *cells, _slope(soak, node, gauge), allowed])
    head = ["Node", "Gauge", "At first", "Most", "At last", "Slope, an event", "Allowed"]
    return Table("Of each node, in its last life", head, rows, texts=2), tones


def _slope(soak: Soak, node: str, gauge: str) -> str:
    slope = soak.slope(node, gauge)
    return numbers.NONE if slope is None else f"{slope:+.2g}"

"""The pages put together: headline figures, verdict, pictures, tables, notes, how the limit was found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ildm_bench.measure.figures import (
    LARGEST_RATIO,
    LIMIT_RATIO,
    QUEUED_SECONDS,
    Comparison,
    Limit,
    RunFigures,
)
from ildm_bench.report import html, numbers, plots_compare, plots_run, tables
from ildm_bench.report.entries import (
    LATENCY_KEYS,
    Entry,
    cpu_of_target,
    latency_key,
    latency_of,
    latency_words,
    limits_of,
    reference_of,
    runs_of,
)
from ildm_bench.report.html import Tile
from ildm_bench.report.style import drawing
from ildm_bench.report.svg import Picture, inline_svg, settle, write_png

PAGE = "report.html"

NEEDED = f"{LIMIT_RATIO:g} to {LARGEST_RATIO:g} is needed"
ALLOWED = f"{QUEUED_SECONDS:g} s that are allowed"
DEFINITION = (
    f"Definition 1: the load is under the limit as long as egress / (ingress {numbers.TIMES} sp-ratio) is at "
    f"least {LIMIT_RATIO:g}; below, messages pile up or are lost. Above {LARGEST_RATIO:g} a queue from "
    f"before is worked off, and what is pending at the end must take no more than {QUEUED_SECONDS:g} s. The "
    "search doubles the interval between two messages of a publisher until that holds, divides the segment "
    "to the interval before into 20, and takes the smallest of these intervals that holds. The next smaller "
    "one would give at most 1.05 times the throughput."
)


def run_page(figures: RunFigures, directory: Path, limit: Limit | None) -> Path:
    """See `ildm_bench.report.write_run`."""
    with drawing():
        pictures = save(
            directory,
            [plots_run.throughput(figures), plots_run.latency(figures), plots_run.resources(figures)],
        )
        searched = save(directory, [plots_run.search(limit)] if limit else [])
    title = figures.label or figures.run
    shown = [
        tables.run_table(figures),
        tables.latency_table(figures),
        tables.process_table(figures),
        tables.loss_table(figures),
        tables.network_table(figures),
    ]
    body = [
        html.header(title, [_target(figures), _run(figures), figures.machine]),
        html.tiles(run_tiles(figures)),
        run_verdict(figures),
        *([html.heading("Pictures"), *pictures] if pictures else []),
        html.heading("Figures"),
        *(html.table(table) for table in shown if table),
        *_notes(figures.notes),
        *(_search(limit, searched) if limit else []),
    ]
    return write(directory, title, body)


def _target(figures: RunFigures) -> str:
    return f"Target: {', '.join(figures.targets)}" if figures.targets else ""


def _run(figures: RunFigures) -> str:
    return f"Run {figures.run}, scenario {figures.scenario}"


def run_tiles(figures: RunFigures) -> list[Tile]:
    """The headline figures of a run."""
    shown = [
        Tile(
            "Ingress",
            numbers.rate(figures.ingress),
            f"one message each {numbers.interval(figures.interval_ms)}",
        ),
        Tile("Egress", numbers.rate(figures.egress), f"sp-ratio {numbers.significant(figures.sp_ratio, 4)}"),
        Tile(
            "Ratio", numbers.ratio(figures.ratio), f"{LIMIT_RATIO:g} to {LARGEST_RATIO:g} is under the limit"
        ),
        Tile(
            "Loss rate",
            numbers.share(figures.loss_rate),
            f"{numbers.count(figures.missing)} of {numbers.count(figures.expected)} missing",
        ),
    ]
    key = next((key for key in LATENCY_KEYS if key in figures.latency), None)
    if key:
        latency = figures.latency[key]
        words = latency_words(key)
        shown.append(Tile("Latency, median", numbers.duration(latency.p50), words))
        shown.append(Tile("Latency, p99", numbers.duration(latency.p99), words))
    cpu = cpu_of_target(figures)
    if cpu is not None:
        shown.append(Tile("CPU per delivery", numbers.duration(cpu), "all processes but the generator"))
    shown.append(
        Tile(
            "Duplicates",
            numbers.count(figures.duplicates),
            f"out of order: {numbers.count(figures.order_violations)}",
        )
    )
    return shown


def run_verdict(figures: RunFigures) -> str:
    """The verdict of a run in words."""
    ratio = f"The ratio of Definition 1 is {numbers.ratio(figures.ratio)}"
    if figures.void:
        missed = "The load generator missed its own target. The figures below show what it did."
        disturbed = "The machine was not quiet: the figures below are a hint."
        return html.verdict(
            "void",
            "Void: this run says nothing about the brokers.",
            [missed if figures.verdict == "void" else disturbed, figures.void],
        )
    if figures.verdict == "refused":
        return html.verdict(
            "over",
            "Over the limit: the load was refused.",
            ["What the load was sent to did not take it from its sockets.", f"{ratio}.", figures.reason],
        )
    pending = f"and what waits at the end takes {numbers.duration(1e6 * figures.queued_seconds)} of {ALLOWED}"
    if figures.under_limit:
        return html.verdict("under", "Under the limit.", [f"{ratio}; {NEEDED}, {pending}.", figures.reason])
    return html.verdict("over", "Over the limit.", [f"{ratio}; {NEEDED}, {pending}.", figures.reason])


def _search(limit: Limit, pictures: Sequence[str]) -> list[str]:
    table = tables.point_table(limit)
    intervals = sorted(point.interval_ms for point in limit.points)
    mark = intervals.index(limit.interval_ms) if limit.interval_ms in intervals else None
    return [
        html.heading("How the limit was found"),
        html.paragraph(plots_run.found(limit)),
        html.paragraph(_found_again(limit)) if limit.spread else "",
        html.paragraph(DEFINITION),
        *pictures,
        html.table(table, mark) if limit.points else "",
        html.notes(limit.notes),
    ]


def _found_again(limit: Limit) -> str:
    found = limit.spread.get("interval_ms", [])
    times = ", ".join(map(numbers.interval, found))
    return f"Found one after the other: {times}; the one in the middle counts."


def comparison_page(comparison: Comparison, directory: Path, void: bool) -> Path:
    """See `ildm_bench.report.write_comparison`."""
    tables.refuse_void(comparison, void)
    limits, runs = limits_of(comparison), runs_of(comparison)
    both = [*limits, *runs]
    with drawing():
        drawn: list[Picture | None] = []
        if limits:
            drawn += [
                plots_compare.rate_bars(comparison, limits, "ingress"),
                plots_compare.rate_bars(comparison, limits, "egress"),
                plots_compare.latency_bars(limits),
            ]
        drawn += [plots_compare.course(each, place) for place, each in enumerate(comparison.courses)]
        drawn += [plots_compare.cdf(both), plots_compare.cpu(both)]
        pictures = save(directory, drawn)
        searched = save(directory, [plots_compare.searches(limits)])
    own = tables.custom_table(comparison)
    shown = [*([own] if own else []), *tables.comparison_tables(comparison)]
    body = [
        html.header(comparison.title, []),
        html.paragraph(comparison.text) if comparison.text else "",
        html.command(comparison.command) if comparison.command else "",
        html.tiles(comparison_tiles(comparison)),
        comparison_verdict(both),
        *([html.heading("Pictures"), *pictures] if pictures else []),
        *([html.heading("Figures"), *map(html.table, shown)] if shown else []),
        *_notes(_notes_of(both)),
    ]
    if limits:
        body += [html.heading("How the limits were found"), html.paragraph(DEFINITION), *searched]
        body += [html.notes([_outcome(entry.name, entry.limit) for entry in limits if entry.limit])]
    return write(directory, comparison.title, body)


def _outcome(name: str, limit: Limit) -> str:
    again = [_found_again(limit)] if limit.spread else []
    return " ".join([f"{name}: {plots_run.found(limit)}", *again, *limit.notes])


def comparison_tiles(comparison: Comparison) -> list[Tile]:
    """The best of each kind."""
    limits, runs = limits_of(comparison), runs_of(comparison)
    both = [*limits, *runs]
    shown = []
    rated = [entry for entry in limits if entry.ingress is not None]
    reference = reference_of(comparison, both)
    if rated:
        best = max(rated, key=lambda entry: entry.ingress or 0.0)
        shown.append(Tile("Highest ingress", rate_tile(best, best.ingress), best.name))
        most = max(rated, key=lambda entry: entry.egress or 0.0)
        shown.append(Tile("Highest egress", rate_tile(most, most.egress), most.name))
        if reference and reference.ingress and reference is not best:
            multiple = tables.times(best, reference, None)
            shown.append(Tile("Ingress, multiple", multiple, f"{best.name}, of {reference.name}"))
    key = latency_key(both)
    timed = [(latency.mean, entry) for entry in both if (latency := latency_of(entry, key))]
    if key and timed:
        mean, quickest = min(timed, key=lambda pair: pair[0])
        about = f"{quickest.name}; {latency_words(key)}"
        shown.append(Tile("Lowest mean latency", numbers.duration(mean), about))
    costs = [
        (cost, entry)
        for entry in both
        if entry.figures
        and entry.figures.verdict != "void"
        and (cost := cpu_of_target(entry.figures)) is not None
    ]
    if costs and len(shown) < 4:
        cost, cheapest = min(costs, key=lambda pair: pair[0])
        shown.append(Tile("Least CPU per delivery", numbers.duration(cost), cheapest.name))
    return shown


def rate_tile(entry: Entry, value: float | None) -> str:
    bound = "\N{GREATER-THAN OR EQUAL TO} " if entry.at_least else ""
    return f"{bound}{tables.rate_of(value)}"


def comparison_verdict(entries: Iterable[Entry]) -> str:
    """What a reader has to know before comparing."""
    lines = []
    kind = "under"
    for entry in entries:
        limit, figures = entry.limit, entry.figures
        if entry.void:
            lines.append(f"{entry.name}: void, says nothing about the brokers. {entry.void}")
            kind = "void"
        elif limit is not None and limit.interval_ms is None:
            lines.append(f"{entry.name}: no limit was found. {plots_run.found(limit)}")
            kind = "over" if kind == "under" else kind
        elif limit is not None and entry.at_least:
            lines.append(f"{entry.name}: {plots_run.found(limit)}")
            kind = "over" if kind == "under" else kind
        elif figures is not None and (figures.verdict == "refused" or not figures.under_limit):
            why = "refused, over the limit." if figures.verdict == "refused" else "over the limit."
            lines.append(f"{entry.name}: {why} {figures.reason}".rstrip())
            kind = "over" if kind == "under" else kind
    if not lines:
        return html.verdict(kind, "All of these results are valid.", [])
    if kind == "void":
        return html.verdict(kind, "Void: some of this is no result.", lines)
    return html.verdict(kind, "Read these results with care.", lines)


def _notes_of(entries: Sequence[Entry]) -> list[str]:
    """Machines and notes of all runs, each once; those of a few runs only with their names."""
    said: dict[str, list[str]] = {}
    runs = [(entry.name, entry.figures) for entry in entries if entry.figures]
    for name, figures in runs:
        for line in dict.fromkeys([figures.machine, *figures.notes]):
            said.setdefault(line, []).append(name)
    lines = []
    for line, names in said.items():
        if line:
            lines.append(line if len(names) == len(runs) else f"{', '.join(names)}: {line}")
    return lines


def _notes(lines: Sequence[str]) -> list[str]:
    return [html.heading("Notes"), html.notes(lines)] if lines else []


def save(directory: Path, drawn: Iterable[Picture | None]) -> list[str]:
    """Write the pictures as PNG into a directory, which is made, and give them as elements of a page."""
    directory.mkdir(parents=True, exist_ok=True)
    elements = []
    for picture in drawn:
        if picture is not None:
            settle(picture)
            write_png(picture, directory)
            elements.append(html.picture(inline_svg(picture), picture.caption))
    return elements


def write(directory: Path, title: str, body: Iterable[str]) -> Path:
    """Write the page into a directory."""
    path = directory / PAGE
    path.write_text(html.page(title, body), encoding="utf-8")
    return path

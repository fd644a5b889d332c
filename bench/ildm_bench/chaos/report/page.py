"""The page put together."""

from __future__ import annotations

from pathlib import Path

from ildm_bench.chaos.excuses import OURS
from ildm_bench.chaos.outcome import Outcome
from ildm_bench.chaos.report import plots, tables
from ildm_bench.chaos.report.tables import Toned
from ildm_bench.chaos.verdict import INVARIANTS, admits
from ildm_bench.report import html, numbers
from ildm_bench.report.html import Tile
from ildm_bench.report.pages import save, write
from ildm_bench.report.style import drawing

TITLE = "Does what was acknowledged arrive?"
MOST_FINDINGS = 30
PROMISE = (
    "A message of QoS 1 or 2 whose acknowledgement its publisher had is owed to every session, at every "
    "site, that was subscribed to its topic and known to be so everywhere when it was published, and that "
    "lives on. Lost: it did not come. Twice: at QoS 0 or 2, from one life of the broker. Unexpected: nobody "
    "has sent it, or nobody there wanted it. Out of order: after a later one of its publisher and QoS. "
    "Retained: after quiet, sites differ, or one is older than what was acknowledged. Over bounds: memory, "
    "the spool, what is under way. Unadmitted: runs that lost more than the counters of their nodes say."
)


def page(outcome: Outcome, directory: Path, command: str) -> Path:
    """See `ildm_bench.chaos.report.write_report`."""
    with drawing():
        pictures = save(directory, [plots.recovery(outcome), plots.latency(outcome), plots.courses(outcome)])
    listed = [
        tables.by_broker(outcome),
        tables.by_fault(outcome),
        tables.said_apart(outcome),
        tables.not_promised(outcome),
    ]
    times = [
        tables.durations(outcome, "recovery", "Time to recover, from the end of a fault"),
        tables.durations(outcome, "latency", "Latency across sites, with and without faults"),
        tables.counters(outcome, admits),
    ]
    body = [
        html.header(TITLE, [", ".join(tables.names(outcome))]),
        html.paragraph(PROMISE),
        html.command(command) if command else "",
        html.tiles(tiles(outcome)),
        verdict(outcome),
        html.heading("What was found"),
        *map(_table, filter(None, listed)),
        *_findings(outcome),
        *([html.heading("Pictures"), *pictures] if pictures else []),
        html.heading("Figures"),
        *map(_table, filter(None, times)),
        *([html.heading("Notes"), html.notes(outcome.notes)] if outcome.notes else []),
    ]
    return write(directory, TITLE, body)


def tiles(outcome: Outcome) -> list[Tile]:
    """The headline figures: of our own runs, where there are any."""
    targets = {each.setting.target for each in outcome.counted}
    target = "ildm" if "ildm" in targets else next(iter(targets), "ildm")
    ours = [each for each in outcome.counted if each.setting.target == target]
    runs = {engine: sum(e.runs for e in ours if e.setting.engine == engine) for engine in ("virtual", "live")}
    shown = [
        Tile(
            "Runs", numbers.count(sum(runs.values())), ", ".join(f"{n:,} {e}" for e, n in runs.items() if n)
        ),
        Tile("Faults", numbers.count(sum(each.faults for each in ours))),
        Tile(
            "Acknowledged", numbers.count(sum(each.acknowledged for each in ours)), "messages of QoS 1 and 2"
        ),
        Tile("Owed", numbers.count(sum(each.owed for each in ours)), "deliveries"),
    ]
    for names, title in ((("lost",), "Lost"), (("twice",), "Twice"), (("order",), "Out of order")):
        amount = sum(outcome.total(name, OURS, target) for name in names)
        apart = sum(outcome.total(name, None, target) for name in names) - amount
        shown.append(
            Tile(title, numbers.count(amount), f"{numbers.count(apart)} said apart" if apart else "")
        )
    differ = outcome.total("retained", OURS, target) + outcome.total("stale", OURS, target)
    shown.append(Tile("Retained differ", numbers.count(differ), "at sites, or are old"))
    return shown


def verdict(outcome: Outcome) -> str:
    """The outcome in words."""
    others = sorted({each.setting.name for each in outcome.counted if each.setting.target != "ildm"})
    lines = [f"{name}: {_amounts(outcome, name) or 'nothing found'}." for name in others]
    short = sum(each.incomplete for each in outcome.counted)
    if short:
        lines.append(
            f"{numbers.counted(short, 'run')} ended before quiet; retained messages of these are not judged."
        )
    if outcome.runs == 0:
        return html.verdict("void", "There was no run.", [])
    if outcome.holds():
        return html.verdict("under", "All that is promised held.", lines)
    return html.verdict("void", f"What is promised did not hold: {_amounts(outcome, 'ildm')}.", lines)


def _amounts(outcome: Outcome, target: str) -> str:
    amounts = {name: outcome.total(name, OURS, target) for name in INVARIANTS}
    return ", ".join(f"{numbers.count(amount)} {name}" for name, amount in amounts.items() if amount)


def _findings(outcome: Outcome) -> list[str]:
    firsts = {(each.run, each.invariant): each for each in reversed(outcome.findings) if each.cause == OURS}
    shown = [f"{each} (seed {each.seed})" for _, each in sorted(firsts.items())][:MOST_FINDINGS]
    return [html.heading("The first found of each kind, by run"), html.notes(shown)] if shown else []


def _table(toned: Toned) -> str:
    return html.table(toned.table, tones=toned.tones)

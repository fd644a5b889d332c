"""Verdicts on what the papers say of live systems, from the figures of ``ildm-bench results``.

The bands are those of the simulator (`ildm_bench.sim.experiments.verdicts`), over the rounds of a result.
A ratio is taken round by round. A statement about the patterns is judged under both models of quotas, and is
*open* where they disagree. A sign has a line of its own. What is not measured says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from ildm_bench.measure.figures import Comparison, Limit, RunFigures
from ildm_bench.report.cli import COMPARISON, read
from ildm_bench.report.entries import voids_of
from ildm_bench.report.errors import ReportError
from ildm_bench.report.numbers import NONE
from ildm_bench.sim.experiments.verdicts import Band, around, at_least, at_most, change, mean_interval

LATENCY = "latency.sent.mean"
PATTERNS = ("patterns", "patterns-shared")
AT_LOAD = ("patterns-load", "patterns-shared-load")
PLACES = ("none", "low", "high")
UNITS = {"%", "ms", "times", "lost"}
"""Names of values that stand behind the number."""
POSITIVE = Band(0.0, None, "a sign: the interval of the difference over 0")
NOTHING = Band(0.0, 0.0, "exactly 0")
HEADING = ["stated", "ours", "held against", "verdict"]
BEGIN, END = "<!-- table: verdicts -->\n", "<!-- end -->"
Comparisons = Mapping[str, Comparison]


class Missing(Exception):  # noqa: N818 - no error: the line says that it is not measured
    """The figures of a statement are not there."""


class Values(NamedTuple):
    """What one statement is judged by: a value of each round."""

    name: str
    rounds: Sequence[float]
    form: str = ".2f"


class Statement(NamedTuple):
    """A sentence of a paper, with what it is held against."""

    words: str
    band: Band
    of: Callable[[Comparison], Iterable[Values]]
    sources: Sequence[str]
    """Names of results; each is judged by itself."""
    note: str = ""


class Judged(NamedTuple):
    """A line of the table."""

    words: str
    ours: str
    band: str
    verdict: str

    def cells(self) -> list[str]:
        return [self.words, self.ours, self.band, self.verdict]


def limit_of(comparison: Comparison, group: str, label: str) -> Limit:
    """Raises: Missing."""
    for each in comparison.groups:
        for limit in each.limits:
            if (each.name, limit.label) == (group, label) and limit.figures is not None:
                return limit
    raise Missing(f"{group}: {label}")


def egress(comparison: Comparison, group: str, label: str) -> list[float]:
    """Messages per second that came out at the limit, in each round."""
    limit = limit_of(comparison, group, label)
    assert limit.figures is not None
    return limit.spread.get("egress") or [limit.figures.egress]


def latency(comparison: Comparison, label: str) -> list[float]:
    """Mean latency of a run in each round, ms; runs are named ``GROUP: LABEL``."""
    for run in comparison.runs:
        if run.label == label and LATENCY.rpartition(".")[0] in run.latency:
            return [us / 1000 for us in run.spread.get(LATENCY) or [run.latency["latency.sent"].mean]]
    raise Missing(label)


def _quotients(ones: Sequence[float], others: Sequence[float]) -> list[float]:
    """Round by round; where one of them has fewer rounds, over the mean of the other."""
    if len(ones) == len(others):
        return [one / other for one, other in zip(ones, others, strict=True)]
    return [one / fmean(others) for one in ones]


def _differences(ones: Sequence[float], others: Sequence[float]) -> list[float]:
    if len(ones) == len(others):
        return [one - other for one, other in zip(ones, others, strict=True)]
    return [one - fmean(others) for one in ones]


def _times_alone(*wanted: tuple[str, str]) -> Callable[[Comparison], list[Values]]:
    def of(found: Comparison) -> list[Values]:
        alone = egress(found, "A", "broker alone")
        return [
            Values(f"{group} {label}", _quotients(egress(found, group, label), alone))
            for group, label in wanted
        ]

    return of


def _cost(label: str) -> Callable[[Comparison], list[Values]]:
    def of(found: Comparison) -> list[Values]:
        parts = _quotients(egress(found, "A", label), egress(found, "A", "broker alone"))
        return [Values("%", [100 * (part - 1) for part in parts], "+.1f")]

    return of


def _more(one: tuple[str, str], other: tuple[str, str]) -> Callable[[Comparison], list[Values]]:
    """By how much the egress of the one exceeds that of the other, as part of the other's."""

    def of(found: Comparison) -> list[Values]:
        parts = _quotients(egress(found, *one), egress(found, *other))
        return [Values("%", [100 * (part - 1) for part in parts], "+.1f")]

    return of


def _ms(label: str) -> Callable[[Comparison], list[Values]]:
    return lambda found: [Values("ms", latency(found, label), ".1f")]


def _later(one: str, other: str) -> Callable[[Comparison], list[Values]]:
    def of(found: Comparison) -> list[Values]:
        return [Values("ms", _differences(latency(found, one), latency(found, other)), "+.1f")]

    return of


def _runs(comparison: Comparison) -> list[RunFigures]:
    limits = [limit.figures for group in comparison.groups for limit in group.limits]
    return [*comparison.runs, *(figures for figures in limits if figures is not None)]


def _lost(found: Comparison) -> list[Values]:
    return [Values("lost", [float(sum(run.missing for run in _runs(found)))], ".0f")]


def _first_two(found: Comparison) -> list[Values]:
    """How far the slower of Mosquitto and ActiveMQ is before the faster of the two others, %."""
    behind = [fmean(egress(found, make, make)) for make in ("rabbitmq", "moquette")]
    rounds = [egress(found, make, make) for make in ("mosquitto", "activemq")]
    slower = min(rounds, key=fmean)
    return [Values("%", [100 * (each / max(behind) - 1) for each in slower], "+.1f")]


def _even(found: Comparison) -> list[Values]:
    active = egress(found, "activemq", "activemq")
    return [
        Values(label, _quotients(active, egress(found, "mosquitto", label)))
        for label in ("mosquitto", "mosquitto, default sockets")
    ]


def _shortest(make: str) -> Callable[[Comparison], list[Values]]:
    def of(found: Comparison) -> list[Values]:
        rounds = {}
        for each in ("mosquitto", "activemq", "rabbitmq", "moquette"):
            limit = limit_of(found, each, each)
            assert limit.figures is not None
            one = (
                [limit.figures.latency["latency.sent"].mean]
                if "latency.sent" in limit.figures.latency
                else []
            )
            rounds[each] = [us / 1000 for us in limit.spread.get(LATENCY) or one]
        if not all(rounds.values()):
            raise Missing("latencies")
        own = rounds.pop(make)
        nearest = min(rounds.values(), key=fmean)
        return [Values("ms", _differences(nearest, own), "+.1f")]

    return of


STATEMENTS = (
    *(
        Statement(
            f"T 5.6: a node before one broker costs about 10 % throughput, {name}",
            change(-10),
            _cost(name),
            ["patterns"],
        )
        for name in ("PF", "SF")
    ),
    *(
        Statement(
            f"T 5.6: five pairs bear at least 2 times one broker, {place}",
            at_least(2),
            _times_alone((place, "PF"), (place, "SF")),
            PATTERNS,
        )
        for place in PLACES
    ),
    Statement(
        "T 5.6: at most 4.3 times, with SF at high locality",
        at_most(4.3),
        _times_alone(("high", "SF")),
        PATTERNS,
        "faster is no fault",
    ),
    *(
        Statement(
            f"T 5.6: SF bears more than PF, {place}", POSITIVE, _more((place, "SF"), (place, "PF")), PATTERNS
        )
        for place in PLACES
    ),
    *(
        Statement(
            f"T 5.6: locality brings throughput, {low} to {high}, {name}",
            POSITIVE,
            _more((high, name), (low, name)),
            PATTERNS,
        )
        for name in ("PF", "SF")
        for low, high in (("none", "low"), ("none", "high"))
    ),
    Statement(
        "T 5.6: five pairs with SF at high locality overtake one broker of the large server",
        at_least(1),
        lambda found: [
            Values(
                "high SF",
                _quotients(egress(found, "high", "SF"), egress(found, "sum", "broker with 5 quotas")),
            )
        ],
        PATTERNS,
        "the broker has five quotas here",
    ),
    Statement("T 5.6: nothing is lost at the limit", NOTHING, _lost, PATTERNS),
    *(
        Statement(
            f"T 5.6: latency of A about 10 ms at 90 % of the limit, {name}",
            around(10),
            _ms(f"A: {name}"),
            AT_LOAD,
        )
        for name in ("PF", "SF")
    ),
    Statement(
        "T 5.6: latency, none: SF a little above PF, at 90 %",
        POSITIVE,
        _later("none: SF", "none: PF"),
        AT_LOAD,
    ),
    Statement("T 5.6: latency, low: PF above SF, at 90 %", POSITIVE, _later("low: PF", "low: SF"), AT_LOAD),
    Statement(
        "T 5.6: latency, high: PF above SF, at 90 %", POSITIVE, _later("high: PF", "high: SF"), AT_LOAD
    ),
    Statement(
        "T 5.6, S1: Mosquitto and ActiveMQ bear more than the two others", POSITIVE, _first_two, ["single"]
    ),
    Statement("T 5.6, S1: ActiveMQ and Mosquitto bear nearly as much", around(1), _even, ["single"]),
    Statement("T 5.6, S1: Mosquitto has the shortest latency", POSITIVE, _shortest("mosquitto"), ["single"]),
    Statement(
        "T 5.6, S2: ActiveMQ has the shortest latency on a whole machine",
        POSITIVE,
        _shortest("activemq"),
        ["single-whole"],
    ),
    Statement(
        "A, Fig. 2: five brokers joined as in SG-TBPS bear 3 times one",
        around(3),
        _times_alone(("low", "SG-TBPS")),
        ["patterns-overlays"],
    ),
    Statement(
        "A, Fig. 2: their latency is 6 times that of one, at 90 %",
        around(6),
        lambda found: [
            Values("times", _quotients(latency(found, "low: SG-TBPS"), latency(found, "A: broker alone")))
        ],
        ["patterns-overlays-load"],
    ),
)


def judge(statement: Statement, found: Comparisons) -> Judged:
    """The line of a statement; the verdict of all its values where they agree, else ``open``."""
    verdicts, texts = [], []
    for source in statement.sources:
        name = f"{source}: " if len(statement.sources) > 1 else ""
        try:
            values = list(statement.of(found[source]))
        except (KeyError, Missing) as error:
            absent = "" if source not in found else f" ({error})"
            texts.append(f"{name}not measured{absent}")
            verdicts.append(NONE)
            continue
        if voids_of(found[source]):
            texts.append(f"{name}void: others disturbed it")
            verdicts.append(NONE)
            continue
        verdicts.append(_together(statement.band, [mean_interval(value.rounds) for value in values]))
        texts.append(name + ", ".join(_shown(value) for value in values))
    known = {verdict for verdict in verdicts if verdict != NONE}
    verdict = NONE if not known else known.pop() if len(known) == 1 else "open"
    if verdict != NONE and NONE in verdicts:
        verdict = "open"  # one of the two models alone decides nothing
    band = f"{statement.band.words}; {statement.note}" if statement.note else statement.band.words
    return Judged(statement.words, "; ".join(texts), band, verdict)


def _together(band: Band, intervals: Sequence[tuple[float, float]]) -> str:
    """The verdict of all values: theirs where they agree, and lie on the same side of the band."""
    each = {band.holds(interval) for interval in intervals}
    above = {band.high is not None and low > band.high for low, _ in intervals}
    return each.pop() if len(each) == 1 and len(above) == 1 else "open"


def _shown(value: Values) -> str:
    low, high = mean_interval(value.rounds)
    number = f"{fmean(value.rounds):{value.form}}"
    interval = "" if len(value.rounds) < 2 else f" [{low:{value.form}}, {high:{value.form}}]"
    return f"{number} {value.name}{interval}" if value.name in UNITS else f"{value.name} {number}{interval}"


def read_all(directory: Path) -> dict[str, Comparison]:
    """The comparisons below a directory, by name of the result; those that are not there are left out.

    Raises:
        ReportError: a file cannot be read, or is no comparison.
    """
    found = {}
    for name in dict.fromkeys(source for statement in STATEMENTS for source in statement.sources):
        path = directory / name / COMPARISON
        if not path.exists():
            continue
        comparison = read(path)
        if not isinstance(comparison, Comparison):
            raise ReportError(f"{path}: is no comparison")
        found[name] = comparison
    return found


def verdicts(directory: Path) -> list[Judged]:
    """All statements, judged by what a directory of results holds."""
    found = read_all(directory)
    if not found:
        raise ReportError(f"{directory}: has none of the results that statements of the papers are about")
    return [judge(statement, found) for statement in STATEMENTS]


def markdown(lines: Sequence[Judged]) -> str:
    """The table, in brackets the 95 % interval of the mean over the rounds."""
    rows = [HEADING, ["---"] * len(HEADING), *(line.cells() for line in lines)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def fill_in(page: Path, lines: Sequence[Judged]) -> None:
    """Put the table into a page, between ``<!-- table: verdicts -->`` and ``<!-- end -->``.

    Raises:
        ReportError: the page has no such place.
    """
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ReportError(f"{page}: has no place for the verdicts: {BEGIN.strip()} ... {END}")
    page.write_text(f"{before}{begin}{markdown(lines)}{end}{after}")

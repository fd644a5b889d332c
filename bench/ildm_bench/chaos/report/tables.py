"""What ran, what was found, how long it took: as tables, with the tones of their cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ildm_bench.chaos.excuses import CAUSES, OURS
from ildm_bench.chaos.outcome import Durations, Outcome, Setting, merged
from ildm_bench.chaos.verdict import INVARIANTS
from ildm_bench.report import numbers
from ildm_bench.report.html import Tone
from ildm_bench.report.tables import Table

WORDS = {
    "lost": "Lost",
    "twice": "Twice",
    "unexpected": "Unexpected",
    "order": "Out of order",
    "retained": "Retained",
    "stale": "Retained",
    "unbounded": "Over bounds",
    "budget": "Over rates",
    "unadmitted": "Unadmitted",
}
"""The head of its column, for each invariant."""
NO_FAULT = "none"


@dataclass(frozen=True)
class Toned:
    """A table, and the tones of its cells (row, column)."""

    table: Table
    tones: Mapping[tuple[int, int], Tone] = field(default_factory=dict)


def kinds(setting: Setting) -> list[str]:
    """Of fault, in its runs."""
    return setting.fault.split("+")


def names(outcome: Outcome) -> list[str]:
    """Of what was checked: ours first, then what else."""
    found = {(each.setting.target != "ildm", each.setting.name) for each in outcome.counted}
    return [name for _, name in sorted(found)]


def by_broker(outcome: Outcome) -> Toned:
    """What was found against the promise: a row for each algorithm, broker, engine and mode."""
    whole: dict[_Row, list[int]] = defaultdict(lambda: [0] * 3)
    for each in outcome.counted:
        for place, amount in enumerate((each.runs, each.faults, each.owed)):
            whole[_row(each.setting)][place] += amount
    found: dict[tuple[_Row, str], int] = defaultdict(int)
    for one in outcome.found:
        if one.cause == OURS:
            found[_row(one.setting), WORDS[one.invariant]] += one.found
    words = list(dict.fromkeys(WORDS.values()))
    rows, tones = [], {}
    for place, (key, amounts) in enumerate(sorted(whole.items())):
        _, name, broker, engine, mode = key
        cells = [found[key, word] for word in words]
        ran = f"{engine}, {mode}" if mode else engine
        rows.append([name, broker, ran, *map(numbers.count, [*amounts, *cells])])
        for column, cell in enumerate(cells, 6):
            tones[place, column] = _tone(cell)
    head = ["What", "Broker", "Time, spool", "Runs", "Faults", "Owed", *words]
    return Toned(Table("Found against what is promised", head, rows, texts=3), tones)


_Row = tuple[bool, str, str, str, str]


def _row(setting: Setting) -> _Row:
    mode = setting.mode if setting.target == "ildm" else ""
    return (setting.target != "ildm", setting.name, setting.broker, setting.engine, mode)


def by_fault(outcome: Outcome) -> Toned:
    """The same by kind of fault and by name; a run with several kinds counts in the row of each."""
    runs: dict[tuple[str, str], int] = defaultdict(int)
    for each in outcome.counted:
        for kind in kinds(each.setting):
            runs[kind, each.setting.name] += each.runs
    found: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for one in outcome.found:
        for kind in kinds(one.setting) if one.cause == OURS else []:
            found[kind, one.setting.name][one.invariant] += one.found
    head = names(outcome)
    rows, tones = [], {}
    for place, kind in enumerate(
        sorted({kind for kind, _ in runs}, key=lambda kind: (kind != NO_FAULT, kind))
    ):
        cells = []
        for column, name in enumerate(head, 1):
            amounts = found.get((kind, name), {})
            if not runs[kind, name]:
                cells.append(numbers.NONE)
                continue
            wrong = [f"{numbers.count(amounts[key])} {key}" for key in INVARIANTS if amounts.get(key)]
            cells.append(f"{', '.join(wrong) or 'nothing'} in {numbers.counted(runs[kind, name], 'run')}")
            tones[place, column] = _tone(len(wrong))
        rows.append(["without a fault" if kind == NO_FAULT else kind, *cells])
    table = Table("Found, by kind of fault", ["Fault", *head], rows, texts=len(head) + 1)
    return Toned(table, tones)


def said_apart(outcome: Outcome) -> Toned | None:
    """What was found that does not count against the promise, and why."""
    found: dict[tuple[bool, str, str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for one in outcome.found:
        if one.cause != OURS:
            setting = one.setting
            key = (setting.target != "ildm", setting.name, setting.broker, one.invariant, one.cause)
            found[key][0] += one.found
            found[key][1] += one.runs
    if not found:
        return None
    rows = [
        [name, broker, WORDS[invariant].lower(), CAUSES[cause], numbers.count(amount), numbers.count(runs)]
        for (_, name, broker, invariant, cause), (amount, runs) in sorted(found.items())
    ]
    head = ["What", "Broker", "Found", "Why it is said apart", "Messages", "Runs"]
    tones: dict[tuple[int, int], Tone] = {(row, 4): "apart" for row in range(len(rows))}
    return Toned(Table("Exceptions, and what others have lost", head, rows, texts=4), tones)


def not_promised(outcome: Outcome) -> Toned:
    """What MQTT leaves open: how much of QoS 0 came, how often QoS 1 came again."""
    sums: dict[tuple[bool, str, bool], list[int]] = defaultdict(lambda: [0] * 5)
    for each in outcome.counted:
        calm = each.setting.fault == NO_FAULT
        key = (each.setting.target != "ildm", each.setting.name, not calm)
        for place, amount in enumerate(
            (each.owed_qos0, each.missing_qos0, each.received, each.repeated, each.refused)
        ):
            sums[key][place] += amount
    rows = [
        [
            name,
            "with" if rough else "without",
            numbers.count(due),
            numbers.share(1 - missing / due) if due else numbers.NONE,
            numbers.count(received),
            numbers.count(repeated),
            numbers.count(refused),
        ]
        for (_, name, rough), (due, missing, received, repeated, refused) in sorted(sums.items())
    ]
    head = ["What", "Faults", "QoS 0 sent", "of it came", "Received", "QoS 1 again", "Refused"]
    return Toned(Table("What is not promised", head, rows, texts=2))


def durations(outcome: Outcome, kind: str, caption: str) -> Toned | None:
    """Median, 95 %, 99 % and longest, by name and fault (or brokers together)."""
    merged = together(outcome, kind)
    if not merged:
        return None
    rows = []
    for (_, name, engine, fault), each in merged.items():
        quantiles = [numbers.duration(each.quantile(share) * 1e6) for share in (0.5, 0.95, 0.99)]
        label = {NO_FAULT: "without", "any": "with"}.get(fault, fault)
        longest = numbers.duration(each.longest * 1e6)
        rows.append([name, engine, label, numbers.count(each.messages), *quantiles, longest])
    head = ["What", "Time", "Faults" if kind == "latency" else "Fault", "Measured"]
    return Toned(Table(caption, [*head, "median", "95 %", "99 %", "longest"], rows, texts=3))


Key = tuple[bool, str, str, str]
"""Whether it is another than ours, its name, the engine, the fault."""


def together(outcome: Outcome, kind: str) -> dict[Key, Durations]:
    """Durations of a kind, those of all brokers together."""
    found: dict[Key, Durations] = {}
    for each in outcome.durations:
        if each.kind != kind:
            continue
        name = each.algorithm if each.target == "ildm" else each.target
        key = (each.target != "ildm", name, each.engine, each.fault)
        found[key] = merged(found.get(key), each)
    return dict(sorted(found.items()))


def counters(outcome: Outcome, admitting: Callable[[str], bool]) -> Toned | None:
    """Of all nodes, those that admit a loss first."""
    rows = sorted(outcome.counters.items(), key=lambda pair: (not admitting(pair[0]), pair[0]))
    if not rows:
        return None
    cells = [[name, numbers.count(value), "a loss" if admitting(name) else ""] for name, value in rows]
    return Toned(
        Table("Counters of the nodes, over all runs", ["Counter", "Sum", "Admits"], cells, remarks=1)
    )


def _tone(amount: int) -> Tone:
    return "bad" if amount else "good"

"""What comes of one run: its verdict, counts, how long things took, and how the run went."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from math import floor, log
from statistics import median

from ildm_bench.chaos import verdict
from ildm_bench.chaos.evidence import NEVER, Evidence, Message
from ildm_bench.chaos.history import Event, Run
from ildm_bench.chaos.outcome import (
    KEPT,
    STEP,
    Counted,
    Course,
    Durations,
    Finding,
    Found,
    Moment,
    Outcome,
    Setting,
    Trouble,
)

MOMENTS = 120
"""Stretches that the course of a run is divided into."""
LEAST = 1e-6
"""Seconds; what took less is counted with it."""


def outcome_of(events: Iterable[Event], about: Run) -> Outcome:
    """Of one run; ``events`` in order."""
    evidence = Evidence(about, events)
    result = verdict.judged(evidence)
    setting = Setting(**{name: getattr(about, name) for name in Setting.model_fields})
    found: dict[tuple[str, str], list[verdict.Finding]] = defaultdict(list)
    for finding in result.findings:
        found[finding.invariant, finding.cause].append(finding)
    crossings = list(_crossings(evidence))
    return Outcome(
        counted=[_counted(evidence, setting, result)],
        found=[
            Found(setting=setting, invariant=invariant, cause=cause, found=len(of), runs=1)
            for (invariant, cause), of in found.items()
        ],
        findings=[
            Finding(run=about.run, seed=about.seed, **finding._asdict())
            for of in found.values()
            for finding in sorted(of, key=lambda one: (one.t, one))[:KEPT]
        ],
        durations=[*_latencies(about, crossings), *_recoveries(evidence, crossings)],
        courses=[_course(evidence, setting.name, crossings)] if about.engine == "live" else [],
        counters=_counters(evidence),
    )


def _counted(evidence: Evidence, setting: Setting, result: verdict.Verdict) -> Counted:
    messages, receipts = evidence.messages.values(), evidence.receipts.values()
    return Counted(
        setting=setting,
        runs=1,
        seconds=evidence.about.seconds,
        incomplete=not evidence.about.complete,
        published=sum(message.t is not None for message in messages),
        acknowledged=sum(message.acknowledged is not None for message in messages),
        refused=sum(message.refused for message in messages if message.op == "publish"),
        received=len(receipts),
        repeated=sum(receipt.messages - 1 for receipt in receipts if receipt.qos == 1),
        owed=result.owed,
        owed_qos0=result.owed_qos0,
        missing_qos0=result.missing_qos0,
        faults=len(evidence.faults),
    )


def _counters(evidence: Evidence) -> dict[str, int]:
    """Of all nodes, summed up over their lives; without gauges."""
    total: Counter[str] = Counter()
    for (process, name, _), (value, _) in sorted(evidence.readings.items()):
        gauge = name.endswith("_bytes") or name.startswith("queued")
        if process.startswith("node/") and value > 0 and not gauge:
            total[name] += value
    return dict(total)


def _crossings(evidence: Evidence) -> Iterator[tuple[Message, Event]]:
    """Messages, and their first receipts at other sites: those at the own site do not depend on nodes."""
    for (_, publisher, seq), receipt in evidence.receipts.items():
        message, first = evidence.messages.get((publisher, seq)), receipt.first
        if message is None or message.op != "publish" or message.t is None or first.retain:
            continue
        if message.site != first.site:
            yield message, first


def _latencies(about: Run, crossings: list[tuple[Message, Event]]) -> list[Durations]:
    took = [first.t - message.t for message, first in crossings if message.t is not None]
    return _durations(
        about, "latency", "none" if about.fault == "none" else "any", [each for each in took if each >= 0]
    )


def _recoveries(evidence: Evidence, crossings: list[tuple[Message, Event]]) -> list[Durations]:
    times: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    """Session, its site, the publisher's -> receipts."""
    for message, first in crossings:
        times[first.session, first.site, message.site].append(first.t)
    took: dict[str, list[float]] = defaultdict(list)
    for fault, end in evidence.faults.values():
        firsts: dict[str, float] = {}
        for (session, *sites), receipts in times.items():
            if any(f"/{site}/" in f"{fault.session}/" for site in sites):
                place = bisect_right(receipts, end)
                if place < len(receipts):
                    firsts[session] = min(firsts.get(session, NEVER), receipts[place])
        took[fault.topic] += [first - end for first in firsts.values()]
    return [
        each for kind, of in sorted(took.items()) for each in _durations(evidence.about, "recovery", kind, of)
    ]


def _durations(about: Run, kind: str, fault: str, took: list[float]) -> list[Durations]:
    """None, where nothing was measured."""
    if not took:
        return []
    counts = Counter(floor(log(max(each, LEAST)) / log(STEP)) for each in took)
    return [
        Durations(
            kind=kind,
            engine=about.engine,
            target=about.target,
            algorithm=about.algorithm,
            broker=about.broker,
            fault=fault,
            counts=dict(sorted(counts.items())),
            longest=max(took),
        )
    ]


def _course(evidence: Evidence, name: str, crossings: list[tuple[Message, Event]]) -> Course:
    begins = evidence.begins
    width = max((evidence.ends - begins) / MOMENTS, 1e-3)
    moments: dict[int, list[float]] = defaultdict(list)
    for message, first in crossings:
        if message.t is not None:
            moments[floor((first.t - begins) / width)].append(first.t - message.t)
    return Course(
        run=evidence.about.run,
        name=name,
        broker=evidence.about.broker,
        moments=[
            Moment(t=place * width, p50=median(took), longest=max(took), messages=len(took))
            for place, took in sorted(moments.items())
        ],
        troubles=[
            Trouble(
                kind=fault.topic,
                target=fault.session,
                begins=fault.t - begins,
                ends=None if end == NEVER else end - begins,
            )
            for fault, end in sorted(evidence.faults.values(), key=lambda pair: (pair[0].t, pair[0].session))
        ],
    )

"""What a comparison compares: its limits and runs, flattened, each with a name and a place in the legend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ildm_bench.measure.figures import Comparison, Latency, Limit, RunFigures

LATENCY_KEYS = ("latency.sent", "throughput.sent", "latency.intended", "throughput.intended")
"""Keys of `RunFigures.latency`, that of the thesis first: l-clients, from the time that was sent."""

_KINDS = {"latency": "l-clients", "throughput": "t-clients"}
_SINCE = {"sent": "since sent", "intended": "since due"}


@dataclass(frozen=True)
class Entry:
    """One limit or one run. Rates are messages per second of t-clients, None where nothing was found."""

    group: str
    label: str
    limit: Limit | None
    figures: RunFigures | None
    interval_ms: float | None
    ingress: float | None
    egress: float | None
    ratio: float | None

    @property
    def name(self) -> str:
        """Group and label in one line."""
        return f"{self.group} · {self.label}" if self.group and self.group != self.label else self.label

    @property
    def void(self) -> str:
        """Why it is no result, empty if it is one."""
        if self.limit is not None and (why := self.limit.void):
            return why
        return self.figures.void if self.figures is not None else ""

    @property
    def at_least(self) -> bool:
        """The limit may be higher than what was measured: something else ended the search."""
        return self.limit is not None and self.limit.interval_ms is not None and not _by_target(self.limit)


def _by_target(limit: Limit) -> bool:
    return limit.bounded_by == "target"


def of_limit(limit: Limit, group: str = "") -> Entry:
    """The limit as entry: from its run, else from the point that was measured at its interval."""
    figures = limit.figures
    found = next((p for p in reversed(limit.points) if p.interval_ms == limit.interval_ms), None)
    source = figures or found if limit.interval_ms is not None else None
    return Entry(
        group=group,
        label=limit.label,
        limit=limit,
        figures=figures,
        interval_ms=limit.interval_ms,
        ingress=source.ingress if source else None,
        egress=source.egress if source else None,
        ratio=source.ratio if source else None,
    )


def of_run(figures: RunFigures) -> Entry:
    """The run as entry; one that is void has no rates to compare, but keeps its figures."""
    void = figures.verdict == "void"
    return Entry(
        group="",
        label=figures.label or figures.run,
        limit=None,
        figures=figures,
        interval_ms=figures.interval_ms,
        ingress=None if void else figures.ingress,
        egress=None if void else figures.egress,
        ratio=None if void else figures.ratio,
    )


def limits_of(comparison: Comparison) -> list[Entry]:
    """The limits of all groups, in order."""
    return [of_limit(limit, group.name) for group in comparison.groups for limit in group.limits]


def runs_of(comparison: Comparison) -> list[Entry]:
    """The single runs, in order."""
    return [of_run(figures) for figures in comparison.runs]


def reference_of(comparison: Comparison, entries: Iterable[Entry]) -> Entry | None:
    """The entry that ratios refer to: by its label, or by its name where labels repeat."""
    if not comparison.reference:
        return None
    entries = list(entries)
    exact = [e for e in entries if e.name == comparison.reference]
    return next(iter(exact or [e for e in entries if e.label == comparison.reference]), None)


def voids_of(comparison: Comparison) -> list[str]:
    """What is void in a comparison, and why."""
    entries = [*limits_of(comparison), *runs_of(comparison)]
    return [f"{entry.name}: {entry.void}" for entry in entries if entry.void]


def labels_of(entries: Iterable[Entry]) -> list[str]:
    """Labels without repetition, in order: the legend."""
    return list(dict.fromkeys(entry.label for entry in entries))


def latency_key(entries: Sequence[Entry]) -> str | None:
    """The latency that most of the entries have, None if none has any: one kind only is comparable."""
    have = {key: sum(1 for e in entries if e.figures and key in e.figures.latency) for key in LATENCY_KEYS}
    best = max(LATENCY_KEYS, key=lambda key: have[key])
    return best if have[best] else None


def latency_of(entry: Entry, key: str | None) -> Latency | None:
    """The latency of that kind; None if the entry has none or its run is void."""
    if entry.figures is None or key is None or entry.figures.verdict == "void":
        return None
    return entry.figures.latency.get(key)


def in_order(keys: Iterable[str]) -> list[str]:
    """Keys of latencies as they are listed: those of `LATENCY_KEYS` first."""
    rank = {key: place for place, key in enumerate(LATENCY_KEYS)}
    return sorted(keys, key=lambda key: (rank.get(key, len(rank)), key))


def latency_words(key: str) -> str:
    """A key of `RunFigures.latency` in words: l-clients, since sent."""
    kind, _, since = key.partition(".")
    return f"{_KINDS.get(kind, kind)}, {_SINCE.get(since, since)}"


ROLES = ("broker", "node", "proxy", "generator")


def cpu_by_role(figures: RunFigures) -> dict[str, float]:
    """CPU microseconds per message delivered, of the roles that took part; known roles first."""
    roles = dict.fromkeys([*ROLES, *(p.role for p in figures.processes)])
    use = {role: [p.cpu_us_per_delivery for p in figures.processes if p.role == role] for role in roles}
    return {role: sum(values) for role, values in use.items() if values}


def cpu_of_target(figures: RunFigures) -> float | None:
    """CPU microseconds per message delivered of all that is measured: the generator is not part of it."""
    use = {role: value for role, value in cpu_by_role(figures).items() if role != "generator"}
    return sum(use.values()) if use else None

"""What a metric is: of what kind, with which labels, in which unit; how families of counters are declared.

Names and help texts follow the conventions of Prometheus: seconds and bytes without prefixes, a counter ends
in ``_total``. Labels have few values, all known beforehand or bounded by the configuration; never a client, a
topic or an address.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]
PREFIX = "ildm_"
"""How the names of all metrics begin where they are shown to others."""


class Metric(NamedTuple):
    """One family of time series."""

    name: str
    """Without :data:`PREFIX`."""
    kind: Kind
    unit: str
    """What one is, such as ``messages``, ``seconds``, ``bytes``."""
    help: str
    labels: tuple[str, ...] = ()


class Counted(NamedTuple):
    """Where a counter of the node is shown."""

    metric: Metric
    values: tuple[str, ...] = ()
    """Of the metric's labels."""


Values = str | tuple[str, ...]


def counter(key: str, unit: str, help: str) -> dict[str, Counted]:
    """A counter that is a family of its own; ``key`` is its name in the node."""
    return {key: Counted(Metric(f"{key}_total", "counter", unit, help))}


def counters(
    name: str, unit: str, help: str, labels: tuple[str, ...], keys: Mapping[str, Values]
) -> dict[str, Counted]:
    """Counters that are one family; ``keys``: name in the node -> values of the labels."""
    metric = Metric(f"{name}_total", "counter", unit, help, labels)
    return {
        key: Counted(metric, (values,) if isinstance(values, str) else values) for key, values in keys.items()
    }


def by_reason(name: str, unit: str, help: str, reasons: Iterable[str]) -> dict[str, Counted]:
    """Counters ``NAME_REASON``, a family with the label ``reason``."""
    return counters(name, unit, help, ("reason",), {f"{name}_{reason}": reason for reason in reasons})


def united(*parts: Mapping[str, Counted]) -> dict[str, Counted]:
    """All of them.

    Raises:
        ValueError: a name is declared twice, or a family in two ways.
    """
    whole: dict[str, Counted] = {}
    families: dict[str, Metric] = {}
    for part in parts:
        for key, counted in part.items():
            if key in whole or families.setdefault(counted.metric.name, counted.metric) != counted.metric:
                raise ValueError(f"{key}: declared twice")
            whole[key] = counted
    return whole

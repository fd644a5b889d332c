"""Samples as text: Prometheus' format 0.0.4, and OpenMetrics 1.0 for whoever asks for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ildm.core.metrics import PREFIX, Metric

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


class Histogram(NamedTuple):
    """What was observed: ``counts`` of each bucket and of what is beyond the last, not accumulated."""

    bounds: Sequence[float]
    counts: Sequence[int]
    sum: float


class Sample(NamedTuple):
    """One value of a family; ``labels`` are the values, in the order of the family's labels."""

    labels: tuple[str, ...]
    value: float | Histogram


Family = tuple[Metric, Sequence[Sample]]


def wanted_type(accept: str) -> str:
    """The content type for a header ``Accept``."""
    return OPENMETRICS if "application/openmetrics-text" in accept else TEXT


def expose(families: Iterable[Family], content_type: str = TEXT) -> bytes:
    """The whole answer; a family without samples is left out."""
    openmetrics = content_type == OPENMETRICS
    lines = [line for family in families if family[1] for line in _lines(*family, openmetrics)]
    if openmetrics:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode(errors="replace")


def _lines(metric: Metric, samples: Sequence[Sample], openmetrics: bool) -> Iterator[str]:
    name = PREFIX + metric.name
    family = name.removesuffix("_total") if openmetrics and metric.kind == "counter" else name
    yield f"# HELP {family} {metric.help.translate(_HELP_ESCAPES)}"
    yield f"# TYPE {family} {metric.kind}"
    for labels, value in samples:
        pairs = list(zip(metric.labels, labels, strict=True))
        if isinstance(value, Histogram):
            yield from _histogram(name, pairs, value)
        else:
            yield f"{name}{_shown(pairs)} {_number(value)}"


def _histogram(name: str, pairs: list[tuple[str, str]], found: Histogram) -> Iterator[str]:
    total = 0
    for bound, count in zip((*found.bounds, math.inf), found.counts, strict=True):
        total += count
        yield f"{name}_bucket{_shown([*pairs, ('le', _number(bound))])} {total}"
    yield f"{name}_sum{_shown(pairs)} {_number(found.sum)}"
    yield f"{name}_count{_shown(pairs)} {total}"


def _shown(pairs: Sequence[tuple[str, str]]) -> str:
    if not pairs:
        return ""
    return "{" + ",".join(f'{label}="{value.translate(_ESCAPES)}"' for label, value in pairs) + "}"


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(value)

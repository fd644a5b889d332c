"""How far the rounds of a measurement differ, in figures and in words."""

from __future__ import annotations

from collections.abc import Sequence

from ildm_bench.measure.figures import Limit, RunFigures, Spread

PERCENTILES = ("mean", "p50", "p99", "p999")


def rounds_of(rounds: Sequence[RunFigures]) -> Spread:
    """The figures of each round: rates, ratio, ``LATENCY.mean`` and percentiles in us, ``cpu.ROLE`` in us.

    A figure that a round lacks is left out.
    """
    if not rounds:
        return {}
    found: dict[str, list[float | None]] = {
        name: [getattr(each, name) for each in rounds] for name in ("ingress", "egress", "ratio", "loss_rate")
    }
    for key in rounds[0].latency:
        for name in PERCENTILES:
            found[f"{key}.{name}"] = [
                getattr(each.latency[key], name) if key in each.latency else None for each in rounds
            ]
    for role in dict.fromkeys(use.role for use in rounds[0].processes):
        found[f"cpu.{role}"] = [
            sum(use.cpu_us_per_delivery for use in each.processes if use.role == role) for each in rounds
        ]
    return {
        name: [value for value in values if value is not None]
        for name, values in found.items()
        if None not in values
    }


def middle_of(limits: Sequence[Limit]) -> Limit:
    """Of limits of one target that were found one after the other the one in the middle, with their spread.

    It has the points and notes of all.
    """
    known = [each for each in limits if each.interval_ms is not None]
    figures = [each.figures for each in known if each.figures is not None]
    order = sorted(known, key=lambda each: each.interval_ms or 0.0)
    middle = order[(len(order) - 1) // 2] if order else limits[0]
    spread = rounds_of(figures)
    if known:
        spread["interval_ms"] = [each.interval_ms or 0.0 for each in known]
    return middle.model_copy(
        update={
            "points": [point for each in limits for point in each.points],
            "notes": list(dict.fromkeys(note for each in limits for note in each.notes)),
            "spread": spread if len(limits) > 1 else {},
        }
    )


def words(value: float | None, rounds: Sequence[float] = (), form: str = ".2f", scale: float = 1.0) -> str:
    """A figure with its smallest and largest over the rounds: ``5.1 (4.9-5.3)``; empty without a value.

    ``form`` is a format specification, ``scale`` what is multiplied by first.
    """
    if value is None:
        return ""
    if len(rounds) < 2:
        return f"{value * scale:{form}}"
    least, most = min(rounds) * scale, max(rounds) * scale
    return f"{value * scale:{form}} ({least:{form}}-{most:{form}})"

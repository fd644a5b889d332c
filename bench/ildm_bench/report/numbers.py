"""Numbers as people read them: three digits that count, and the unit that fits."""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Decimal

NONE = "\N{EN DASH}"
"""Stands where there is no value."""
TIMES = "\N{MULTIPLICATION SIGN}"

_RATES = ((1e6, "M/s"), (1e3, "k/s"), (1.0, "/s"))
_RATE_AXES = ((1e6, "million messages/s"), (1e3, "thousand messages/s"), (1.0, "messages/s"))
_TIMES = ((1e6, "s"), (1e3, "ms"), (1.0, "µs"), (1e-3, "ns"))
_SIZES = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))


def significant(value: float, digits: int = 3) -> str:
    """The number rounded to so many digits that count, in plain notation: 0.0123, 1.5, 12,300."""
    if not math.isfinite(value):
        return NONE
    rounded = float(f"{value:.{digits}g}")
    if not rounded:
        return "0"
    decimals = max(digits - 1 - math.floor(math.log10(abs(rounded))), 0)
    text = f"{rounded:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _with_unit(value: float, units: tuple[tuple[float, str], ...]) -> str:
    if not math.isfinite(value):
        return NONE
    # Rounded first, so that 999.9 k/s becomes 1 M/s and not 1,000 k/s.
    rounded = float(f"{value:.3g}")
    factor, unit = _unit(rounded, units) if rounded else next(u for u in units if u[0] == 1.0)
    return f"{significant(rounded / factor)} {unit}"


def _unit(value: float, units: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    return next((unit for unit in units if abs(value) >= unit[0]), units[-1])


def rate(per_second: float) -> str:
    """Messages per second: 12.3 k/s."""
    return _with_unit(per_second, _RATES)


def duration(microseconds: float | None) -> str:
    """A time given in microseconds: 85 µs, 1.23 ms; of None that there is none."""
    return NONE if microseconds is None else _with_unit(microseconds, _TIMES)


def size(size_bytes: float) -> str:
    """Bytes by powers of 1024: 85.3 MiB."""
    return _with_unit(size_bytes, _SIZES)


def rate_axis(largest: float) -> tuple[float, str]:
    """What to divide rates by on an axis that reaches `largest` messages per second, and the unit then."""
    return _unit(largest, _RATE_AXES)


def time_axis(largest: float) -> tuple[float, str]:
    """What to divide microseconds by on an axis that reaches `largest`, and the unit then."""
    return _unit(largest, _TIMES)


def size_axis(largest: float) -> tuple[float, str]:
    """What to divide bytes by on an axis that reaches `largest`, and the unit then."""
    return _unit(largest, _SIZES)


def count(number: int) -> str:
    """A whole number in groups of three digits."""
    return f"{number:,}"


def counted(number: int, noun: str) -> str:
    """So many of a thing: 1 world, 3 worlds."""
    return f"{count(number)} {noun}{'s' * (number != 1)}"


def interval(milliseconds: float | None) -> str:
    """An interval between two messages of a publisher: 2.1 ms."""
    return NONE if milliseconds is None else f"{milliseconds:.6g} ms"


def ratio(value: float) -> str:
    """The ratio of Definition 1, to four decimals and never upward: 0.98999 must not look like 0.99."""
    if not math.isfinite(value):
        return NONE
    # Through the shortest decimal form: 0.9999 * 10000 as floats is less than 9999.
    return str(Decimal(repr(value)).quantize(Decimal("0.0001"), rounding=ROUND_FLOOR))


def share(value: float) -> str:
    """A share of one as percentage: 0.12 %."""
    return f"{significant(value * 100)} %" if math.isfinite(value) else NONE


def factor(value: float) -> str:
    """How many times a reference, the sign of multiplication before it."""
    return f"{TIMES}{significant(value)}" if math.isfinite(value) else NONE

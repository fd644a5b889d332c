"""What all sections of the file are made of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ildm.address import Address


class Section(BaseModel):
    """Keys that belong together; others are refused, and none changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


_WITH_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([A-Za-z]+)")
_SIZES = {"b": 1} | {
    f"{letter}{rest}": (1024 if rest != "b" else 1000) ** power
    for power, letter in enumerate("kmgt", 1)
    for rest in ("", "b", "ib")
}
_RATES: dict[str, float] = {"bit": 0.125, "b": 1} | {
    f"{letter}{rest}": (1000 if rest != "ib" else 1024) ** power / (8 if rest == "bit" else 1)
    for power, letter in enumerate("kmg", 1)
    for rest in ("bit", "b", "ib")
}
_DURATIONS = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


def _off(value: object) -> object:
    return "off" if value is False else value


OFF = BeforeValidator(_off)
"""YAML takes ``off`` for a truth value."""


def _number(value: object, units: Mapping[str, float], expected: str) -> object:
    """Text with a unit as a number; what is no text stays."""
    if not isinstance(value, str) or value.isdecimal():
        return value
    found = _WITH_UNIT.fullmatch(value.strip())
    factor = None if found is None else units.get(found[2].lower())
    if found is None or factor is None:
        raise ValueError(expected)
    number = float(found[1]) * factor
    return int(number) if number.is_integer() else number


def _in_bytes_a_second(value: object) -> object:
    expected = (
        "expected a number of bytes a second, also with a unit: 64kbit, 1mbit, 16kB (1000s), 16KiB (1024s)"
    )
    number = _number(value, _RATES, expected)
    return int(number) if isinstance(value, str) and isinstance(number, float) else number


def _in_bytes(value: object) -> object:
    return _number(value, _SIZES, "expected a number of bytes, also with a unit: 32MiB (1024s), 10GB (1000s)")


def _as_part(value: object) -> object:
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            return float(value.strip()[:-1]) / 100
        except ValueError:
            raise ValueError("expected a part of one, also as 30%") from None
    return value


def _in_seconds(value: object) -> object:
    return _number(
        value, _DURATIONS, "expected a number of seconds, also with a unit: 500ms, 10s, 5m, 2h, 7d"
    )


IN_BYTES = BeforeValidator(_in_bytes)
"""A number may be written with a unit: ``32MiB``."""
AS_PART = BeforeValidator(_as_part)
"""A number may be written in percent: ``30%``."""
IN_SECONDS = BeforeValidator(_in_seconds)
"""A number may be written with a unit: ``7d``."""
LOWEST_RATE = 125
HIGHEST_RATE = 10 << 30
Rate = Annotated[
    int,
    BeforeValidator(_in_bytes_a_second),
    Field(ge=LOWEST_RATE, le=HIGHEST_RATE, json_schema_extra={"unit": "bytes a second"}),
]
"""Bytes a second; may be written in bits: ``64kbit``."""
Bytes = Annotated[int, IN_BYTES, Field(ge=1024, le=1 << 30, json_schema_extra={"unit": "bytes"})]
Seconds = Annotated[float, IN_SECONDS, Field(gt=0, le=86400 * 365, json_schema_extra={"unit": "seconds"})]

AnySection = TypeVar("AnySection", bound=Section)


def anchored(section: AnySection, base: Path) -> AnySection:
    """With all paths, those of unix sockets, too, relative to the directory ``base``."""
    placed = ((name, value, _placed(value, base)) for name, value in section)
    changed = {name: now for name, value, now in placed if now is not value}
    return section.model_copy(update=changed) if changed else section


def _placed(value: Any, base: Path) -> Any:
    """What has no path within stays the same object."""
    match value:
        case Section():
            return anchored(value, base)
        case Path():
            return base / value.expanduser()
        case Address(scheme="unix"):
            return value._replace(host=str(base / Path(value.host).expanduser()))
        case list():
            items = [_placed(each, base) for each in value]
            return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        case dict():
            pairs = {key: _placed(each, base) for key, each in value.items()}
            return pairs if any(pairs[key] is not each for key, each in value.items()) else value
    return value

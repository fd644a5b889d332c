"""What several tables have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from ildm.admin.client import Neighbors, Page
from ildm.cli.terminal import cell, table


def counters(counters: Mapping[str, int]) -> RenderableType:
    if not counters:
        return Text("nothing counted yet", style="dim")
    grid = table(["counter", ">number"])
    for name in sorted(counters):
        grid.add_row(cell(name), cell(counters[name]))
    return grid


def pairs(pairs: Mapping[str, Any]) -> str:
    return ", ".join(f"{cell(name)}: {cell(value)}" for name, value in pairs.items())


def noted(found: Mapping[str, Any]) -> str:
    """Facts in a line: those that merely hold by their names, those that do not are left out."""
    return ", ".join(
        cell(name) if value is True else f"{cell(name)} {cell(value)}"
        for name, value in found.items()
        if value is not None and value is not False
    )


def listed(rows: Iterable[Mapping[str, Any]]) -> RenderableType:
    """A table of whatever columns the rows have; numbers are set right."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if not columns:
        return Text("none", style="dim")
    numbers = {
        name
        for name in columns
        if all(isinstance(row.get(name), int | float | None) for row in rows)
        and not any(isinstance(row.get(name), bool) for row in rows)
    }
    grid = table([f"{'>' * (name in numbers)}{cell(name)}" for name in columns])
    for row in rows:
        grid.add_row(*(cell(row.get(name)) for name in columns))
    return grid


def rest(page: Page | Neighbors) -> list[RenderableType]:
    left = page.total - len(page.items)
    return [Text(f"{left:,} more of {page.total:,}; see --limit", style="dim")] if left > 0 else []


def used(seconds: float) -> str:
    """A time of use: ``2,400 s``, ``1.25 s``, ``310 ms``, ``12 µs``, ``90 ns``."""
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    for unit, factor in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"

"""How text, numbers and tables look on a terminal: what all that is shown there has in common."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import TextIO

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ildm.text import printable

STATES = {
    "active": ("●", "green"),
    "running": ("●", "green"),
    "connecting": ("◌", "cyan"),
    "ildm_adding": ("◌", "cyan"),
    "ildm_removing": ("◌", "cyan"),
    "blocked": ("◑", "yellow"),
    "duplicate": ("◑", "yellow"),
    "down": ("○", "red"),
    "refused": ("✕", "red"),
    "removed": ("✕", "dim"),
    "stopped": ("○", "red"),
}
"""Symbol and colour of a link's or node's state; the word always stands beside them."""

UNLIMITED = 4096
"""Width of output that is no terminal: nothing is cut off or wrapped."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the caller, instead of ending the process."""
        raise BrokenPipeError


def make_console(stream: TextIO | None = None) -> Console:
    """A console on standard output or ``stream``.

    On a terminal as wide as that, else without any limit or colour. What looks like markup in the
    text of strangers is text.
    """
    stream = stream or sys.stdout
    width = None if stream.isatty() else UNLIMITED
    return _Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def state(word: object, note: str | None = None) -> Text:
    """A state with its symbol and colour, and perhaps something after it."""
    symbol, style = STATES.get(str(word), ("·", ""))
    text = Text(f"{symbol} {cell(word)}", style=style)
    if note:
        text.append(f"  {note}", style="dim")
    return text


def cell(value: object) -> str:
    """One value; text of strangers cannot command the terminal."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.6g}"
    return printable(str(value))


def duration(seconds: float) -> str:
    """The two largest units: ``5d 4h``, ``3m 12s``."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        number, left = divmod(left, size)
        if number or (unit == "s" and not parts):
            parts.append(f"{number}{unit}")
    return " ".join(parts[:2])


def since(moment: float | None) -> str:
    """Time passed since a Unix time."""
    return "-" if moment is None else duration(time.time() - moment)


def size(number: int) -> str:
    """Bytes: ``812 B``, ``1.2 MB``."""
    amount = float(number)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def table(columns: Iterable[str], title: str | None = None) -> Table:
    """An empty table in the house style; a column whose name begins with ``>`` is set right."""
    made = Table(
        box=box.ROUNDED if sys.stdout.isatty() else None,
        border_style="dim",
        header_style="bold",
        title=title,
        title_style="bold",
        title_justify="left",
        pad_edge=sys.stdout.isatty(),
    )
    for column in columns:
        made.add_column(
            column.removeprefix(">"), justify="right" if column[:1] == ">" else "left", overflow="fold"
        )
    return made


def facts(pairs: Iterable[tuple[str, RenderableType]]) -> Table:
    """Names and values in two columns."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(name, value)
    return grid

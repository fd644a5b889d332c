"""How the pictures look: on a screen, on paper, without colours."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH = 7.5
"""Inches: what fits between the margins of a sheet of A4 without being made much smaller."""

INK, MUTED, GRID, ALARM = "#222222", "#5a5a5a", "#e3e3e3", "#a3322a"

_NOT_XML = re.compile("[^ -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Look:
    """Colour, hatch, line and marker that mean one thing in all pictures of a page."""

    color: str
    hatch: str
    line: Any  # a name or (offset, lengths), as matplotlib takes it
    marker: str


# Colours after Okabe and Ito, told apart with any colour vision; neighbours differ in lightness too, and
# hatches, lines and markers say the same again for prints in grey.
_LOOKS = (
    Look("#0072b2", "", "-", "o"),
    Look("#e69f00", "////", (0, (5, 1.5)), "s"),
    Look("#009e73", "\\\\\\\\", (0, (1.2, 1.2)), "^"),
    Look("#cc79a7", "xxxx", (0, (6, 1.5, 1.2, 1.5)), "D"),
    Look("#56b4e9", "----", (0, (9, 2)), "v"),
    Look("#d55e00", "||||", (0, (3, 1, 1, 1, 1, 1)), "P"),
    Look("#444444", "++++", (0, (2, 3)), "X"),
)
ROLE_LOOKS = {
    "broker": _LOOKS[0],
    "node": _LOOKS[1],
    "proxy": _LOOKS[2],
    "generator": Look("#b8b8b8", "xxxx", ":", "X"),
}


def look(index: int) -> Look:
    """The look of the label with that place; beyond the palette colours come back with another hatch."""
    turn, place = divmod(index, len(_LOOKS))
    if not turn:
        return _LOOKS[place]
    shifted = _LOOKS[(place + turn) % len(_LOOKS)]
    return Look(_LOOKS[place].color, shifted.hatch, shifted.line, shifted.marker)


def role_look(role: str) -> Look:
    return ROLE_LOOKS.get(role, _LOOKS[3])


_SETTINGS: Any = {
    "font.family": ["DejaVu Sans"],
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.labelsize": 8.5,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#8a8a8a",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": "#8a8a8a",
    "ytick.color": "#8a8a8a",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "hatch.linewidth": 0.9,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.handlelength": 3.4,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "figure.dpi": 160,
    "savefig.dpi": 160,
    # Text stays text: small, and it can be selected, searched and read aloud.
    "svg.fonttype": "none",
    # Without it the names inside differ each time, and the same figures would give another page.
    "svg.hashsalt": "ildm",
    # A dollar in a label is a dollar.
    "text.parse_math": False,
    "axes.unicode_minus": True,
}


@contextmanager
def drawing() -> Iterator[None]:
    """Within it figures are made and saved in the style of the reports; the settings before come back."""
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        # Labels may be in any script: the page has the text and the browser its fonts, only the PNG shows
        # boxes, which is no reason to bother who writes a report.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        yield


def new_figure(height: float) -> Figure:
    """An empty figure of the common width and `height` inches; belongs to no global list of figures."""
    return Figure(figsize=(WIDTH, height), layout="constrained")


def plain_grid(axes: Axes, axis: Literal["x", "y"]) -> None:
    """Grid lines across one axis only."""
    axes.grid(False)
    axes.grid(True, axis=axis)


def one_line(text: str) -> str:
    """The text in one line, without what XML has no way to write."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", " ".join(text.split()))


def short(text: str, width: int) -> str:
    """One line of at most `width` characters: long labels are in full in the tables."""
    line = one_line(text)
    return line if len(line) <= width else line[: width - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"

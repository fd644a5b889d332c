"""Pages of HTML that need nothing else: no script, no request, every text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Literal

from ildm_bench.report.tables import Table

Tone = Literal["good", "bad", "apart"]
"""Of a cell: all is well, it is not, or it is not but is not to be counted."""

_DENSE = 8
"""Tables with more columns are set smaller."""

# Forbids what the page has no need of, should a text ever get through unescaped.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="$policy">
<link rel="icon" href="data:,">
<title>$title</title>
<style>
$style
</style>
</head>
<body>
<main>
$body
</main>
</body>
</html>
""")


@dataclass(frozen=True)
class Tile:
    """A headline figure: what it is, the value, a few words about it."""

    name: str
    value: str
    about: str = ""


def page(title: str, body: Iterable[str]) -> str:
    """A whole page; `body` are elements."""
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8").strip()
    inside = "\n".join(part for part in body if part)
    return _PAGE.substitute(title=escape(title), policy=_POLICY, style=style, body=inside)


def header(title: str, lines: Iterable[str]) -> str:
    paragraphs = "".join(f"<p>{escape(line)}</p>\n" for line in lines if line)
    return f"<header>\n<h1>{escape(title)}</h1>\n{paragraphs}</header>"


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str) -> str:
    return f'<p class="text">{escape(text)}</p>'


def command(text: str) -> str:
    return f"<pre><code>{escape(text)}</code></pre>"


def notes(lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>\n" for line in lines)
    return f"<ul>\n{items}</ul>" if items else ""


def tiles(shown: Iterable[Tile]) -> str:
    """The headline figures beside each other."""
    parts = []
    for tile in shown:
        about = f'<dd class="about">{escape(tile.about)}</dd>' if tile.about else ""
        parts.append(
            f'<div class="tile"><dt>{escape(tile.name)}</dt>'
            f'<dd class="value">{escape(tile.value)}</dd>{about}</div>'
        )
    return '<dl class="tiles">\n' + "\n".join(parts) + "\n</dl>" if parts else ""


def verdict(kind: str, headline: str, lines: Iterable[str]) -> str:
    """The outcome in words; `kind` is ``under``, ``over`` or ``void``."""
    paragraphs = "".join(f"<p>{escape(line)}</p>\n" for line in lines if line)
    return (
        f'<section class="verdict {kind}" aria-label="Verdict">\n'
        f"<p><strong>{escape(headline)}</strong></p>\n{paragraphs}</section>"
    )


def picture(svg: str, caption: str) -> str:
    return f"<figure>\n{svg}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"


def table(
    content: Table, mark: int | None = None, tones: Mapping[tuple[int, int], Tone] | None = None
) -> str:
    """The table; `mark` is the index of a row that stands out, `tones` colour cells (row, column).

    What a colour says the cell says, too.
    """
    coloured = tones or {}
    head = "".join(
        f'<th scope="col"{_classes(content, column)}>{escape(cell)}</th>'
        for column, cell in enumerate(content.head)
    )
    rows = []
    for index, row in enumerate(content.rows):
        first, *rest = row
        cells = f'<th scope="row">{escape(first)}</th>' + "".join(
            f"<td{_classes(content, column, coloured.get((index, column)))}>{escape(cell)}</td>"
            for column, cell in enumerate(rest, 1)
        )
        marked = ' class="mark"' if index == mark else ""
        rows.append(f"<tr{marked}>{cells}</tr>\n")
    dense = ' class="dense"' if len(content.head) > _DENSE else ""
    return (
        f'<div class="scroll">\n<table{dense}>\n<caption>{escape(content.caption)}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{''.join(rows)}</tbody>\n</table>\n</div>"
    )


def _classes(content: Table, column: int, tone: Tone | None = None) -> str:
    names = " ".join(filter(None, ["number" if content.is_number(column) else "", tone or ""]))
    return f' class="{names}"' if names else ""

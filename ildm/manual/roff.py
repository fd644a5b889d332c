"""A manual page as text for ``man``: the macros of man(7), and what must be escaped between them."""

from __future__ import annotations

import re
from datetime import date

_ESCAPES = str.maketrans({"\\": r"\e", "-": r"\-", "^": r"\(ha", "~": r"\(ti", "`": r"\(ga", "'": r"\(aq"})
_PARTS = re.compile(r"``(.+?)``|`(.+?)`", re.DOTALL)


def escaped(text: str) -> str:
    """``text`` as it is to be read, every character of it: a ``-`` can be copied as one, too."""
    return _guarded(_translated(text))


def _translated(text: str) -> str:
    shown = text.translate(_ESCAPES)
    return "".join(c if ord(c) < 128 else f"\\[u{ord(c):04X}]" for c in shown)


def _guarded(line: str) -> str:
    """Not to be taken for a macro."""
    return r"\&" + line if line.startswith((".", "'")) else line


def bold(text: str) -> str:
    return rf"\fB{_translated(text)}\fR"


def italic(text: str) -> str:
    return rf"\fI{_translated(text)}\fR"


def prose(text: str) -> str:
    """Text as docstrings have it: lines are filled, and what stands in backquotes is bold."""
    pieces, at = [], 0
    filled = " ".join(text.split())
    for found in _PARTS.finditer(filled):
        pieces += [_translated(filled[at : found.start()]), bold(found[1] or found[2])]
        at = found.end()
    return _guarded("".join([*pieces, _translated(filled[at:])]))


class Page:
    """One manual page, written from its top to its end."""

    def __init__(self, name: str, section: int, purpose: str, version: str, day: date) -> None:
        self._lines = [
            # every dash that is not escaped is a hyphen; words are not divided, nor are lines stretched
            f'.TH "{escaped(name.upper())}" "{section}" "{day.isoformat()}" "ildm {version}" "ILDM"',
            ".nh",
            ".ad l",
            '.SH "NAME"',
            rf"{escaped(name)} \- {escaped(purpose)}",
        ]

    def heading(self, text: str) -> None:
        self._lines.append(f'.SH "{_argument(text)}"')

    def subheading(self, text: str) -> None:
        self._lines.append(f'.SS "{_argument(text)}"')

    def paragraph(self, *lines: str) -> None:
        """Lines that are escaped already."""
        self._lines += [".PP", *lines]

    def item(self, tag: str, *paragraphs: str) -> None:
        """A tag, escaped already, and what is to be said of it."""
        self._lines += [".TP", tag]
        for index, text in enumerate(filter(None, paragraphs)):
            self._lines += [".IP"] * (index > 0) + [text]

    def example(self, text: str) -> None:
        """Lines as they are."""
        self._lines += [".PP", ".RS 4", ".nf", *(escaped(line) for line in text.splitlines()), ".fi", ".RE"]

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def _argument(text: str) -> str:
    return escaped(text).replace('"', r"\(dq")

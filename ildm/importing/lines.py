"""The lines of a mosquitto.conf, with the files that it includes, and what is remarked of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ildm.config import ConfigError
from ildm.importing.bridge_options import SYNONYMS
from ildm.text import printable, reason

MAX_CONFIG = 4 << 20
"""Bytes of a file."""
MAX_INCLUDED = 1000
"""Files of a directory."""

_BLANK = re.compile(r"[ \t]+")
_INTEGER = re.compile(r"[ \t]*[+-]?[0-9]+")


class Line(NamedTuple):
    number: int
    option: str
    value: str
    file: str = ""
    """Where it stands, if that is not the file that was given."""

    @property
    def words(self) -> list[str]:
        """The value as Mosquitto splits it, without a comment at its end."""
        found: list[str] = []
        for word in _BLANK.split(self.value):
            if word.startswith("#"):
                break
            if word:
                found.append(word)
        return found

    @property
    def first(self) -> str:
        """The first word, also if it begins with ``#``."""
        return _BLANK.split(self.value, maxsplit=1)[0]

    @property
    def word(self) -> str:
        """The first word, to which options with one value keep."""
        return next(iter(self.words), "")


class Remark(NamedTuple):
    """What is not the same, of a line (0: of the whole)."""

    line: int
    text: str
    file: str = ""
    differs: bool = True
    """The node does not do what the source did; else there is something to do or to know."""


def remark(line: Line, text: str, *, differs: bool = True) -> Remark:
    secret = "password" in line.option or line.option in ("bridge_psk", "psk_file")
    shown = "..." if secret else line.value
    told = printable(f"{line.option} {shown}".rstrip() + f": {text}")
    return Remark(line.number, told, line.file, differs)


def number(word: str) -> int:
    """A number as C's ``atoi`` reads it: the digits at the beginning, 0 without any."""
    found = _INTEGER.match(word)
    # more digits than any option's bound has: int() refuses thousands
    return int(found[0][:20]) if found else 0


def is_plain(word: str) -> bool:
    """Whether it is a number and nothing else."""
    return word.isascii() and word.isdecimal() and len(word) < 20


def read_text(path: Path) -> str:
    """A configuration file of Mosquitto's.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_CONFIG + 1)
        if len(raw) > MAX_CONFIG:
            raise ConfigError(f"{path}: longer than {MAX_CONFIG >> 20} MiB, which no configuration is")
        return raw.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {reason(error)}") from error


def lines(text: str, source: str, complain: Callable[[Remark], None]) -> Iterator[Line]:
    """All lines that say something, those of ``include_dir`` in its place."""
    for line in _of(text):
        if line.option != "include_dir":
            yield line
            continue
        directory = Path(source).parent / line.value
        try:
            if not directory.is_dir():
                raise ConfigError("there is no such directory")
            # as Mosquitto sorts them: by letter, and of one letter the capital first
            names = sorted(directory.glob("*.conf"), key=lambda path: (path.name.lower(), path.name))
            if len(names) > MAX_INCLUDED:
                raise ConfigError(f"more than {MAX_INCLUDED} files")
            for path in names:
                for included in _of(read_text(path), str(path)):
                    if included.option != "include_dir":
                        yield included
                    else:
                        complain(remark(included, "it is taken from the main file alone"))
        except (ConfigError, OSError, ValueError) as error:
            complain(remark(line, str(error) if isinstance(error, ConfigError) else reason(error)))


def _of(text: str, file: str = "") -> Iterator[Line]:
    # not splitlines(): to Mosquitto only a line feed ends a line, and only blanks part words
    for place, raw in enumerate(text.split("\n"), 1):
        words = raw.strip(" \t\r")
        if words and not words.startswith("#"):
            option, *value = _BLANK.split(words, maxsplit=1)
            yield Line(place, SYNONYMS.get(option, option), value[0] if value else "", file)

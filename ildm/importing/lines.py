"""The lines of a mosquitto.conf, with the files that it includes, and what is remarked of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ildm.config import ConfigError
from ildm.importing.bridge_options import SYNONYMS
from ildm.text import reason

MAX_CONFIG = 4 << 20
"""Bytes of a file."""
MAX_INCLUDED = 1000
"""Files of a directory."""


class Line(NamedTuple):
    number: int
    option: str
    value: str
    file: str = ""
    """Where it stands, if that is not the file that was given."""


class Remark(NamedTuple):
    """What is not the same, of a line (0: of the whole)."""

    line: int
    text: str
    file: str = ""


def remark(line: Line, text: str) -> Remark:
    secret = "password" in line.option or line.option in ("bridge_psk", "psk_file")
    shown = "..." if secret else line.value
    return Remark(line.number, f"{line.option} {shown}".rstrip() + f": {text}", line.file)


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
                    if included.option != "include_dir":  # Mosquitto, too, takes it from the main file alone
                        yield included
        except (ConfigError, OSError) as error:
            complain(remark(line, str(error) if isinstance(error, ConfigError) else reason(error)))


def _of(text: str, file: str = "") -> Iterator[Line]:
    for number, raw in enumerate(text.splitlines(), 1):
        words = raw.strip()
        if words and not words.startswith("#"):
            option, *value = words.split(maxsplit=1)
            yield Line(number, SYNONYMS.get(option, option), value[0] if value else "", file)

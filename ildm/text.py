"""Text for people: of strangers (client identifiers, topics, payloads), and of the system's errors."""

from __future__ import annotations

import json
import re

_NUMBER = re.compile(r"^\[Errno -?\d+\] ")


def printable(text: str, keep: str = "") -> str:
    r"""``text`` with everything a terminal could take as a command written as an escape, ``\x1b``.

    Characters of ``keep`` stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escape(c) for c in text)


def json_text(value: object, indent: int | None = None) -> str:
    """``value`` as JSON whose letters stay readable, unless some of it is nothing to show on a terminal."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if printable(text, keep="\n") == text:
        return text
    return json.dumps(value, indent=indent)


def _escape(character: str) -> str:
    return ascii(character)[1:-1]


def reason(error: Exception) -> str:
    """What went wrong, without the number and the name that ``str`` of a system's error repeats."""
    if isinstance(error, OSError):
        # of what libuv has wrapped nothing but the text is left
        return error.strerror or _NUMBER.sub("", str(error))
    if isinstance(error, UnicodeDecodeError):
        return f"no UTF-8 at byte {error.start}"
    return str(error)


def shown_source(name: str) -> str:
    """Who has a subscription, as people read it; ``name`` is ``client ID`` or ``neighbor ID``."""
    kind, _, who = name.partition(" ")
    return f"neighbour {who}" if kind == "neighbor" else name

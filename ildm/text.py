"""Text of strangers (client identifiers, topics, payloads) on its way to a terminal."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    r"""``text`` with everything a terminal could take as a command written as an escape, ``\x1b``.

    Characters of ``keep`` stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escape(c) for c in text)


def _escape(character: str) -> str:
    return ascii(character)[1:-1]

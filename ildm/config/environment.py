"""Keys of the configuration from the environment: ``ILDM__BROKER__ADDRESS=10.0.0.1:1884``.

After the prefix stands the key, with ``__`` between its levels; the value is YAML, as in the file, whose own
is replaced. Single items of a list cannot be given, but the whole list can:
``ILDM__LINK__NEIGHBORS='["b:1885"]'``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

PREFIX = "ILDM__"
LONGEST = 64 << 10
"""Bytes of a value."""
DEEPEST = 8
"""Levels of a key."""


class OverrideError(ValueError):
    """A variable that cannot be a key; the text names it, without its value."""


def overridden(document: object, environment: Mapping[str, str]) -> tuple[object, dict[str, str]]:
    """The document of a file with what the environment says, and the variable of each key that is from there.

    Raises:
        OverrideError: a variable of that prefix cannot be used.
    """
    names = sorted(name for name in environment if name.startswith(PREFIX))
    if not names or not isinstance(document, dict):
        return document, {}
    changed: dict[Any, Any] = dict(document)
    sources: dict[str, str] = {}
    for name in names:
        way = name.removeprefix(PREFIX).lower().split("__")
        if not all(way) or len(way) > DEEPEST:
            raise OverrideError(f"{name}: expected {PREFIX}SECTION__KEY")
        section = changed
        for step in way[:-1]:
            inner = section.get(step)
            if inner is not None and not isinstance(inner, dict):
                raise OverrideError(f"{name}: {step} is no section")
            section[step] = section = dict(inner or {})
        section[way[-1]] = _value(name, environment[name])
        sources[".".join(way)] = name
    return changed, sources


def _value(name: str, text: str) -> object:
    if len(text) > LONGEST:
        raise OverrideError(f"{name}: longer than {LONGEST} bytes")
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError):  # whose text would show the value
        raise OverrideError(f"{name}: its value is no YAML") from None

"""What is different between two configurations, line by line, without the secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, SecretStr

from ildm.config import Config, ListenerConfig, NeighborConfig, PluginChoice
from ildm.log import MASK

LONGEST = 200
"""Characters of a value that are shown."""


class Change(NamedTuple):
    """One line of the difference."""

    key: str
    """For people: ``listeners[public].tls.cert``."""
    path: str
    """The same as a dotted name in :class:`ildm.config.Config`: ``listeners.tls.cert``."""
    before: str | None
    """None: there was none; one was added."""
    after: str | None
    """None: there is none any more."""

    def __str__(self) -> str:
        if self.before is None:
            return f"+ {self.key}: {self.after}"
        if self.after is None:
            return f"- {self.key}: {self.before}"
        return f"{self.key}: {self.before} -> {self.after}"


def differences(before: Config, after: Config) -> list[Change]:
    """All that is different, in the order of the configuration's keys."""
    found: list[Change] = []
    for name in Config.model_fields:
        if name == "listeners":  # both keys say where clients connect
            continue
        if name == "listen":
            found += _listeners(before, after)
        else:
            found += _compared(name, name, getattr(before, name), getattr(after, name))
    return found


def _listeners(before: Config, after: Config) -> Iterator[Change]:
    def named(config: Config) -> dict[str, tuple[str, ListenerConfig]]:
        return {each.label: (key, each) for key, each in config.clients_at}

    old, new = named(before), named(after)
    for label in [*old, *(label for label in new if label not in old)]:
        key, _ = new.get(label) or old[label]
        shown = "listen" if key == "listen" else f"listeners[{label}]"
        if label not in new:
            yield Change(shown, "listeners", str(old[label][1].url), None)
        elif label not in old:
            yield Change(shown, "listeners", None, str(new[label][1].url))
        elif key == "listen":
            yield from _compared(shown, "listeners.url", old[label][1].url, new[label][1].url)
        else:
            yield from _compared(shown, "listeners", old[label][1], new[label][1])


def _compared(key: str, path: str, before: object, after: object) -> Iterator[Change]:
    if before == after:
        return
    if isinstance(before, PluginChoice) and isinstance(after, PluginChoice) and before.name == after.name:
        yield from _options(f"{key}.options", f"{path}.options", before.options, after.options)
    elif isinstance(before, BaseModel) and type(before) is type(after):
        for name, field in type(before).model_fields.items():
            theirs, said = getattr(after, name), field.alias or name
            yield from _compared(f"{key}.{said}", f"{path}.{said}", getattr(before, name), theirs)
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in [*before, *(name for name in after if name not in before)]:
            there = [_shown(each[name]) if name in each else None for each in (before, after)]
            if name in before and name in after:
                yield from _compared(f"{key}[{name}]", path, before[name], after[name])
            else:
                yield Change(f"{key}[{name}]", path, *there)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _items(key, path, before, after)
    else:
        yield Change(key, path, _shown(before), _shown(after))


def _items(key: str, path: str, before: Sequence[object], after: Sequence[object]) -> Iterator[Change]:
    """Items of lists, which have an order where they are mappings, such as rules."""
    both = [*before, *after]
    if both and all(isinstance(each, PluginChoice) for each in both):
        yield from _plugins(key, path, before, after)
        return
    old, new = [_shown(each) for each in before], [_shown(each) for each in after]
    if all(isinstance(each, NeighborConfig) or not isinstance(each, BaseModel) for each in both):
        yield from (Change(key, path, text, None) for text in old if text not in new)
        yield from (Change(key, path, None, text) for text in new if text not in old)
        return
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        yield from (Change(f"{key}[{place}]", path, old[place], None) for place in range(a, b))
        yield from (Change(f"{key}[{place}]", path, None, new[place]) for place in range(c, d))


def _plugins(key: str, path: str, before: Sequence[object], after: Sequence[object]) -> Iterator[Change]:
    old = [each for each in before if isinstance(each, PluginChoice)]
    new = [each for each in after if isinstance(each, PluginChoice)]
    names = [each.name for each in old], [each.name for each in new]
    if names[0] != names[1]:
        yield Change(key, path, *(", ".join(each) or "none" for each in names))
        return
    for one, other in zip(old, new, strict=True):
        yield from _options(f"{key}[{one.name}].options", f"{path}.options", one.options, other.options)


def _options(
    key: str, path: str, before: Mapping[str, object], after: Mapping[str, object]
) -> Iterator[Change]:
    """Of a plugin: only it knows which of them are secret."""
    for name in [*before, *(name for name in after if name not in before)]:
        if name not in before or name not in after or before[name] != after[name]:
            there = [MASK if name in each else None for each in (before, after)]
            yield Change(f"{key}.{name}", path, *there)


def _shown(value: object) -> str:
    text = _text(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _text(value: object) -> str:
    match value:
        case None | bool():
            return json.dumps(value)
        case SecretStr():
            return MASK
        case float():
            return f"{value:.15g}"
        case PluginChoice():
            return value.name
        case NeighborConfig() if value == NeighborConfig(url=value.url):
            return str(value.url)
        case BaseModel():
            fields = type(value).model_fields
            given = {fields[name].alias or name: getattr(value, name) for name in value.model_fields_set}
            inside = ", ".join(f"{name}: {_text(each)}" for name, each in sorted(given.items()))
            return f"{{{inside}}}"
        case list():
            return f"[{', '.join(map(_text, value))}]"
        case Path() | str() | int():
            return str(value)
    return str(value)

"""The example configurations: each can be used, and the complete ones show every key with its default."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from ildm.config import Config, PluginChoice, load_config
from ildm.core.plugin.loading import ALGORITHMS, load_plugins

CONFIGS = Path(__file__).parents[1] / "configs"
EXAMPLES = sorted(CONFIGS.glob("*.yaml"))
COMPLETE = {"pf.yaml": "pf", "sf.yaml": "sf", "relay.yaml": None}
"""Files that show every key, with the algorithm they choose."""


def keys(document: dict[str, Any], prefix: str = "") -> dict[str, object]:
    """Dotted key -> value, of all keys that are no sections."""
    found: dict[str, object] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            found |= keys(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def typed(document: dict[str, Any]) -> dict[str, str]:
    """The same as text, so that 5 is not 5.0: seconds have a decimal point, counts have none."""
    return {key: repr(value) for key, value in keys(document).items()}


def key_order(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Dotted keys of a configuration model, in the order of their definition."""
    for name, field in model.model_fields.items():
        section, key = field.annotation, prefix + (field.alias or name)
        if isinstance(section, type) and issubclass(section, BaseModel) and section is not PluginChoice:
            yield from key_order(section, f"{key}.")
        else:
            yield key


def not_installed() -> set[str]:
    """Algorithms of this project that are younger than its installation: plugins are found by that alone."""
    declared = tomllib.loads((CONFIGS.parent / "pyproject.toml").read_text())["project"]["entry-points"]
    return set(declared[ALGORITHMS]) - {entry.name for entry in entry_points(group=ALGORITHMS)}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_loads_with_its_plugins(path: Path) -> None:
    config = load_config(path)
    if config.algorithm is not None and config.algorithm.name in not_installed():
        pytest.skip(f"{config.algorithm.name} is not installed yet: make setup does it")
    load_plugins(config)


def test_the_complete_examples_are_there() -> None:
    assert set(COMPLETE) <= {path.name for path in EXAMPLES}


@pytest.mark.parametrize("name", COMPLETE)
def test_complete_examples_show_every_key_with_its_default(name: str) -> None:
    document = yaml.safe_load((CONFIGS / name).read_text())
    chosen = load_config(CONFIGS / name).algorithm
    assert (chosen.name if chosen else None) == COMPLETE[name]
    document["algorithm"] = None
    assert typed(document) == typed(Config().model_dump(mode="json"))
    assert list(keys(document)) == list(key_order(Config))


def test_a_missing_key_and_another_default_would_be_seen() -> None:
    """The comparison is only as good as the two lists of keys: both must know sections and plain keys."""
    defaults = keys(Config().model_dump(mode="json"))
    assert list(defaults) == list(key_order(Config))
    assert {"listen", "broker.address", "link.queue_bytes", "admin.socket", "log.level"} <= set(defaults)
    assert keys({"a": 1, "b": {"c": {}, "d": {"e": None}}}) == {"a": 1, "b.d.e": None}
    assert typed({"a": {"b": 5}}) != typed({"a": {"b": 5.0}})

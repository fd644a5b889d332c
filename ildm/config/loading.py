"""The file read: one YAML document, checked as a whole before anything starts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml
from pydantic import ValidationError

from ildm.config.environment import OverrideError, overridden
from ildm.config.errors import ConfigError, problems
from ildm.config.node import Config
from ildm.config.section import anchored
from ildm.text import reason

MAX_FILE = 4 << 20
"""Bytes of a configuration file: more would take YAML a long time."""


def load_config(path: Path) -> Config:
    """Read and check a configuration file, with what the environment says in its place (see
    :mod:`ildm.config.environment`). Relative paths are relative to the file.

    Raises:
        ConfigError: unreadable, not YAML, or a key that is unknown or out of range (all are named).
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE + 1)
        if len(raw) > MAX_FILE:
            raise ConfigError(f"{path}: longer than {MAX_FILE >> 20} MiB, which no configuration is")
        text = raw.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {reason(error)}") from error
    loader = None
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        duplicates = [] if root is None else list(_duplicate_keys(root))
        document = None if root is None else loader.construct_document(root)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path}: not YAML: {error}") from error
    finally:
        if loader is not None:
            loader.dispose()
    if duplicates:
        raise ConfigError("\n".join(f"{path}: {text}" for text in duplicates))
    try:
        document, sources = overridden(document if document is not None else {}, os.environ)
    except OverrideError as error:
        raise ConfigError(f"environment: {error}") from None
    return parse_config(document, str(path), path.parent, sources)


def _duplicate_keys(root: yaml.Node) -> Iterator[str]:
    """Keys that stand in a mapping twice: YAML forbids them, PyYAML takes the last one without a word."""
    waiting = [root]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
            continue
        lines: dict[str, int] = {}
        for key, value in node.value:
            waiting += (key, value)
            if isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                if key.value in lines:
                    yield f"line {line}: key {key.value} stands in line {lines[key.value]} already"
                lines.setdefault(key.value, line)


def parse_config(document: object, name: str, base: Path, sources: Mapping[str, str] | None = None) -> Config:
    """Check a configuration document; ``name`` is used in errors, ``base`` anchors relative paths.

    ``sources``: keys that are from the environment, each with its variable.
    """
    if not isinstance(document, dict):
        raise ConfigError(f"{name}: expected a mapping of keys, found {type(document).__name__}")
    try:
        config = Config.model_validate(document)
    except ValidationError as error:
        raise ConfigError("\n".join(problems(error, name, Config, sources or {}))) from None
    return anchored(config, base)

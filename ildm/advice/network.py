"""A network as the advice sees it: read from a file, or put together from what a node knows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, get_args

import yaml
from pydantic import Field, ValidationError, model_validator

from ildm.config.errors import ConfigError, problems
from ildm.config.section import Section
from ildm.text import reason

Preference = Literal["delay", "traffic"]
PREFERENCES: tuple[Preference, ...] = get_args(Preference)
MAX_FILE = 1 << 20
"""Bytes of a file that describes a network."""
Milliseconds = Annotated[float, Field(gt=0, le=100_000)]


class Topic(Section):
    """Messages that the same sites want: one topic, or many of the same shape taken together."""

    name: str = ""
    subscribers: int = Field(
        ge=1, le=1_000_000, description="Sites with a subscriber, besides the publisher's."
    )
    rate: float = Field(default=1.0, gt=0, le=1e9, description="Messages per second: the topic's weight.")


class Network(Section):
    """Sites, their distances, their topics, and what counts."""

    sites: int = Field(ge=2, le=1_000_000)
    regions: int = Field(default=1, ge=1, le=10_000, description="Places of about equally many sites.")
    near_ms: Milliseconds = Field(default=1.0, description="One way between sites of a region.")
    far_ms: Milliseconds | None = Field(
        default=None, description="One way between regions; needed where there are several."
    )
    topics: list[Topic] = Field(min_length=1, max_length=100_000)
    churn: float = Field(
        default=0.0, ge=0, le=1e6, description="Sites that join, leave or crash, per minute."
    )
    qos: Literal[0, 1, 2] = Field(default=1, description="Of the messages, while sites come and go.")
    tolerated_loss: float = Field(default=0.0001, ge=0, le=1, description="Part of the messages, from churn.")
    prefer: Preference = "delay"

    @model_validator(mode="after")
    def _fits(self) -> Network:
        if self.regions > self.sites:
            raise ValueError(f"regions: {self.regions} are more than there are sites ({self.sites})")
        if self.regions > 1 and self.far_ms is None:
            raise ValueError("far_ms: is needed where there are several regions")
        for number, topic in enumerate(self.topics):
            if topic.subscribers >= self.sites:
                raise ValueError(
                    f"topics.{number}.subscribers: {topic.subscribers} sites besides the publisher's are "
                    f"more than there are (sites: {self.sites})"
                )
        return self

    @property
    def between_ms(self) -> float:
        """One way between sites of two regions."""
        return self.far_ms if self.far_ms is not None else self.near_ms


def load_network(path: Path) -> Network:
    """Read and check a file (YAML) with the keys of `Network`.

    Raises:
        ConfigError: unreadable, not YAML, or a key that is unknown, missing or out of range; the text names
            the file, the line and the key.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE + 1)
        if len(raw) > MAX_FILE:
            raise ConfigError(f"{path}: longer than {MAX_FILE >> 20} MiB")
        text = raw.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {reason(error)}") from error
    try:
        root = yaml.compose(text, yaml.SafeLoader)
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{path}: not YAML: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: expected a mapping of keys, found {type(document).__name__}")
    try:
        return Network.model_validate(document)
    except ValidationError as error:
        items = error.errors(include_url=False)
        texts = problems(error, "", Network, {})
        lines = [f"{path}:{_line(root, item['loc'])}{text}" for item, text in zip(items, texts, strict=True)]
        raise ConfigError("\n".join(lines)) from None


def _line(node: yaml.Node | None, way: tuple[str | int, ...]) -> int:
    """The line of a key, or of the nearest thing around it that the file has."""
    line = 1
    for step in way:
        if isinstance(node, yaml.MappingNode):
            found = next((pair for pair in node.value if pair[0].value == str(step)), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
    return line

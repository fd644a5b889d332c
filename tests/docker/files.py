"""What the files in ``docker/`` say, in a form that tests can compare: stages of Dockerfiles, services."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

PROJECT = Path(__file__).parents[2]
DOCKER = PROJECT / "docker"
COMPOSE, PAIR = DOCKER / "compose.yaml", DOCKER / "pair.yaml"
BROKERS = ("mosquitto", "activemq", "rabbitmq", "moquette")
NODES = tuple(f"node-{name}" for name in BROKERS)
CLIENT_PORT, LINK_PORT = 1883, 1885
"""Ports inside a node's container."""


class Instruction(NamedTuple):
    """One line of a Dockerfile, continued lines joined."""

    keyword: str
    flags: dict[str, str]
    """``--from=build`` is {"from": "build"}."""
    text: str

    @property
    def words(self) -> list[str]:
        """The words of an instruction in exec form (a JSON array); AssertionError for one in shell form."""
        assert self.text.startswith("["), f"{self.keyword} is not in exec form: {self.text}"
        words = json.loads(self.text)
        assert all(isinstance(word, str) for word in words)
        return list(words)


@dataclass
class Stage:
    """From one FROM to the next; `own` without what the base stages say."""

    name: str
    image: str
    """Reference of the image or name of the stage it is built on."""
    own: list[Instruction] = field(default_factory=list)
    inherited: list[Instruction] = field(default_factory=list)

    @property
    def instructions(self) -> list[Instruction]:
        return self.inherited + self.own

    def all(self, keyword: str) -> list[Instruction]:
        return [item for item in self.instructions if item.keyword == keyword]

    def last(self, keyword: str) -> Instruction:
        """The one that counts, for keywords of which the last does."""
        return self.all(keyword)[-1]

    @property
    def environment(self) -> dict[str, str]:
        return dict(pair.partition("=")[::2] for item in self.all("ENV") for pair in item.text.split())

    @property
    def ports(self) -> set[int]:
        return {int(port) for item in self.all("EXPOSE") for port in item.text.split()}

    @property
    def volumes(self) -> set[str]:
        return {path for item in self.all("VOLUME") for path in item.words}

    @property
    def health(self) -> list[str]:
        """The command of HEALTHCHECK."""
        text = self.last("HEALTHCHECK").text
        assert text.startswith("CMD "), text
        return Instruction("HEALTHCHECK", {}, text.removeprefix("CMD ")).words


def stages(path: Path) -> dict[str, Stage]:
    """Stage by name (or by number, where it has none), in the order of the file."""
    joined = re.sub(r"\\\n", " ", "\n".join(_without_comments(path.read_text())))
    found: dict[str, Stage] = {}
    for line in filter(None, (line.strip() for line in joined.splitlines())):
        keyword, _, rest = line.partition(" ")
        flags = {}
        while match := re.match(r"\s*--([a-z-]+)=(\S+)\s*", rest):
            flags[match[1]] = match[2]
            rest = rest[match.end() :]
        if keyword == "FROM":
            image, _, name = rest.partition(" AS ")
            stage = Stage(name or str(len(found)), image)
            if image in found:
                stage.inherited = found[image].instructions
            found[stage.name] = stage
        else:
            assert found, f"{path.name}: {line} stands before FROM"
            list(found.values())[-1].own.append(Instruction(keyword, flags, " ".join(rest.split())))
    return found


def _without_comments(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.lstrip().startswith("#")]


def compose(path: Path = COMPOSE) -> dict[str, Any]:
    """A Compose file, with anchors and merge keys resolved."""
    document = yaml.safe_load(path.read_text())
    assert isinstance(document, dict)
    return document


def services(path: Path = COMPOSE) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose(path)["services"]
    return found


def built_stage(service: Mapping[str, Any]) -> Stage:
    """The stage that a service's image is built from."""
    build = service["build"]
    context = (DOCKER / build["context"]).resolve()
    found = stages(context / build["dockerfile"])
    return found[build["target"]] if "target" in build else list(found.values())[-1]


def mounts(service: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Path in the container -> what is mounted there (file beside compose.yaml, or volume) and its mode."""
    found = {}
    for text in service.get("volumes", []):
        source, target, *mode = text.split(":")
        found[target] = (source, mode[0] if mode else "rw")
    return found


def relocated(words: Sequence[str], places: Mapping[str, str | Path]) -> list[str]:
    """Words of a command with paths of the container replaced; the longest path that fits counts."""
    order = sorted(places, key=len, reverse=True)
    pattern = re.compile("|".join(re.escape(place) for place in order))
    return [pattern.sub(lambda match: str(places[match[0]]), word) for word in words]

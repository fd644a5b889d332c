"""Scenarios: who publishes and subscribes where, how often and how long (thesis 5.6, Fig. 5.9)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ildm.mqtt import IldmError

MIN_PAYLOAD = 32
"""Bytes: the payload carries topic, publisher, sequence number and two times."""

MAX_PAYLOAD = 1 << 20
MAX_NAMES = 100_000

Count = Annotated[int, Field(ge=0, le=100_000)]


class ScenarioError(IldmError):
    """A scenario file that cannot be used: names the file, the key and what is allowed."""


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Sizes(Part):
    """Payload sizes in bytes that vary evenly from message to message, in every run alike."""

    min: int = Field(ge=MIN_PAYLOAD, le=MAX_PAYLOAD)
    max: int = Field(ge=MIN_PAYLOAD, le=MAX_PAYLOAD)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is more than max {self.max}")
        return self


class Topic(Part):
    """A topic with its clients. A number of clients stands for site 0, a list gives one number per site."""

    name: str = Field(min_length=1, max_length=1000, pattern=r"^[^+#\x00]+$")
    clients: Literal["throughput", "latency"] = Field(
        default="throughput",
        description="throughput: t-clients, which send at the interval that is varied. "
        "latency: l-clients, which send at an interval of their own.",
    )
    publishers: list[Count] | Count
    subscribers: list[Count] | Count
    names: int | Literal["own"] = Field(
        default=1,
        description="Topic names. 1: `name` itself. N: `name/0` to `name/N-1`, which each publisher uses in "
        "turn, as a gateway does. own: each publisher has `name/ITS-NUMBER`, as a device does. Beyond 1 the "
        "topic filter of the subscribers is `name/+`.",
    )
    interval: float | None = Field(
        default=None,
        ge=0.001,
        le=86_400_000,
        description="Milliseconds between two messages of a publisher; l-clients only.",
    )

    @field_validator("names", mode="before")
    @classmethod
    def _number_or_own(cls, names: object) -> object:
        if names != "own" and not (type(names) is int and 1 <= names <= MAX_NAMES):
            raise ValueError(f"1 to {MAX_NAMES}, or own")
        return names

    @model_validator(mode="after")
    def _interval(self) -> Self:
        if (self.interval is not None) != (self.clients == "latency"):
            raise ValueError("an interval of its own is for a topic of l-clients, which needs one")
        return self

    @property
    def topic_filter(self) -> str:
        """What the subscribers subscribe to."""
        return self.name if self.names == 1 else f"{self.name}/+"

    def names_of(self, publisher: int) -> list[str]:
        """The topic names that a publisher uses in turn; ``publisher`` is its number among all clients."""
        if self.names == 1:
            return [self.name]
        if self.names == "own":
            return [f"{self.name}/{publisher}"]
        # not all begin with the same name
        return [f"{self.name}/{(publisher + index) % self.names}" for index in range(self.names)]


class Scenario(Part):
    """A load. Times are in seconds, intervals in milliseconds, sizes in bytes."""

    name: str = Field(pattern=r"^[A-Za-z0-9._-]{1,60}$")
    description: str = ""
    duration: float = Field(default=80.0, gt=0, le=86_400)
    warm_up: float = Field(default=10.0, ge=0, description="Not counted, at the beginning.")
    cool_down: float = Field(default=10.0, ge=0, description="Not counted, at the end.")
    drain: float = Field(
        default=2.0, ge=0, le=60, description="After the last message: what is under way may arrive."
    )
    interval: float = Field(
        default=100.0, ge=0.001, le=86_400_000, description="Between two messages of one t-publisher."
    )
    read_every: float = Field(
        default=5.0,
        ge=0,
        le=100,
        description="Milliseconds between two rounds of reading from the t-subscribers, so that the "
        "generator costs less than the broker; their latencies are larger by up to this. Where much comes, "
        "rounds are more frequent. 0: at once, as l-clients always do.",
    )
    send_every: float = Field(
        default=1.0,
        ge=0,
        le=100,
        description="Milliseconds: what is due at the t-publishers within this time is sent at once, what "
        "one publisher has to send in one write.",
    )
    connect_rate: float = Field(
        default=1000.0,
        ge=0.1,
        le=100_000,
        description="Connections that are opened in a second, all clients.",
    )
    payload: Sizes = Field(
        default=Sizes(min=32, max=32), description="One size for all messages, or {min: BYTES, max: BYTES}."
    )
    qos: Literal[0, 1, 2] = 0
    protocol: Literal["3.1.1", "5"] = "3.1.1"
    sites: int = Field(default=1, ge=1, le=1000)
    topics: list[Topic] = Field(min_length=1, max_length=10_000)

    @field_validator("payload", mode="before")
    @classmethod
    def _one_size(cls, payload: object) -> object:
        if isinstance(payload, dict | Sizes):
            return payload
        if type(payload) is not int or not MIN_PAYLOAD <= payload <= MAX_PAYLOAD:
            raise ValueError(f"{MIN_PAYLOAD} to {MAX_PAYLOAD} bytes, or {{min: BYTES, max: BYTES}}")
        return {"min": payload, "max": payload}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.warm_up + self.cool_down >= self.duration:
            raise ValueError("warm_up and cool_down leave nothing of duration to measure")
        names = [topic.name for topic in self.topics]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"topic {twice!r} stands there twice")
        for topic in self.topics:
            for role in ("publishers", "subscribers"):
                counts = getattr(topic, role)
                if isinstance(counts, list) and len(counts) != self.sites:
                    raise ValueError(
                        f"topic {topic.name!r}: {role} has {len(counts)} numbers for {self.sites} sites"
                    )
        return self

    def counts(self, topic: Topic, role: Literal["publishers", "subscribers"]) -> list[int]:
        """Clients of a topic at each site."""
        counts = getattr(topic, role)
        return counts if isinstance(counts, list) else [counts] + [0] * (self.sites - 1)

    @property
    def throughput_topics(self) -> list[Topic]:
        return [topic for topic in self.topics if topic.clients == "throughput"]

    @property
    def sp_ratio(self) -> float:
        """Deliveries per message of the t-clients (thesis 5.5.4)."""
        publishers = deliveries = 0
        for topic in self.throughput_topics:
            here = sum(self.counts(topic, "publishers"))
            publishers += here
            deliveries += here * sum(self.counts(topic, "subscribers"))
        return deliveries / publishers if publishers else 0.0

    def shortened(self, seconds: float) -> Scenario:
        """The same load for a shorter time, the cut parts shortened alike."""
        factor = seconds / self.duration
        return self.model_copy(
            update={
                "duration": seconds,
                "warm_up": self.warm_up * factor,
                "cool_down": self.cool_down * factor,
            }
        )


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file.

    Raises:
        ScenarioError: it cannot be read, is no YAML, or says something that is not allowed.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:  # ValueError: also a date that does not exist
        raise ScenarioError(f"{path}: {error}") from error
    if not isinstance(data, dict):
        raise ScenarioError(f"{path}: a mapping of keys is needed at the top")
    try:
        return Scenario.model_validate(data)
    except ValidationError as error:
        lines = (
            f"{path}: {'.'.join(map(str, e['loc'])) or 'scenario'}: {e['msg'].removeprefix('Value error, ')}"
            for e in error.errors()
        )
        raise ScenarioError("\n".join(lines)) from error

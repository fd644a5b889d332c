"""What an implementation gives to the suite."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple, TypeVar

import pytest

from ildm.api import Algorithm, Peer
from ildm.testing.contract.probes import Probe

SOON = 0.05
"""Seconds; what a timer of a test waits for."""
_Test = TypeVar("_Test", bound=Callable[..., None])


def states(*names: str) -> Callable[[_Test], _Test]:
    """Marks a test with the members of the interface it is about."""

    def mark(test: _Test) -> _Test:
        test.states = names  # type: ignore[attr-defined]
        return test

    return mark


class Injected(NamedTuple):
    """What the node has published in its local broker."""

    topic: str
    payload: bytes
    qos: int
    retain: bool


class Stage(ABC):
    """Nodes of one implementation, which all run one algorithm."""

    cannot: ClassVar[Mapping[str, str]] = {}
    """Test -> why the implementation fails it."""

    def __init__(self, algorithm: type[Algorithm]) -> None:
        self.algorithm = algorithm

    @abstractmethod
    def add(self, name: str) -> Probe:
        """Start a node, with a broker of its own; answers its algorithm."""

    @abstractmethod
    def until(self, condition: Callable[[], object]) -> None:
        """Let time pass until a condition holds; an assertion fails if it never does."""

    @abstractmethod
    def quiet(self) -> None:
        """Let everything happen that is under way."""

    @abstractmethod
    def link(self, here: str, far: str) -> None:
        """Node ``here`` is told that ``far`` is its neighbour."""

    @abstractmethod
    def unlink(self, here: str, far: str) -> None:
        """Node ``here`` is told that ``far`` is its neighbour no longer."""

    @abstractmethod
    def hold(self, here: str, far: str) -> None:
        """Let what node ``here`` sends to its neighbour ``far`` wait."""

    @abstractmethod
    def release(self, here: str, far: str) -> None:
        """Let it pass again."""

    @abstractmethod
    def kill(self, name: str) -> None:
        """End a node without a word."""

    @abstractmethod
    def stop(self, name: str) -> None:
        """Begin to stop a node."""

    @abstractmethod
    def subscribe(self, name: str, topic_filter: str, qos: int = 0, client: str = "c") -> None: ...

    @abstractmethod
    def unsubscribe(self, name: str, topic_filter: str, client: str = "c") -> None: ...

    @abstractmethod
    def publish(
        self, name: str, topic: str, payload: bytes = b"", qos: int = 0, retain: bool = False,
        expiry: int | None = None,
    ) -> None:  # fmt: skip
        """A local client publishes; always the same one."""

    @abstractmethod
    def injected(self, name: str) -> Sequence[Injected]: ...

    @abstractmethod
    def failures(self, name: str) -> int:
        """How often the node's algorithm has failed, as the implementation counts or reports it."""

    @abstractmethod
    def counters(self, name: str) -> Mapping[str, int]:
        """What the algorithm has counted."""

    @abstractmethod
    def gauges(self, name: str) -> Mapping[str, float]:
        """What the algorithm has measured."""

    @abstractmethod
    def logged(self, name: str) -> Sequence[tuple[str, Mapping[str, object]]]:
        """What the algorithm has logged: events and fields."""

    def listener(self) -> tuple[Peer, Callable[[], Sequence[object]], Callable[[bytes], None]]:
        """A program that speaks MQTT: its address, what it has received, and how to let it send."""
        raise NotImplementedError


Make = Callable[[type[Algorithm]], Stage]
"""Puts the implementation on, with an algorithm."""


class Contract:
    """A part of the suite; see :class:`ildm.testing.contract.NodeContract`."""

    stage: ClassVar[type[Stage]]

    @pytest.fixture
    def make(self, request: pytest.FixtureRequest) -> Make | Iterator[Make]:
        self.excuse(request)
        return self.stage

    def excuse(self, request: pytest.FixtureRequest) -> None:
        """Expect the test to fail where the implementation has a reason."""
        reason = self.stage.cannot.get(request.function.__name__)
        if reason is not None:
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))

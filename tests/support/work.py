"""Work as a number that is the same on every machine: the calls a program makes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from ildm.testing.virtual.world import World


class Work:
    """Counts calls in the events of a world, of functions of Python and of C, while it is entered::

    with Work(world) as work:
        world.run(1)
    assert work.heaviest < 1000
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.calls = 0
        self.heaviest = 0
        """Calls in the event that made most: all others wait so long for the event loop."""

    def __enter__(self) -> Self:
        self.world.around_event = self._event
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.world.around_event = None

    def _event(self, happen: Callable[[], None]) -> None:
        start = self.calls
        sys.setprofile(self._called)
        try:
            happen()
        finally:
            sys.setprofile(None)
        self.heaviest = max(self.heaviest, self.calls - start)

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self.calls += 1

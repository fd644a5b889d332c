"""Delays of single links of a world in virtual time."""

from __future__ import annotations

from ildm.testing.virtual.pipe import Pipe
from ildm.testing.virtual.world import World
from tests.support.site import Site


class Delays:
    """One-way delays between nodes by their names, in seconds; they hold for connections there are, too."""

    def __init__(self, world: World, default: float = 0.005, **between: float) -> None:
        self.world = world
        self.default = default
        self.between = {frozenset(pair): delay for pair, delay in between.items()}
        world.joined = self._joined

    def set(self, pair: str, delay: float) -> None:
        """``pair``: the names of two sites, a letter each."""
        self.between[frozenset(pair)] = delay
        for pipe in self.world.pipes:
            self._joined(pipe)

    def _joined(self, pipe: Pipe) -> None:
        ends = [end.owner.name for end in (pipe, pipe.other) if end.owner is not None]
        if len(ends) == 2:
            delay = self.between.get(frozenset(ends), self.default)
            pipe.latency = pipe.other.latency = delay


def tree(sites: list[Site]) -> set[str]:
    """The links that carry messages, each by its ends, on which both ends agree."""
    ends = [(site.name, far) for site in sites for far, state in site.links().items() if state == "active"]
    assert all((far, near) in ends for near, far in ends), ends
    return {"".join(sorted(pair)) for pair in ends}

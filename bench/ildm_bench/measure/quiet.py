"""Whether a machine was quiet while something was measured: what is not measured in quiet is void.

*Others* are all programs but those that take part: the target's processes, the load generator, and the
program that measures, each with its children.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field

from ildm.mqtt import IldmError
from ildm_bench.processes import Snapshot

T = TypeVar("T")

OTHERS = 0.15
"""Cores that others may use while something is measured."""
STOLEN = 0.1
"""Cores that the host of a virtual machine may keep from it meanwhile."""
NAMED = 3
"""Of the others, so many are named, the busiest first."""
WORTH_NAMING = 0.01
"""Cores that one of them has to use for that."""
LOOK = 1.0
"""Seconds over which a machine has to be quiet before a measurement begins."""
PATIENCE = 600.0
"""Seconds that a measurement waits for a quiet machine."""
TRIES = 5
"""Times that a measurement is repeated which others disturbed."""
SAY_AGAIN = 30.0
"""Seconds after which who is busy is said again."""


class QuietError(IldmError):
    """The machine did not become quiet, or did not stay so: nothing was measured."""


class Busy(BaseModel):
    """A process that has no part in a measurement."""

    model_config = ConfigDict(extra="forbid")

    name: str
    pid: int
    cores: float

    def __str__(self) -> str:
        return f"{self.name} ({self.pid}) {self.cores:.2f}"


class Disturbance(BaseModel):
    """What others did to a measurement."""

    model_config = ConfigDict(extra="forbid")

    others: float = Field(default=0.0, description="Cores that other programs used.")
    stolen: float = Field(default=0.0, description="Cores that the host kept from this virtual machine.")
    who: list[Busy] = Field(default_factory=list, description="The busiest of the other programs.")

    @property
    def quiet(self) -> bool:
        return not self.reason

    @property
    def reason(self) -> str:
        """Why what was measured is void, empty if it is not."""
        parts = []
        if self.others > OTHERS:
            names = f": {', '.join(map(str, self.who))}" if self.who else ""
            parts.append(f"other programs used {self.others:.2f} of a core ({OTHERS:g} are allowed){names}")
        if self.stolen > STOLEN:
            text = f"the host kept {self.stolen:.2f} of a core from this machine ({STOLEN:g} are allowed)"
            parts.append(text)
        return "; ".join(parts)


def worst(parts: Sequence[Disturbance]) -> Disturbance:
    """The largest of each of several measurements; who was busy in the worst of them."""
    if not parts:
        return Disturbance()
    noisiest = max(parts, key=lambda part: part.others)
    return noisiest.model_copy(update={"stolen": max(part.stolen for part in parts)})


def between(before: Snapshot, after: Snapshot, seconds: float, own: Sequence[int]) -> Disturbance:
    """What others than the trees of ``own`` did between two moments, ``seconds`` apart."""
    if seconds <= 0:
        return Disturbance()
    trees = before.trees(own) | after.trees(own)
    known = after.used(trees) - before.used(trees)
    use = {pid: used for pid, used in _use(before, after).items() if pid not in trees}
    # of processes that nobody has waited for only the machine's own time tells
    others = max(sum(used for used in use.values() if used > 0), after.busy - before.busy - known)
    found = [
        Busy(name=after.processes[pid].name, pid=pid, cores=round(used / seconds, 3))
        for pid, used in use.items()
        if used >= WORTH_NAMING * seconds
    ]
    found.sort(key=lambda each: -each.cores)
    return Disturbance(
        others=max(0.0, round(others / seconds, 4)),
        stolen=round((after.stolen - before.stolen) / seconds, 4),
        who=found[:NAMED],
    )


def _use(before: Snapshot, after: Snapshot) -> dict[int, float]:
    """CPU seconds of each process that is still there; those of a child that has ended are its parent's."""
    use = {pid: process.own + process.ended for pid, process in after.processes.items()}
    for pid, process in before.processes.items():
        holder = pid if pid in use else process.parent
        if holder in use:  # what it had used before was not used in between
            use[holder] -= process.own + process.ended
    return use


class Watch:
    """Looks at what others do from its making on; ``own`` are processes beside this one and its children."""

    def __init__(self, own: Sequence[int] = ()) -> None:
        self._own = [os.getpid(), *own]
        self._began = time.monotonic()
        self._before = Snapshot.take()

    def seen(self) -> Disturbance:
        """What they have done so far."""
        return between(self._before, Snapshot.take(), time.monotonic() - self._began, self._own)


def wait_until_quiet(
    patience: float,
    say: Callable[[str], None],
    own: Sequence[int] = (),
    look: Callable[[], Disturbance] | None = None,
) -> None:
    """Return once the machine has been quiet for a moment; ``say`` is told who is busy.

    Args:
        patience: seconds to wait at most.
        own: processes that have a part in what is to be measured, beside this one and its children.
        look: what others did in the last `LOOK` seconds, which it waits for.

    Raises:
        QuietError: it has not become quiet.
    """
    look = look or (lambda: _look(own))
    began = time.monotonic()
    said: float | None = None
    while not (found := look()).quiet:
        now = time.monotonic()
        waited = now - began
        if waited >= patience:
            raise QuietError(f"the machine has not become quiet in {patience:g} s: {found.reason}")
        if said is None or now - said >= SAY_AGAIN:
            said = now
            say(f"waiting for a quiet machine, {waited:.0f} of at most {patience:g} s: {found.reason}")
    if said is not None:
        say(f"quiet after {time.monotonic() - began:.0f} s")


@dataclass(frozen=True)
class Gate:
    """Lets measurements begin when the machine is quiet, and keeps only those during which it was.

    ``noisy`` lets all of them pass: what is measured so is a hint, and its figures say that they are void.
    """

    say: Callable[[str], None]
    patience: float = PATIENCE
    noisy: bool = False

    def measure(
        self, what: str, work: Callable[[], T], of: Callable[[T], Disturbance], own: Sequence[int] = ()
    ) -> T:
        """Measure until nobody disturbs it, `TRIES` times at most.

        Args:
            what: is measured, in words.
            work: measures.
            of: what others did meanwhile.
            own: processes of the target, where they are no children of this one.

        Raises:
            QuietError: the machine has not become quiet, or was never quiet long enough.
        """
        for _ in range(TRIES):
            if not self.noisy:
                wait_until_quiet(self.patience, self.say, own)
            result = work()
            disturbance = of(result)
            if self.noisy or disturbance.quiet:
                return result
            self.say(f"{what}: void, {disturbance.reason}; measured again")
        raise QuietError(f"{what}: void {TRIES} times, the last time as {disturbance.reason}")

    def watched(self, what: str, work: Callable[[], T], own: Sequence[int] = ()) -> tuple[T, Disturbance]:
        """The same for work that does not look at others itself; with what they did.

        Raises:
            QuietError: as `measure`.
        """

        def watching() -> tuple[T, Disturbance]:
            watch = Watch(own)
            return work(), watch.seen()

        return self.measure(what, watching, lambda pair: pair[1], own)


def _look(own: Sequence[int]) -> Disturbance:
    watch = Watch(own)
    time.sleep(LOOK)
    return watch.seen()

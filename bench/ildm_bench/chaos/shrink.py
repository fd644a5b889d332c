"""The smallest part of a schedule that still fails (Zeller, Hildebrandt: Simplifying and Isolating
Failure-Inducing Input, IEEE TSE 2002)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ildm_bench.chaos.schedule import Schedule, Variant

Part = TypeVar("Part")
Fails = Callable[[Schedule], bool]
Change = dict[str, object]
SIMPLE_CLIENT: tuple[Change, ...] = ({"will": ""}, {"clean": True}, {"inflight": 20}, {"version": 4})


def shrink(
    schedule: Schedule, fails: Fails, budget: int = 2000, late: Callable[[], bool] = lambda: False
) -> Schedule:
    """Leave out of a schedule what is not needed for it to fail, then make simple what is.

    The same schedule and ``fails`` always give the same. At most ``budget`` schedules are tried, and none
    once it is ``late``.

    Raises:
        ValueError: it does not fail.
    """
    return _Shrinking(fails, budget, late).of(schedule)


class _SpentError(Exception):
    """No more may be tried."""


class _Shrinking:
    def __init__(self, fails: Fails, budget: int, late: Callable[[], bool]) -> None:
        self._fails = fails
        self._budget = budget
        self._late = late
        self._tried: set[Schedule | str] = set()
        self.best: Schedule

    def of(self, schedule: Schedule) -> Schedule:
        if not self._fails(schedule):
            raise ValueError("the schedule does not fail")
        self.best = schedule
        try:
            while True:
                before = self.best
                self._faults()
                self._clients()
                self._operations()
                self._simpler()
                self._sites()
                if self.best == before:
                    break
        except _SpentError:
            pass
        return self.best

    def _try(self, schedule: Schedule) -> bool:
        """Whether it fails; it is the best then."""
        key = repr(schedule)
        if key in self._tried:
            return False
        if len(self._tried) >= self._budget or self._late():
            raise _SpentError
        self._tried.add(key)
        if not self._fails(schedule):
            return False
        self.best = schedule
        return True

    def _reduce(self, parts: Sequence[Part], made: Callable[[Sequence[Part]], Schedule]) -> None:
        """ddmin without subsets: leave out ever smaller stretches of the parts."""
        left = list(parts)
        size = len(left)
        while size:
            place = 0
            while place < len(left):
                fewer = left[:place] + left[place + size :]
                if self._try(made(fewer)):
                    left = fewer
                else:
                    place += size
            size //= 2

    def _faults(self) -> None:
        self._reduce(self.best.faults, lambda faults: replace(self.best, faults=tuple(faults)))

    def _clients(self) -> None:
        def made(clients: Sequence[object]) -> Schedule:
            kept = tuple(client for client in self.best.clients if client in clients)
            names = {client.name for client in kept}
            operations = tuple(each for each in self.best.operations if each.client in names)
            return replace(self.best, clients=kept, operations=operations)

        self._reduce(self.best.clients, made)

    def _operations(self) -> None:
        self._reduce(
            self.best.operations, lambda operations: replace(self.best, operations=tuple(operations))
        )

    def _simpler(self) -> None:
        """One value after the other."""
        for place in range(len(self.best.operations)):
            for change in _simpler_operations(self.best.operations[place]):
                self._replace("operations", place, change)
        for place in range(len(self.best.clients)):
            for change in SIMPLE_CLIENT:
                self._replace("clients", place, change)
        for place in range(len(self.best.faults)):
            fault = self.best.faults[place]
            for target in fault.targets if len(fault.targets) > 1 else ():
                left = tuple(each for each in self.best.faults[place].targets if each != target)
                if left:
                    self._replace("faults", place, {"targets": left})
            simple: tuple[Change, ...] = (
                {"lasts": 0.5},
                {"lasts": 1.0},
                {"value": 0.0},
                {"variant": Variant()},
                {"at": round(fault.at, 2)},
            )
            for change in simple:
                self._replace("faults", place, change)

    def _replace(self, parts: str, place: int, change: Change) -> None:
        now = list(getattr(self.best, parts))
        other = replace(now[place], **change)
        if other != now[place]:
            now[place] = other
            changed: dict[str, Any] = {parts: tuple(now)}
            self._try(replace(self.best, **changed))

    def _sites(self) -> None:
        """Options one after the other, then sites at the end of the tree where nothing happens."""
        setting = self.best.setting
        if setting.options:
            self._try(replace(self.best, setting=replace(setting, options={})))
        for site in setting.variants:
            setting = self.best.setting
            fewer = {each: variant for each, variant in setting.variants.items() if each != site}
            self._try(replace(self.best, setting=replace(setting, variants=fewer)))
        self._try(replace(self.best, setting=replace(self.best.setting, secret="")))
        self._try(replace(self.best, setting=replace(self.best.setting, discover=False)))
        for site in reversed(self.best.setting.sites):
            setting = self.best.setting
            used = {client.site for client in self.best.clients}
            used |= {
                end for fault in self.best.faults for target in fault.targets for end in target.split("/")
            }
            if site in used or len(setting.sites) < 3 or sum(site in link for link in setting.links) != 1:
                continue
            place = setting.sites.index(site)
            left = replace(
                setting,
                sites=tuple(each for each in setting.sites if each != site),
                links=tuple(link for link in setting.links if site not in link),
                brokers=setting.brokers[:place] + setting.brokers[place + 1 :],
                variants={each: variant for each, variant in setting.variants.items() if each != site},
            )
            self._try(replace(self.best, setting=left))


def _simpler_operations(operation: object) -> Iterator[Change]:
    yield {"count": 1}
    yield {"count": 2}
    yield {"others": ()}
    yield {"size": 0}
    yield {"retain": False}
    yield {"at": round(operation.at, 1)}  # type: ignore[attr-defined]

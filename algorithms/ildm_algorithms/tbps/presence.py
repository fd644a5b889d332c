"""What a node knows after a crash: since when it subscribes to each filter, and each origin's last number.

The time of its absence a node finds in its state. But if it crashes in a partition, it has missed what was
published in the other half before that, too, and has not known it. So it remembers since when each filter is
subscribed to, to ask for all of that once more. It remembers the last number from each origin as well. An
origin in the other half has gone on counting, so the number tells what was missed from what came before the
crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING

from ildm_algorithms.exchange.absence import LOOKBACK, save
from ildm_algorithms.exchange.incarnation import NUMBERS, next_incarnation

if TYPE_CHECKING:
    from collections.abc import Callable

    from ildm.api import NodeApi
    from ildm_algorithms.tbps.config import TbpsConfig

__all__ = [
    "RECEIVED",
    "SUBSCRIBED",
    "Presence",
    "begin_incarnation",
    "read_numbers",
    "write_numbers",
]

RECEIVED = "tbps.heard"
"""Entry of the state: origins, each with the last number that has come from it."""
SUBSCRIBED = "tbps.wanted."
"""Begins the names of entries with digests of filters, and since when (Unix time) each is subscribed to."""
SHELVES = 64
"""Entries the filters are divided among: one is written when something in it has changed."""
SAVE = 1.0
"""Seconds in which changes are collected that follow one which was saved at once."""
BEGUN = "tbps.life"
"""Entry of the state: this incarnation, from which the numbers of its messages begin."""
_INCARNATION = Struct(">I")
_FILTER = Struct(">8sd")
_ORIGIN = Struct(">HQ")


def write_numbers(numbers: dict[str, int]) -> bytes:
    """Numbers by node, for the state."""
    parts: list[bytes] = []
    for origin, number in numbers.items():
        name = origin.encode()
        parts += (_ORIGIN.pack(len(name), number), name)
    return b"".join(parts)


def read_numbers(data: bytes) -> dict[str, int]:
    """What :func:`write_numbers` was given; nothing if it has not made that."""
    numbers = {}
    at = 0
    while at + _ORIGIN.size <= len(data):
        size, number = _ORIGIN.unpack_from(data, at)
        at += _ORIGIN.size + size
        numbers[data[at - size : at].decode(errors="replace")] = number
    return numbers if at == len(data) else {}


def begin_incarnation(api: NodeApi, newest: int, count: Callable[..., None]) -> int:
    """The number before the first one of this incarnation: greater than those of all before, of which
    ``newest`` is known. The clock tells where the state of the node is lost."""
    clock = int(api.wall()) & 0xFFFF_FFFF
    incarnation = next_incarnation(api.state.get(BEGUN, b""), _INCARNATION.size, clock, newest >> NUMBERS)
    save(api, BEGUN, _INCARNATION.pack(incarnation), count, "which life of the node this is cannot be saved")
    return incarnation << NUMBERS


class Presence:
    """Times are those of :meth:`ildm.api.NodeApi.now`, also of what an earlier incarnation has saved."""

    def __init__(self, api: NodeApi, config: TbpsConfig, count: Callable[..., None]) -> None:
        self._api = api
        self._count = count
        self._filters = config.remembered_filters
        self._origins = config.remembered_origins
        self._period = config.absence_period
        self._subscribed: list[dict[bytes, float]] = [{} for _ in range(SHELVES)]
        """Unix time by digest of the filter."""
        self._unclaimed: set[bytes] = set()
        """Filters of the earlier incarnation that have not come back yet."""
        self._changed: set[int] = set()
        self._collecting = False
        self._numbers: dict[str, int] = {}
        """Last number by origin, the longest silent first."""
        self._before: dict[str, int] = {}
        """As the earlier incarnation has left them."""
        self._looked: dict[str, int] | None = None
        """At the last look, if nothing was missing then."""

    # an earlier incarnation ----------------------------------------------------------------------------

    def load(self) -> None:
        """Take up what the earlier incarnation has saved."""
        for number, shelf in enumerate(self._subscribed):
            data = self._api.state.get(f"{SUBSCRIBED}{number}", b"")
            if len(data) % _FILTER.size == 0:
                shelf.update(_FILTER.iter_unpack(data))
            self._unclaimed.update(shelf)
        self._before = read_numbers(self._api.state.get(RECEIVED, b""))
        self._numbers.update(self._before)
        # publishers keep nothing that is older
        self._api.call_later(self._period + LOOKBACK, self._before.clear)

    def subscribed_since(self, topic_filter: str) -> float | None:
        """Since when the earlier incarnation subscribed to a filter that has come back; None: not known."""
        digest = _digest(topic_filter)
        since = self._shelf(digest).get(digest)
        if since is None:
            return None
        self._unclaimed.discard(digest)
        api = self._api
        age = api.wall() - since
        # after a clock that was set back the age is not known: all that publishers keep may be missing
        return api.now() - (age if age >= 0 else self._period)

    def started(self) -> None:
        """All filters that outlived the restart have come: others are subscribed to no more."""
        for digest in self._unclaimed:
            self._drop(digest)
        self._unclaimed.clear()

    def came_before(self, origin: str, number: int) -> bool:
        """Whether a message has come in the earlier incarnation: a later one of its origin had."""
        known = self._before.get(origin)
        return known is not None and known >> NUMBERS == number >> NUMBERS and number <= known

    # this incarnation ----------------------------------------------------------------------------------

    def subscribed(self, topic_filter: str, since: float) -> None:
        """Local clients subscribe to a filter."""
        digest = _digest(topic_filter)
        shelf = self._shelf(digest)
        if digest not in shelf and sum(map(len, self._subscribed)) >= self._filters:
            self._count("filters_not_remembered")
            return
        shelf[digest] = self._api.wall() - (self._api.now() - since)
        self._change(digest)

    def unsubscribed(self, topic_filter: str) -> None:
        self._drop(_digest(topic_filter))

    def received(self, origin: str, number: int) -> None:
        """A message has come."""
        numbers = self._numbers
        # what comes late has a smaller number
        numbers[origin] = max(number, numbers.pop(origin, 0))
        if len(numbers) > self._origins:
            del numbers[next(iter(numbers))]
            self._count("origins_not_remembered")

    def look(self, settled: bool) -> None:
        """To be called some seconds apart. What was known at the last look is saved. By now all has come that
        was under way then, and a merge of graphs would be known.

        ``settled``: nothing is missing, as far as is known.
        """
        if settled and self._looked is not None:
            self._save(RECEIVED, write_numbers(self._looked))
        self._looked = dict(self._numbers) if settled else None

    def leave(self, settled: bool) -> None:
        """The node has left the graph in order: nothing is under way to it any more."""
        if settled:
            self._save(RECEIVED, write_numbers(self._numbers))
        if self._changed:
            self._save_changed()

    # inside -------------------------------------------------------------------------------------

    def _shelf(self, digest: bytes) -> dict[bytes, float]:
        return self._subscribed[digest[0] % SHELVES]

    def _drop(self, digest: bytes) -> None:
        if self._shelf(digest).pop(digest, None) is not None:
            self._change(digest)

    def _change(self, digest: bytes) -> None:
        self._changed.add(digest[0] % SHELVES)
        if not self._collecting:
            self._collecting = True
            self._save_changed()
            self._api.call_later(SAVE, self._collected)

    def _collected(self) -> None:
        self._collecting = bool(self._changed)
        if self._collecting:
            self._save_changed()
            self._api.call_later(SAVE, self._collected)

    def _save_changed(self) -> None:
        changed, self._changed = self._changed, set()
        for number in changed:
            self._save(f"{SUBSCRIBED}{number}", b"".join(_packed(self._subscribed[number])))

    def _save(self, name: str, value: bytes) -> None:
        lost = "what was missed before a crash cannot be asked for after it"
        save(self._api, name, value, self._count, lost)


def _digest(topic_filter: str) -> bytes:
    return blake2b(topic_filter.encode(), digest_size=8).digest()


def _packed(shelf: dict[bytes, float]) -> Iterator[bytes]:
    return (_FILTER.pack(digest, since) for digest, since in shelf.items())

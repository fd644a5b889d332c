"""Offers of a publisher's node to nodes that may have missed its messages.

A node that was away asks by itself (:mod:`~ildm_algorithms.octopia.delivery.missed`). If a message could not
be brought to a cluster, an announcement goes to the nodes there until they have asked.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from math import inf
from struct import Struct, error
from typing import TYPE_CHECKING

from ildm.api import SendResult
from ildm.mqtt import FilterTable, Publish, Version, decode
from ildm_algorithms.exchange.messages import Message, milliseconds
from ildm_algorithms.exchange.repair import send_late
from ildm_algorithms.octopia.content.index import ContentIndex
from ildm_algorithms.octopia.messages import (
    Ask,
    Forgot,
    Late,
    LateOne,
    Numbered,
    Offer,
    OverlayError,
    Owed,
    Want,
)

if TYPE_CHECKING:
    from ildm.api import NodeApi
    from ildm_algorithms.exchange.log import Log, LogEntry
    from ildm_algorithms.octopia.config import OctopiaConfig
    from ildm_algorithms.octopia.content.content import Value
    from ildm_algorithms.octopia.delivery.carried import Reader
    from ildm_algorithms.octopia.grid.members import Members

__all__ = ["Offers"]

FILTERS = 1_000
"""In one question; nodes ask with fewer."""
PAGE = 500
"""Messages in one offer."""
SCAN = 1_000
"""Messages looked at for one offer."""
ASKERS = 1_000
"""Sites served at once."""
IDLE = 60.0
"""Seconds after which a site that asks for nothing more is forgotten."""
LONGEST = 30.0
"""Seconds between two words to a site that something is owed to it, at most."""
DOUBLED = 10
"""Times that this pause is doubled, at most."""
DEBTS = "octopia.debts"
"""Entry of the state: nodes to which something is owed, and since when (Unix time)."""
_DEBT = Struct(">Hd")
EARLIER = 1.0
"""Seconds by which a message may be older than the moment when it was found to be missing somewhere."""


class _Asker:
    __slots__ = ("begun", "filters", "forgot", "numbers", "oldest", "page", "rest", "since", "topics", "used")

    def __init__(
        self, numbers: array[int], filters: ContentIndex[int], oldest: list[float], since: float, now: float
    ) -> None:
        self.numbers = numbers
        """Messages that may match, the oldest last."""
        self.filters = filters
        self.oldest = oldest
        """When what each filter may match was published at the earliest."""
        self.since = since
        self.begun = self.used = now
        self.forgot: str | None = None
        """A node that has lost its state: it gets only what it has not acknowledged."""
        self.page: tuple[int, Offer] | None = None
        self.rest: float | None = None
        """When the first message was published for which there was no room; None: there was for all."""
        self.topics: FilterTable[int] = FilterTable()
        """The same filters without their expressions: of a message that is gone the topic is known."""


class _Debt:
    """Of what was found to be missing between two times."""

    __slots__ = ("attempts", "due", "last", "named", "since")

    def __init__(self, since: float, last: float) -> None:
        self.since = since
        self.last = last
        self.named = False
        self.due = last + EARLIER
        self.attempts = 0


class Offers:
    """Offers kept messages to those who may lack them."""

    def __init__(
        self,
        api: NodeApi,
        config: OctopiaConfig,
        members: Members,
        kept: Log,
        reader: Reader,
        count: Callable[..., None],
    ) -> None:
        self.api = api
        self.config = config
        self.members = members
        self.kept = kept
        self.reader = reader
        self.count = count
        self._askers: OrderedDict[tuple[str, int], _Asker] = OrderedDict()
        self._debts: dict[str, _Debt] = {}
        self._ticking = False

    @property
    def owed(self) -> list[str]:
        """Nodes that may have missed something, and have not asked yet."""
        return sorted(self._debts)

    # who asks -----------------------------------------------------------------------------------

    def on_ask(self, sender: str, ask: Ask | Forgot) -> None:
        """A node wants what its filters match, as far as it is not too old."""
        if len(ask.filters) > FILTERS:
            raise OverlayError(f"a question with {len(ask.filters)} filters")
        now = self.api.now()
        self._forget_idle(now)
        key = sender, ask.question
        asker = self._askers.get(key)
        if asker is None:
            filters: ContentIndex[int] = ContentIndex()
            oldest = [now - asked.age / 1000 for asked in ask.filters]
            since = min(oldest, default=now)
            found = sorted(((number, at) for number, at, _ in self.kept.all_since(since)), reverse=True)
            room = self.config.offered_messages - sum(len(each.numbers) for each in self._askers.values())
            if len(self._askers) >= ASKERS or (found and room <= 0):
                self.count("offers_full")
                self.api.log("no room to offer what a site has missed", site=sender, messages=len(found))
                return
            numbers = array("Q", (number for number, _ in found[-room:]))
            asker = self._askers[key] = _Asker(numbers, filters, oldest, now - ask.age / 1000, now)
            asker.forgot = sender if isinstance(ask, Forgot) else None
            for index, asked in enumerate(ask.filters):
                filters.add(asked.content, index)
                asker.topics.add(asked.content.topic_filter, index)
            if room < len(found):
                asker.rest = found[-room - 1][1]
        self._send_page(sender, ask.question, asker, 1)

    def on_want(self, sender: str, want: Want) -> None:
        """It wants messages that were offered, or the next offer."""
        asker = self._askers.get((sender, want.question))
        if want.numbers:
            self._send_late(sender, want)
        elif asker is None:
            return
        if asker is not None and asker.page is not None and want.page > asker.page[0]:
            self.kept.came_to(sender, (one.number for one in asker.page[1].messages))
        if want.numbers or asker is None:
            return
        if asker.page is not None and asker.page[1].last and want.page > asker.page[0]:
            self._settled(sender, asker)
            del self._askers[sender, want.question]
        else:
            self._send_page(sender, want.question, asker, want.page)

    def _send_page(self, sender: str, question: int, asker: _Asker, page: int) -> None:
        asker.used = self.api.now()
        self._askers.move_to_end((sender, question))
        if asker.page is None or asker.page[0] + 1 == page:
            asker.page = page, self._next_page(question, asker, page)
        if asker.page[0] != page:
            return
        self.count("offers")
        self.members.send(sender, asker.page[1])

    def _settled(self, sender: str, asker: _Asker) -> None:
        """A node has got all there was when it asked, or as much as there was room for."""
        if asker.rest is not None:
            self._debts.pop(sender, None)
            self.owe([sender], asker.rest)
            return
        debt = self._debts.get(sender)
        if debt is None or asker.since > debt.since + EARLIER:
            return
        if debt.last < asker.begun:
            del self._debts[sender]
        else:
            debt.since, debt.attempts, debt.due = asker.begun - EARLIER, 0, self.api.now() + EARLIER
        self._save()

    def _next_page(self, question: int, asker: _Asker, page: int) -> Offer:
        now = self.api.now()
        found: list[Numbered] = []
        looked = 0
        while asker.numbers and looked < SCAN and len(found) < PAGE:
            number = asker.numbers.pop()
            looked += 1
            entry = self.kept.get(number)
            if asker.forgot is not None and (entry is None or not entry.lacks(asker.forgot, now)):
                continue
            if entry is not None and self._matches(asker, entry, now):
                found.append(Numbered(number, milliseconds(now - entry.at)))
            elif entry is None and (gone := self.kept.gone(number)) is not None:
                at, topic = gone
                if any(at >= asker.oldest[index] for index in asker.topics.match(topic)):
                    found.append(Numbered(number, milliseconds(now - at)))
        return Offer(question, page, not asker.numbers, tuple(found))

    def _matches(self, asker: _Asker, entry: LogEntry, now: float) -> bool:
        if entry.expires_at is not None and entry.expires_at <= now:
            return False
        read: list[Mapping[str, Value]] = []

        def attributes() -> Mapping[str, Value]:
            message = decode(Message.decode(entry.payload).frame, Version.V5)
            assert isinstance(message, Publish)
            read.append(self.reader(message))
            return read[0]

        return any(entry.at >= asker.oldest[index] for index in asker.filters.match(entry.topic, attributes))

    def _send_late(self, sender: str, want: Want) -> None:
        def send(last: bool, gone: list[int], messages: dict[int, tuple[int, bytes]]) -> bool:
            pieces = tuple(LateOne(*message) for message in messages.values())
            late = Late(want.question, last, tuple(gone), pieces)
            return self.members.send(sender, late) is not SendResult.TOO_LARGE

        send_late(self.kept, want.numbers, self.api.now(), send, self.count)

    def _forget_idle(self, now: float) -> None:
        while self._askers:
            key, asker = next(iter(self._askers.items()))
            if asker.used + IDLE > now and asker.numbers:
                return
            del self._askers[key]

    # what is owed ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Go on owing what an earlier incarnation has owed. Its last messages count as missed by all."""
        newest = next((entry.at for _, entry in self.kept.since(-inf)), None)
        saved = self._saved()
        if newest is not None:
            under_way = newest - self.config.cast_deadline
            if saved is None:
                under_way = min(entry.at for _, entry in self.kept.since(-inf))
            self.owe(self.members.order, under_way)
        for node_id, since in (saved or {}).items():
            if node_id in self.members.contacts:
                self.owe([node_id], since + EARLIER)

    def _saved(self) -> dict[str, float] | None:
        """Since when an earlier incarnation has owed something to each node; None: that is not known."""
        data = self.api.state.get(DEBTS)
        if data is None:
            return None
        found = {}
        at = 0
        try:
            while at < len(data):
                size, since = _DEBT.unpack_from(data, at)
                at += _DEBT.size + size
                found[data[at - size : at].decode()] = self.api.now() - max(0.0, self.api.wall() - since)
        except (error, UnicodeDecodeError):
            return None
        return found

    def _save(self) -> None:
        """Remember what is owed for the next incarnation."""
        parts: list[bytes] = []
        for node_id, debt in self._debts.items():
            name = node_id.encode()
            parts += (_DEBT.pack(len(name), self.api.wall() - self.api.now() + debt.since), name)
        self.api.state[DEBTS] = b"".join(parts)

    def is_owed(self, published: float) -> bool:
        """Whether somebody may have missed a message that was published then."""
        return any(debt.since <= published <= debt.last for debt in self._debts.values())

    def owe(self, nodes: Iterable[str], published: float) -> None:
        """These nodes may have missed a message."""
        now = self.api.now()
        since = published - EARLIER
        news = False
        for node_id in nodes:
            debt = self._debts.get(node_id)
            if node_id == self.members.me:
                continue
            if debt is None:
                self._debts[node_id] = _Debt(since, now)
                news = True
            else:
                debt.last = now
                news = news or since < debt.since
                debt.since = min(debt.since, since)
        if news:
            self._save()
        if not self._ticking and self._debts:
            self._ticking = True
            self.api.call_later(EARLIER, self._tick)

    def back(self, node_id: str) -> None:
        """A node is alive again; so may be others of its cluster."""
        if not self._debts:
            return
        grid, now = self.members.grid, self.api.now()
        for other, debt in self._debts.items():
            if grid.cluster(other) == grid.cluster(node_id):
                debt.due, debt.attempts = now, 0

    def _tick(self) -> None:
        now = self.api.now()
        for node_id, debt in list(self._debts.items()):
            if not debt.named and debt.since < now - self.config.absence_period - self.config.cast_deadline:
                debt.named = True
                self.count("debts_expired")
                self.api.log("a site is away for longer than messages are kept for it", site=node_id)
            if debt.due <= now and self.members.can_dial(node_id):
                debt.attempts += 1
                debt.due = now + min(2 ** min(debt.attempts, DOUBLED), LONGEST)
                self.count("owed_told")
                self.members.send(node_id, Owed(milliseconds(now - debt.since)))
        self._ticking = bool(self._debts)
        if self._ticking:
            self.api.call_later(EARLIER, self._tick)

"""Messages that this node may have missed: it asks the nodes of publishers for them.

A node cannot know which messages passed it by. But other nodes tell it that they owe it something, and its
state tells a started node when it was here last. Then it asks the node that owes, or all members. They offer
messages of their logs (:mod:`~ildm_algorithms.octopia.delivery.offers`), and the node fetches those that it
lacks.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from math import inf
from struct import Struct
from typing import TYPE_CHECKING

from ildm_algorithms.exchange.absence import LOOKBACK, STAMPS, absent_since, save_time
from ildm_algorithms.exchange.messages import Message, milliseconds
from ildm_algorithms.exchange.receiver import Receiver, State
from ildm_algorithms.octopia.content.content import ContentFilter
from ildm_algorithms.octopia.messages import Ask, Asked, Forgot, Late, Offer, Owed, Want

if TYPE_CHECKING:
    from ildm.api import NodeApi
    from ildm_algorithms.exchange.receipts import Receipts
    from ildm_algorithms.octopia.config import OctopiaConfig
    from ildm_algorithms.octopia.grid.members import Members

__all__ = ["Missing"]

SETTLE = 3.0
"""Seconds from a sign that something was missed until it is asked for: tables come to agree meanwhile."""
FILTERS = 500
"""In one question; if there are more they are widened."""
LENGTH = 32_768
"""Characters of the filters in one question; if there are more they are widened, too."""
AT_ONCE = 16
"""Nodes that are asked at the same time."""
ATTEMPTS = 5
"""How often the same is said to a node that does not answer."""
AGAIN = 15.0
"""Seconds until a node that has not answered is asked again; doubles each time."""
LONGEST = 120.0
DOUBLED = 10
"""Times that the pause is doubled, at most."""
PRESENT = "octopia.present"
"""Entry of the state: Unix time when this node was surely part of the grid."""
SUBSCRIBED = "octopia.wanted"
"""Entry of the state: filters that were subscribed to lately."""
REMEMBERED = 1_000
"""Of those."""
ON_THE_WAY = 15.0
"""A question may take so long until it arrives; what it asks for is identified by age."""
_SINCE = Struct(">8sd")


class _Question:
    """To one node."""

    __slots__ = ("failures", "forgot", "last", "node_id", "number", "page", "since")

    def __init__(self, node_id: str, since: float, forgot: bool) -> None:
        self.node_id = node_id
        self.since = since
        self.forgot = forgot
        """It is about messages of before this node has lost its state."""
        self.failures = 0
        self.number = 0
        self.page = 0
        """Newest page that has come; 0: none has."""
        self.last = False


class Missing:
    """Asks for what may have passed this node by.

    Args:
        take: gets each late message, with the id of its origin.
    """

    def __init__(
        self,
        api: NodeApi,
        config: OctopiaConfig,
        members: Members,
        seen: Receipts,
        take: Callable[[str, Message], None],
        count: Callable[..., None],
    ) -> None:
        self.api = api
        self.config = config
        self.members = members
        self._take = take
        self.count = count
        self.receiver = Receiver(api, self, seen, config.offered_messages, ATTEMPTS, count)
        self._subscribed: dict[ContentFilter, float] = {}
        """Since when local clients subscribe to each filter."""
        self._from: float | None = None
        """Since when something may have been missed of all; to be asked soon."""
        self._waiting: dict[str, float] = {}
        """Nodes to be asked, since when."""
        self._queue: deque[str] = deque()
        self._open: dict[str, _Question] = {}
        self._unanswered: dict[str, float] = {}
        """Nodes that have not offered all since then."""
        self._number = api.random.getrandbits(30)
        self._restored: float | None = None
        self._known: dict[bytes, float] = {}
        """Filters by name that an earlier incarnation subscribed to, and since which Unix time."""
        self._began = -inf
        """When this incarnation began, if clients have sessions of before it and no state tells of them. What
        was published earlier is taken if the publisher's node knows that it was not acknowledged here."""

    def start(self) -> None:
        """Filters that come before any time has passed are those of sessions which outlived a restart."""
        # how long a clock hides is not known: all that publishers keep may be missing
        period = self.config.absence_period
        self._restored = absent_since(self.api, PRESENT, period, period, self.count)
        saved = self.api.state.get(SUBSCRIBED, b"")
        if len(saved) % _SINCE.size == 0:
            self._known = dict(_SINCE.iter_unpack(saved))
        self.api.call_later(0.0, self._started)
        self.api.call_later(STAMPS, self._save_presence_periodically)

    def _started(self) -> None:
        since, self._restored = self._restored, None
        self._known = {}
        if since is not None and self._subscribed:
            self.away(since)

    def stop(self) -> None:
        """The node leaves: nothing is under way to it any more."""
        if self._subscribed:
            self._save_presence()

    def _save_presence_periodically(self) -> None:
        if self._subscribed and self.members.live() > 1:
            self._save_presence()
        self.api.call_later(STAMPS, self._save_presence_periodically)

    def _save_presence(self) -> None:
        """Save until when nothing was missed, and what was subscribed to lately."""
        now = self.api.now()
        until = min([now, *self._unanswered.values(), *(() if self._from is None else (self._from,))])
        save_time(self.api, PRESENT, until)
        lately = now - self.config.absence_period
        recent = [(content, at) for content, at in self._subscribed.items() if at > lately][-REMEMBERED:]
        self.api.state[SUBSCRIBED] = b"".join(
            _SINCE.pack(_name(content), self.api.wall() - now + at) for content, at in recent
        )

    # subscriptions -------------------------------------------------------------------------------

    def subscribed(self, content: ContentFilter) -> None:
        """A local client is the first to want it."""
        now = self.api.now()
        if self._restored is None:
            first = not self._subscribed
            self._subscribed.setdefault(content, now)
            if first:
                self._save_presence()
            return
        # a session that outlived a restart has subscribed for long, or since then
        wall, period = self._known.get(_name(content)), self.config.absence_period
        age = period if wall is None else self.api.wall() - wall
        since = now - (age if age >= 0 else period)  # below: the clock was set back
        if PRESENT not in self.api.state:
            self._began, since = now, now - period
        self._subscribed.setdefault(content, since)

    def unsubscribed(self, content: ContentFilter) -> None:
        self._subscribed.pop(content, None)

    # asking ---------------------------------------------------------------------------------------

    def away(self, since: float) -> None:
        """This node may have missed messages of anybody since then."""
        if not self._subscribed:
            return
        if self._from is None:
            self.api.call_later(SETTLE, self._ask_all)
            self._from = since
        self._from = min(self._from, since)
        self._save_presence()

    def on_owed(self, sender: str, owed: Owed) -> None:
        """A node has messages that this one may have missed."""
        self._ask(sender, self.api.now() - owed.age / 1000)

    def _ask_all(self) -> None:
        since, self._from = self._from, None
        if since is not None:
            self.count("away")
            for node_id in self.members.order:
                if node_id != self.members.me:
                    self._ask(node_id, since)

    def _ask(self, node_id: str, since: float) -> None:
        question = self._open.get(node_id)
        if question is not None and question.since <= since and not question.page:
            return
        if node_id not in self._waiting:
            self._queue.append(node_id)
        self._waiting[node_id] = min(since, self._waiting.get(node_id, since))
        if since < self._unanswered.get(node_id, self.api.now()):
            self._unanswered[node_id] = since
            if self._subscribed:
                self._save_presence()
        self._next()

    def _next(self) -> None:
        for _ in range(len(self._queue)):
            if len(self._open) >= AT_ONCE:
                return
            node_id = self._queue.popleft()
            if node_id in self._open:
                self._queue.append(node_id)
                continue
            since = self._waiting.pop(node_id)
            self._begin(_Question(node_id, since, since <= self._began))

    def _begin(self, question: _Question) -> None:
        self._number = (self._number + 1) & 0xFFFF_FFFF
        question.number = self._number
        question.page, question.last = 0, False
        self._open[question.node_id] = question
        self.receiver.ask(question.node_id, partial(self._say, question))

    def _filters(self, since: float) -> tuple[Asked, ...]:
        """The filters of a question, each with its age; wider ones if there are too many."""
        now = self.api.now()
        ages = {content: max(since, known) for content, known in self._subscribed.items()}
        if _is_long(ages):
            self.count("questions_widened")
            ages = _least((ContentFilter(content.topic_filter), at) for content, at in ages.items())
        if _is_long(ages):
            ages = _least((ContentFilter("#"), at) for at in ages.values())
        return tuple(Asked(content, milliseconds(now - at + ON_THE_WAY)) for content, at in ages.items())

    def _say(self, question: _Question) -> None:
        """Ask, or ask for the next offer."""
        node_id, number = question.node_id, question.number
        if question.page:
            self.members.send(node_id, Want(number, question.page + 1, ()))
            return
        self.count("questions")
        age = milliseconds(self.api.now() - question.since)
        if question.forgot:
            self.members.send(node_id, Forgot(number, age, self._filters(-inf)))
        else:
            self.members.send(node_id, Ask(number, age, self._filters(question.since)))

    def want(self, origin: str, numbers: list[int]) -> None:
        """Request messages that were offered."""
        self.members.send(origin, Want(self._open[origin].number, 0, tuple(numbers)))

    def ended(self, origin: str, filled: bool) -> None:
        """All of a page is there, or its node does not answer."""
        question = self._open[origin]
        if filled and not question.last:
            self.receiver.ask(origin, partial(self._say, question))
            return
        if filled:
            self._say(question)
        del self._open[origin]
        self._next()
        if filled:
            self._answered(question)
            return
        question.failures += 1
        wait = min(AGAIN * 2 ** min(question.failures - 1, DOUBLED), LONGEST)
        if question.since + self.config.absence_period > self.api.now() + wait:
            self.api.call_later(wait, self._retry, question)
        else:
            self.count("questions_failed")
            self._answered(question)

    def _answered(self, question: _Question) -> None:
        """No more is to come from a node, unless it was asked for more meanwhile."""
        node_id = question.node_id
        if node_id not in self._waiting and self._unanswered.get(node_id, question.since) >= question.since:
            self._unanswered.pop(node_id, None)

    def _retry(self, question: _Question) -> None:
        node_id = question.node_id
        if node_id in self._unanswered and node_id not in self._open and node_id not in self._waiting:
            self._begin(question)

    # answers --------------------------------------------------------------------------------------

    def on_offer(self, sender: str, offer: Offer) -> None:
        """A node has messages that match."""
        question = self._open.get(sender)
        if question is None or question.number != offer.question or offer.page != question.page + 1:
            return
        if self.receiver.state(sender) is not State.UNSURE:
            return
        question.page, question.last = offer.page, offer.last
        earliest = min(self._subscribed.values(), default=inf)
        if not question.forgot:
            earliest = max(earliest, question.since - LOOKBACK, self._began)
        now = self.api.now()
        # the topic of what is only a number is not known
        owed = [(one.number, "") for one in offer.messages if now - one.age / 1000 >= earliest]
        refused = self.receiver.offered(sender, owed)
        if refused:
            self.count("missed", len(refused))
            self.api.log("no room to fetch all messages that were missed", site=sender)
        self.receiver.fetch(sender)

    def on_late(self, sender: str, late: Late) -> None:
        """Messages that were requested."""
        question = self._open.get(sender)
        if question is None or question.number != late.question:
            self.count("late_unwanted", len(late.messages))
            return
        self.receiver.arrived(sender, late.messages, late.gone, late.last)

    def came_before(self, origin: str, number: int) -> bool:
        """Whether a message has come in an earlier incarnation of this node."""
        return bool(self.api.has_injected(origin, number))

    def take(self, origin: str, topic: str, age: int, message: Message) -> bool:
        """Deliver a message that was requested."""
        self._take(origin, message)
        return True

    def lost(self, origin: str, lacking: dict[int, str], gone: bool) -> None:
        """Messages are gone. What a node does not answer is asked for again."""
        if gone:
            self.count("missed", len(lacking))
            self.api.log("messages missed", site=origin, messages=len(lacking))


def _name(content: ContentFilter) -> bytes:
    return hashlib.blake2b(str(content).encode(), digest_size=8).digest()


def _is_long(filters: Collection[ContentFilter]) -> bool:
    return len(filters) > FILTERS or sum(content.length for content in filters) > LENGTH


def _least(ages: Iterable[tuple[ContentFilter, float]]) -> dict[ContentFilter, float]:
    found: dict[ContentFilter, float] = {}
    for content, at in ages:
        found[content] = min(at, found.get(content, at))
    return found

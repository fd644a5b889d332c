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
from math import inf
from struct import Struct
from typing import TYPE_CHECKING

from ildm_algorithms.exchange.messages import Message, milliseconds
from ildm_algorithms.octopia.content.content import ContentFilter
from ildm_algorithms.octopia.messages import Ask, Asked, Forgot, Late, Offer, Owed, Want

if TYPE_CHECKING:
    from ildm.api import NodeApi, Timer
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
FETCH = 100
"""Messages requested at once from one node."""
PATIENCE = 3.0
"""Seconds without an answer until the same is said again; grows with each attempt."""
ATTEMPTS = 5
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
SAVE_INTERVAL = 10.0
"""Seconds until both entries are written again."""
ON_THE_WAY = 15.0
"""A question may take so long until it arrives; what it asks for is identified by age."""
LOOKBACK = 5.0
"""Messages published in so many seconds before an absence may still have been under way."""
_TIME = Struct(">d")
_SINCE = Struct(">8sd")


class _Question:
    """To one node."""

    __slots__ = (
        "attempts",
        "failures",
        "forgot",
        "lacking",
        "last",
        "node_id",
        "number",
        "page",
        "since",
        "timer",
    )

    def __init__(self, node_id: str, since: float, forgot: bool) -> None:
        self.node_id = node_id
        self.since = since
        self.forgot = forgot
        """It is about messages of before this node has lost its state."""
        self.failures = 0
        self.attempts = 0
        self.number = 0
        self.page = 0
        """Newest page that has come; 0: none has."""
        self.last = False
        self.lacking: dict[int, None] = {}
        self.timer: Timer | None = None


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
        self.seen = seen
        self.take = take
        self.count = count
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
        self._restored = self._absent_since()
        saved = self.api.state.get(SUBSCRIBED, b"")
        if len(saved) % _SINCE.size == 0:
            self._known = dict(_SINCE.iter_unpack(saved))
        self.api.call_later(0.0, self._started)
        self.api.call_later(SAVE_INTERVAL, self._save_presence_periodically)

    def _absent_since(self) -> float:
        saved = self.api.state.get(PRESENT)
        now = self.api.now()
        if saved is None or len(saved) != _TIME.size:
            return now
        (present,) = _TIME.unpack(saved)
        away: float = self.api.wall() - present + LOOKBACK
        if away < 0:
            # how long it was is not known: all that publishers keep may be missing
            self.count("clock_set_back")
            self.api.log("the clock was set back while this node was away", seconds=round(-away))
            away = self.config.absence_period
        if away > self.config.absence_period:
            self.count("away_too_long")
            self.api.log("away for longer than messages are kept", seconds=round(away))
        return now - away

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
        self.api.call_later(SAVE_INTERVAL, self._save_presence_periodically)

    def _save_presence(self) -> None:
        """Save until when nothing was missed, and what was subscribed to lately."""
        now = self.api.now()
        until = min([now, *self._unanswered.values(), *(() if self._from is None else (self._from,))])
        self.api.state[PRESENT] = _TIME.pack(self.api.wall() - now + until)
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
        question.page, question.attempts, question.last = 0, 0, False
        self._open[question.node_id] = question
        self._say(question)

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
        """Ask, ask for the next offer, or want what is lacking of the last."""
        node_id, number = question.node_id, question.number
        if question.timer is not None:
            question.timer.cancel()
        if not question.page:
            self.count("questions")
            age = milliseconds(self.api.now() - question.since)
            if question.forgot:
                self.members.send(node_id, Forgot(number, age, self._filters(-inf)))
            else:
                self.members.send(node_id, Ask(number, age, self._filters(question.since)))
        elif question.lacking:
            self.count("wants")
            self.members.send(node_id, Want(number, 0, tuple(sorted(question.lacking)[:FETCH])))
        else:
            self.members.send(node_id, Want(number, question.page + 1, ()))
        wait = PATIENCE * (1 + question.attempts)
        question.timer = self.api.call_later(wait, self._impatient, question)

    def _impatient(self, question: _Question) -> None:
        question.attempts += 1
        if question.attempts < ATTEMPTS:
            self._say(question)
            return
        self._close(question)
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

    def _close(self, question: _Question) -> None:
        if question.timer is not None:
            question.timer.cancel()
        question.lacking = {}
        self._open.pop(question.node_id, None)
        self._next()

    # answers --------------------------------------------------------------------------------------

    def on_offer(self, sender: str, offer: Offer) -> None:
        """A node has messages that match."""
        question = self._open.get(sender)
        if question is None or question.number != offer.question or offer.page != question.page + 1:
            return
        if question.lacking:
            return
        question.page, question.last, question.attempts = offer.page, offer.last, 0
        room = self.config.offered_messages - sum(len(each.lacking) for each in self._open.values())
        earliest = min(self._subscribed.values(), default=inf)
        if not question.forgot:
            earliest = max(earliest, question.since - LOOKBACK, self._began)
        fresh = [
            one.number
            for one in offer.messages
            if (sender, one.number) not in self.seen
            and not self.api.has_injected(sender, one.number)
            and self.api.now() - one.age / 1000 >= earliest
        ]
        if len(fresh) > room:
            self.count("missed", len(fresh) - room)
            self.api.log("no room to fetch all messages that were missed", site=sender)
            fresh = fresh[:room]
        question.lacking = dict.fromkeys(fresh)
        self._go_on(question)

    def _go_on(self, question: _Question) -> None:
        if question.lacking or not question.last:
            self._say(question)
        else:
            self.members.send(question.node_id, Want(question.number, question.page + 1, ()))
            self._close(question)
            self._answered(question)

    def on_late(self, sender: str, late: Late) -> None:
        """Messages that were requested."""
        question = self._open.get(sender)
        if question is None or question.number != late.question:
            self.count("late_unwanted", len(late.messages))
            return
        question.attempts = 0
        for one in late.messages:
            message = Message.decode(one.payload)
            if self._arrived(question, message.number):
                self.count("fetched")
                self.take(sender, message)
        lost = [number for number in late.gone if self._arrived(question, number)]
        for number in lost:
            self.seen.add(sender, number)  # so that it counts once
        if lost:
            self.count("missed", len(lost))
            self.api.log("messages missed", site=sender, messages=len(lost))
        if late.last:
            for number in [n for n in question.lacking if (sender, n) in self.seen]:
                self._arrived(question, number)
            self._go_on(question)

    def _arrived(self, question: _Question, number: int) -> bool:
        if number not in question.lacking:
            return False
        del question.lacking[number]
        return True


def _name(content: ContentFilter) -> bytes:
    return hashlib.blake2b(str(content).encode(), digest_size=8).digest()


def _is_long(filters: Collection[ContentFilter]) -> bool:
    return len(filters) > FILTERS or sum(content.length for content in filters) > LENGTH


def _least(ages: Iterable[tuple[ContentFilter, float]]) -> dict[ContentFilter, float]:
    found: dict[ContentFilter, float] = {}
    for content, at in ages:
        found[content] = min(at, found.get(content, at))
    return found

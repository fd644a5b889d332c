"""What this node may have missed: it asks the publishers, and fetches what it lacks.

A node cannot know which messages passed it by. But it knows since when it wants a filter, and when it may not
have been part of the graph as others saw it: while its key joined, before its graph became one with another,
while its process stood still or was not there. Then it asks; publishers offer what they have kept
(:mod:`~ildm_algorithms.tbps.offers`), and what has not come here is fetched from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from ildm.mqtt import IldmError, topic_matches
from ildm_algorithms.exchange.absence import LOOKBACK, STAMPS, absent_since, save_time, saved_time
from ildm_algorithms.exchange.messages import Message, milliseconds
from ildm_algorithms.exchange.receiver import Receiver, State
from ildm_algorithms.tbps.confirmed import Confirmed
from ildm_algorithms.tbps.forgotten import ON_THE_WAY
from ildm_algorithms.tbps.keys.encoding import ALL_NODES, publisher_ranges, segments_of_topic
from ildm_algorithms.tbps.messages import Late, Missed, Offer, Want
from ildm_algorithms.tbps.presence import Presence

if TYPE_CHECKING:
    from ildm.api import NodeApi, Peer, Timer
    from ildm_algorithms.exchange.receipts import Receipts
    from ildm_algorithms.overlay.graph import CastResult, SkipGraph
    from ildm_algorithms.tbps.config import TbpsConfig
    from ildm_algorithms.tbps.forgotten import Forgotten
    from ildm_algorithms.tbps.keys.segments import Segments

__all__ = ["Missing"]

SETTLE = 2.0
"""Seconds after a key has joined until it is asked what was published meanwhile."""
SPREAD = 5.0
"""Seconds within which the nodes of a graph that has merged ask, at least."""
QUESTIONS = 4
"""Nodes that ask then in one second, about, as far as a fifth of ``interest_period`` suffices for all."""
RETRY = 3.0
"""Seconds until a question is asked again that has not reached everybody."""
ATTEMPTS = 5
MERGING = 3.0
"""Seconds more while its graph is about to merge: one question does for both."""
RETURN = 10.0
"""Seconds in which a node that comes back finds its graph, and hears of what it has missed; what is offered
waits for that, unless all have been asked sooner."""
ANSWERS = 1.0
"""Seconds until most offers that answer a question are there; what they offer is fetched then, in order."""
OLDER = 3.0
"""Seconds between the question for an absence and the one for what came before it."""
HOLD = SETTLE + MERGING + OLDER + ANSWERS
"""Seconds for which what is offered waits, at most, for offers of older messages that a question brings."""
FEW = 4
"""Filters whose publishers are asked each in their place; more are asked of all nodes at once."""
FILTERS = 500
"""In one question."""
STALL = 2.0
"""Beats that are missed by a process which has stood still for long enough to be taken for dead."""
STAMP = "tbps.present"
"""Entry of the state: Unix time when this node was surely part of the overlay."""
AMONG = "tbps.among"
"""Entry of the state: Unix time when this node was not alone, also if its clients want nothing."""
LOOKS = 6.0
"""Seconds between two looks at what has come: longer than until a merge of graphs is announced to all."""
CLOCK = 0.01
"""Seconds by which a timer may be early."""
REFRESH = 3_600.0
"""Seconds between two questions for all that clients subscribe to, on average, if nothing else happens."""
NUMBERS = 0xFFFF_FFFF
"""Of questions, from 1 on."""
REFUSED = 60.0
"""Seconds until what had no room is asked for, once there is room. What is offered again by then comes
without."""
PAGE = 1_000
"""Messages in one offer at most."""
FETCH_ATTEMPTS = 6
"""How often messages are requested from a node that does not send them."""
LOGGED = 10
"""Topics named in the log at once."""


class Missing:
    """Asks for what may have passed this node by.

    Args:
        is_alone: whether this node sees no other in its graph.
        take: gets each late message, with the id of its origin.
    """

    def __init__(
        self,
        api: NodeApi,
        graph: SkipGraph,
        segments: Segments,
        receipts: Receipts,
        presence: Presence,
        forgotten: Forgotten,
        config: TbpsConfig,
        is_alone: Callable[[], bool],
        merging: Callable[[], bool],
        take: Callable[[str, Message], None],
        count: Callable[..., None],
    ) -> None:
        self.api = api
        self.graph = graph
        self.segments = segments
        self.config = config
        self.is_alone = is_alone
        self._take = take
        self.count = count
        self.receiver = Receiver(api, self, receipts, config.offered_messages, FETCH_ATTEMPTS, count)
        self._peers: dict[str, Peer] = {}
        """Origins from which something is to be fetched."""
        self.merging = merging
        """Whether graphs are about to become one, or have and :meth:`merged` is still to come."""
        self.presence = presence
        self.forgotten = forgotten
        forgotten.news = partial(self._ask_for_all, SETTLE)
        self._recovering = False
        """What was forgotten is still to be fetched."""
        self.confirmed = Confirmed(api, config.remembered_origins, count)
        self._number = 0
        """Of the last question that is to be confirmed."""
        self._since: dict[str, float] = {}
        """Since when clients subscribe to each local filter."""
        self._absent: dict[str, float] = {}
        """Filters of before this node was absent -> since when it was. That comes first: publishers
        may have no room to offer all."""
        self._asked: set[str] = set()
        """Filters that an earlier incarnation had, or that have been asked for: publishers leave out what
        they have offered before."""
        self._open = 0
        """Questions that have not reached all, or not yet."""
        self._to_ask: dict[str, float] = {}
        """Filters to ask for, and since when something may be missing."""
        self._asking: Timer | None = None
        self._ask_at = 0.0
        """When that fires."""
        self._fetch_from = 0.0
        """Until then offers are only collected."""
        self._returns_until = 0.0
        """Until then this node comes back."""
        self._asks_all = False
        """Of one that comes back: it has found its graph, and is to ask there for all it has missed."""
        self._held_until: float | None = None
        """When offers that are being collected are fetched at the latest; None: there are none."""
        self._refused = False
        """Offers had no room: what they offered is asked for when there is."""
        self._restored: float | None = None
        self._began = 0.0
        self._beats = config.overlay.ping_timeout
        """Seconds between two looks at the clock."""
        self.among_before = -inf
        """Until when an earlier incarnation was surely among other nodes."""
        self._last_among = 0.0
        self._last_beat = 0.0
        self._last_stamp = 0.0
        self._last_look = 0.0
        self._given = 0
        """Messages for the local broker by the last beat."""

    def start(self) -> None:
        """Filters that come before any time has passed are those of sessions which outlived a restart."""
        self._began = self.api.now()
        # how long a clock hides is not known; what came before this question is asked for by the second one
        self._restored = absent_since(self.api, STAMP, self.config.absence_period, LOOKBACK, self.count)
        self.presence.load()
        self.confirmed.load()
        among = saved_time(self.api, AMONG)
        if among is not None:
            self.among_before = min(self.api.now(), among) - LOOKBACK
        if self._restored < self.api.now():
            self._returns_until = self.api.now() + RETURN
            self._collect(RETURN)
        self._last_beat = self.api.now()
        self.api.call_later(0.0, self._started)
        self.api.call_later(self._beats, self._beat)
        self._refresh_later()

    def _refresh_later(self) -> None:
        self.api.call_later(REFRESH * (0.5 + self.api.random.random()), self._refresh)

    def _refresh(self) -> None:
        """Ask for all, so that there is little to be offered when graphs merge."""
        self._refresh_later()
        if not self.is_alone():
            self._ask_for_all(SETTLE, sooner=False)

    def _started(self) -> None:
        self._restored = None
        self.presence.started()

    def stop(self) -> None:
        """The node is about to leave the graph in order."""
        self._stamp()

    def left(self) -> None:
        """It has left: nothing is under way to it any more."""
        if self._since and self.api.now() - self._last_stamp < STAMPS and self._broker_keeps_up:
            save_time(self.api, STAMP, self.api.now() + LOOKBACK)
            self.presence.leave(self._settled)

    # when something may have been missed ----------------------------------------------------------

    def interest_since(self, topic_filter: str) -> tuple[float, float]:
        """Since when a local client subscribes to a filter, and since when something may be missing."""
        now = self.api.now()
        if self._restored is None:
            return now, now
        since = self.presence.subscribed_since(topic_filter)
        if since is None and STAMP not in self.api.state:
            if not self._recovering:
                self._recovering = True
                self.forgotten.begin()
            since = now - self.config.absence_period
            return since, since
        return (self._restored if since is None else since), self._restored

    def subscribed(self, topic_filter: str, interest: tuple[float, float] | None = None) -> None:
        """A local client is the first to subscribe to a filter; ``interest``: what :meth:`interest_since`
        has said of it."""
        since, absent = interest or self.interest_since(topic_filter)
        if topic_filter not in self._since:
            self._since[topic_filter] = since
            self.confirmed.leave()
            if since >= self.forgotten.began:
                self.presence.subscribed(topic_filter, since)
            if since < absent:
                self._absent[topic_filter] = absent
                self._asked.add(topic_filter)

    @property
    def is_new(self) -> bool:
        """This incarnation may not have found its graph yet."""
        return self.api.now() < self._began + RETURN

    @property
    def restores(self) -> bool:
        """Filters that come now are those of sessions which outlived a restart."""
        return self._restored is not None

    def known(self, topic_filter: str, since: float) -> None:
        """SUBACK has waited until all publishers knew of a filter: older messages are of no subscription."""
        before = self._since.get(topic_filter)
        if before is not None and before < since:
            self._since[topic_filter] = since
            self.presence.subscribed(topic_filter, since)

    def unsubscribed(self, topic_filter: str) -> None:
        if self._since.pop(topic_filter, None) is not None:
            self.presence.unsubscribed(topic_filter)
        self._absent.pop(topic_filter, None)
        self._to_ask.pop(topic_filter, None)
        self._asked.discard(topic_filter)

    def joined(self, filters: Iterable[str], merging: bool) -> None:
        """The key that serves these filters has joined: what came before, and meanwhile, is missing.
        ``merging``: :meth:`merged` follows."""
        self._ask_for(((name, 0.0) for name in filters), SETTLE + MERGING * merging)

    def merged(self, alone: bool) -> None:
        """The graph has become one with another, at a time nobody knows since when they were two."""
        if not alone:
            # the first turn it was given holds: the least of several would be too soon
            self._ask_for_all(SETTLE + self._spread() * self.api.random.random(), sooner=False)
        elif self.api.now() < self._returns_until:
            # at once, and once more as any other does
            self._asks_all = True
            self._ask_for_all(0.0)
            self.api.call_later(SETTLE, self._ask_for_all, 0.0)
        else:
            self._ask_for_all(SETTLE)

    def _spread(self) -> float:
        """Seconds for the questions of all nodes; how many there are is seen from the levels of own keys."""
        keys = self.graph.keys()
        levels = len(self.graph.neighbors(keys[0])) if keys else 0
        most: float = max(SPREAD, self.config.interest_period / 5)
        return float(min(max(SPREAD, 2**levels / QUESTIONS), most))

    def _beat(self) -> None:
        now = self.api.now()
        self.api.call_later(self._beats, self._beat)
        if now - self._last_beat > STALL * self._beats:
            self.count("stood_still")
            since = self._last_beat - LOOKBACK - self.config.overlay.cast_deadline
            self._ask_for(((name, since) for name in self._since), SETTLE)
        self._last_beat = now
        if now - self._last_stamp >= STAMPS:
            self._stamp()
        if now - self._last_among >= STAMPS and not self.is_alone():
            self._last_among = now
            save_time(self.api, AMONG, now)
        if now - self._last_look >= LOOKS and not self.is_alone():
            self._last_look = now
            self.confirmed.save()
            self.presence.look(self._settled)
        if self._recovering and self._settled:
            self._recovered()
        self._given = self.api.injections.given

    def _recovered(self) -> None:
        """Nothing is missing. If all publishers were asked, that holds for what was forgotten, too."""
        began = self.forgotten.began
        older = {name for name, since in self._since.items() if since < began}
        if older <= self._asked:
            self._recovering = False
            self.forgotten.recovered()
            for name in older:
                self.presence.subscribed(name, began)

    def _stamp(self) -> None:
        """Remember that this node is here, for its next incarnation."""
        if self._since and not (self.is_alone() or self._recovering) and self._broker_keeps_up:
            self._last_stamp = self.api.now()
            save_time(self.api, STAMP, self._last_stamp)

    @property
    def _broker_keeps_up(self) -> bool:
        """It has all that had come by the last beat. What waits for it is lost if this node crashes now, and
        has to be fetched again."""
        return self.api.injections.taken >= self._given

    @property
    def _settled(self) -> bool:
        """Nothing is missing, as far as is known."""
        asking = bool(self._to_ask or self._open)
        asking = asking or self.api.now() < max(self._fetch_from, self._returns_until)
        return self._broker_keeps_up and not (asking or len(self.receiver) or self.merging())

    # asking -----------------------------------------------------------------------------------

    def _ask_for_all(self, wait: float, sooner: bool = True) -> None:
        self._ask_for(((name, 0.0) for name in self._since), wait, sooner)

    def _ask_for(self, filters: Iterable[tuple[str, float]], wait: float, sooner: bool = True) -> None:
        """Ask in ``wait`` seconds. Another question that is later by then comes with this one if it is to be
        ``sooner``; else this one with that."""
        now = self.api.now()
        for name, since in filters:
            known = self._since.get(name)
            if known is not None:
                since = max(since, known)  # noqa: PLW2901
                self._to_ask[name] = min(since, self._to_ask.get(name, since))
        if self._asking is not None and sooner and now + wait < self._ask_at:
            self._asking.cancel()
            self._asking = None
        if self._asking is None and self._to_ask:
            self._ask_in(wait)

    def _ask_in(self, wait: float) -> None:
        self._ask_at = self.api.now() + wait
        self._asking = self.api.call_later(wait, self._ask)

    def _ask(self) -> None:
        self._asking = None
        self._collect(ANSWERS)
        asked, self._to_ask = self._to_ask, {}
        for name, since in asked.items():
            absent = self._absent.pop(name, None)
            if absent is not None and since < absent:
                asked[name], self._to_ask[name] = absent, since
        if self._to_ask:
            self._ask_in(OLDER)
        filters = sorted(asked)
        size = 1 if len(filters) <= FEW else FILTERS
        questions = [
            {name: asked[name] for name in filters[at : at + size]} for at in range(0, len(filters), size)
        ]
        numbers = [0] * len(questions)
        if asked and self._asked == self._since.keys() and self._since.items() <= asked.items():
            numbers = [(self._number + at) % NUMBERS + 1 for at in range(len(questions))]
            self._number = numbers[-1]
            self.confirmed.begin(numbers)
        for question, number in zip(questions, numbers, strict=True):
            self._question(question, 1, number)

    def _collect(self, seconds: float) -> None:
        """Wait for offers, so that what one publisher has sent is fetched in order."""
        self._fetch_from = max(self._fetch_from, self.api.now() + seconds)
        self.api.call_later(seconds, self._fetch)

    def _fetch(self) -> None:
        """Fetch what is offered, unless what is older may be offered soon. A turn to ask that is far off, or
        one question after the other, keeps nothing from coming."""
        now = self.api.now()
        offered = self.receiver.all_in(State.BEHIND)
        if not offered:
            self._held_until = None
            return
        if self._held_until is None:
            self._held_until = max(now + HOLD, self._fetch_from)
        older = self._fetch_from if self._asking is None else max(self._fetch_from, self._ask_at + ANSWERS)
        if now < older - CLOCK and older <= self._held_until:
            return
        self._held_until = None
        for origin in offered:
            self.receiver.fetch(origin)

    def _question(self, asked: dict[str, float], attempt: int, number: int) -> None:
        """``number``: if it is one of those for all filters."""
        now = self.api.now()
        asked = {name: since for name, since in asked.items() if name in self._since}
        if not asked:
            return
        self.count("questions_missed")
        # what is offered that is too old is not fetched
        ages = [(name, milliseconds(now - since + ON_THE_WAY)) for name, since in asked.items()]
        known = self.confirmed.numbers if self._asked.issuperset(asked) else {}
        payload = Missed(ages, number, known, self.forgotten.age).encode()
        only = next(iter(asked))
        # who has not published for longer than that keeps messages, but has no key for their topics any more
        keyed = now - asked[only] <= self.config.publisher_idle
        ranges = publisher_ranges(only) if len(asked) == 1 and keyed else [ALL_NODES]
        left = len(ranges)
        complete = True
        self._open += 1

        def done(result: CastResult) -> None:
            nonlocal left, complete
            left -= 1
            complete = complete and result.complete
            if left:
                return
            if not complete and attempt < ATTEMPTS:
                self.api.call_later(RETRY * attempt, self._again, asked, attempt + 1, number)
                return
            self._open -= 1
            if complete:
                self._asked.update(name for name in asked if name in self._since)
            if not complete:
                self.count("questions_incomplete")
            elif self._asks_all and not (self._open or self._to_ask):
                # whoever has something has been asked, and offers it from its oldest on
                self._asks_all = False
                self._fetch_from = 0.0
                self._collect(ANSWERS)

        for target in ranges:
            self.graph.cast(target, payload, reliable=True, done=done)
        if number and ranges != [ALL_NODES]:
            # nothing waits for the others: who is not reached confirms another time
            self.graph.cast(ALL_NODES, payload, reliable=True)

    def _again(self, asked: dict[str, float], attempt: int, number: int) -> None:
        self._open -= 1
        self._question(asked, attempt, number)

    # fetching -----------------------------------------------------------------------------------

    def offered(self, sender: Peer, offer: Offer) -> None:
        """Another node has messages: fetch what is lacking here, and not older than the interest in it.

        An offer for which there is no room is not answered, so that it is made again.

        Raises:
            IldmError: more are offered than any node offers at once.
        """
        if sender.node_id == self.api.node_id:
            return
        if (size := sum(len(messages) for _, messages in offer.topics)) > PAGE:
            raise IldmError(f"{size} messages offered at once, more than {PAGE}")
        now = self.api.now()
        owed: list[tuple[int, str]] = []
        for topic, messages in offer.topics:
            since = self._subscribed_since(topic)
            if since is None:
                continue
            if not offer.number:  # for all: answers alone leave out what was acknowledged and then forgotten
                since = max(since, self.forgotten.began)
            owed += [(number, topic) for number, age in messages if now - age / 1000 >= since]
        refused = self.receiver.offered(sender.node_id, owed)
        if self.receiver.state(sender.node_id) is not State.CURRENT:
            self._peers[sender.node_id] = sender
        if refused:
            self._refuse(sender, refused, again=offer.number != 0)
        elif offer.number:
            self.graph.tell(sender, Want(offer.number, ()).encode())
        self._fetch()

    def offered_all(self, sender: Peer, question: int, number: int) -> None:
        """A node has offered all that a question asks for, up to one of its messages."""
        self.confirmed.answered(sender.node_id, question, number, sender.node_id in self._peers)

    def came_before(self, origin: str, number: int) -> bool:
        """Whether a message has come in an earlier incarnation of this node: its spool knows, or else it
        shows in how far the numbers of the origin have come."""
        injected = self.api.has_injected(origin, number)
        return self.presence.came_before(origin, number) if injected is None else injected

    def _refuse(self, sender: Peer, topics: list[str], again: bool) -> None:
        if again:
            self._refused = True
            self.count("offers_refused")
            self.api.log("no room to fetch what a site offers", site=sender.node_id, messages=len(topics))
        else:
            self._given_up(topics)

    def _subscribed_since(self, topic: str) -> float | None:
        found = None
        for segment in segments_of_topic(topic):
            member = self.segments.get(segment)
            for name in member.filters if member is not None else ():
                since = self._since.get(name)
                if since is not None and topic_matches(name, topic):
                    found = since if found is None else min(found, since)
        return found

    def arrived(self, sender: Peer, late: Late) -> None:
        """Messages that were requested."""
        self.receiver.arrived(sender.node_id, late.messages, late.gone, late.last)

    def want(self, origin: str, numbers: list[int]) -> None:
        """Request messages of an origin."""
        self.graph.tell(self._peers[origin], Want(0, numbers).encode())

    def take(self, origin: str, topic: str, age: int, message: Message) -> bool:
        """Deliver a message, unless its offer was under way for so long that it is too old."""
        since = self._subscribed_since(topic)
        if since is None or self.api.now() - age / 1000 < since:
            return False
        self._take(origin, message)
        return True

    def lost(self, origin: str, lacking: dict[int, str], gone: bool) -> None:
        """Messages never come."""
        for number in lacking if gone else ():
            self.presence.received(origin, number)
        self._given_up(lacking.values())

    def ended(self, origin: str, filled: bool) -> None:
        """An origin has nothing more that is to be fetched."""
        del self._peers[origin]
        self.confirmed.fetched(origin)
        if self._refused and not self._peers:
            self._refused = False
            self.api.call_later(REFUSED, self._ask_for_all, 0.0)

    def _given_up(self, topics: Iterable[str]) -> None:
        lost = Counter(topics)
        if lost:
            self.count("missed", lost.total())
            for topic, number in lost.most_common(LOGGED):
                self.api.log("messages missed", topic=topic, messages=number)

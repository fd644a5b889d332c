"""What the node of a publisher does for sites that may have missed a message: it offers what it has kept.

To one site that asks (MISSED), page by page. To all subscribers of a segment, where a message may have missed
some: its cast was not complete, or the publisher was suspended and is not any more. Who lacks something wants
it, and gets it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from ildm.mqtt import FilterTable, IldmError, topic_matches
from ildm_algorithms.exchange.incarnation import NUMBERS
from ildm_algorithms.exchange.messages import milliseconds
from ildm_algorithms.exchange.repair import send_late
from ildm_algorithms.tbps.keys.encoding import ALL_NODES, segments_of_topic
from ildm_algorithms.tbps.messages import Late, Missed, Offer, Offered, Want
from ildm_algorithms.tbps.publishers.aggregates import ASK_EVERY

if TYPE_CHECKING:
    from ildm.api import NodeApi, Peer, Timer
    from ildm_algorithms.exchange.log import Log
    from ildm_algorithms.overlay.graph import CastResult, SkipGraph
    from ildm_algorithms.overlay.keys import Range
    from ildm_algorithms.tbps.config import TbpsConfig
    from ildm_algorithms.tbps.keys.encoding import Segment
    from ildm_algorithms.tbps.keys.segments import Member

__all__ = ["Offers"]

PAGE = 1_000
"""Messages in one offer."""
ANSWER_TIME = 2.0
"""Seconds until an offer that was not answered is made again."""
ATTEMPTS = 6
"""How often one offer to one site is made; each time the pause grows by ``ANSWER_TIME``."""
ASKERS = 1_000
"""Questions of sites answered at once."""
QUESTION = 1_000
"""Filters in one question at most."""
LEARN = 0.5
"""Seconds in which segments are collected that an aggregate hears of."""
LEARNED = 10_000
"""Of them, at most."""
TICK = 5.0
"""Seconds between looks at segments which are to get an offer once more."""
FOUND = 1_000
"""Messages published while the node was alone, or in an earlier incarnation, that are looked at in one
call."""
AT_ONCE = 16
"""Segments that get offers of their own; where more are to get one, all nodes get a page for all of them."""
LONGEST = 12
"""Looks between two offers to one segment, at most."""


class _Question(NamedTuple):
    """Of a site."""

    missed: Missed
    asked_at: float
    newest: int
    """Number of the last message there was by then."""


class _Asker:
    """A site that has asked."""

    __slots__ = ("above", "attempts", "numbers", "page", "peer", "question", "timer")

    def __init__(self, peer: Peer, numbers: array[int]) -> None:
        self.peer = peer
        self.numbers = numbers
        """Still to be offered, the oldest last."""
        self.page: list[int] = []
        """Offered, but not answered."""
        self.attempts = 0
        self.timer: Timer | None = None
        self.question: _Question | None = None
        self.above: int | None = None
        """All up to this number is offered, and there was no room for more; None: there was."""


class _Unconfirmed:
    """Messages that some in a segment may have missed."""

    __slots__ = ("attempts", "numbers", "segment", "under_way", "wait")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.numbers: dict[int, None] = {}
        self.attempts = 0
        self.wait = 0
        """Looks to let pass."""
        self.under_way = False


class Offers:
    """Offers kept messages to those who may lack them."""

    def __init__(
        self,
        api: NodeApi,
        graph: SkipGraph,
        kept: Log,
        config: TbpsConfig,
        count: Callable[..., None],
    ) -> None:
        self.api = api
        self.there_until: Callable[[str, float], float] = lambda node_id, told: told
        """Until when a node was there that has lost its state; with what it says itself."""
        self.graph = graph
        self.kept = kept
        self.config = config
        self.count = count
        self._askers: dict[int, _Asker] = {}
        self._number = 0
        self._unconfirmed: dict[bytes, _Unconfirmed] = {}
        """By code of the segment."""
        self._unconfirmed_numbers = 0
        self._learned: set[bytes] = set()
        self._ticking = False
        # by then an aggregate has asked everybody once
        longest = 1.5 * ASK_EVERY * config.status_interval + TICK
        self._window = min(config.interest_period, longest)

    # who asks -----------------------------------------------------------------------------------

    def asked(self, asker: Peer, missed: Missed, age: float) -> None:
        """Offer what filters of another site match, as far as it is not older than they allow.

        ``age``: seconds since it has asked.

        Raises:
            IldmError: it asks for more than any node asks for at once.
        """
        if len(missed.filters) > QUESTION:
            raise IldmError(f"a question for {len(missed.filters)} filters, more than {QUESTION}")
        question = _Question(missed, self.api.now() - age, self.kept.newest_written)
        self._answer(asker, question, -1)

    def _answer(self, asker: Peer, question: _Question, above: int) -> None:
        """Offer what a question asks for, above a number."""
        matching = self._matching(asker, question, above)
        if not matching:
            self._offered_all(asker, question)
            return
        room = self._room(asker)
        if not room:
            self.count("offers_full")
            self.api.log(
                "no room to offer what a site has missed", site=asker.node_id, messages=len(matching)
            )
            return
        self._number += 1
        self._askers[self._number] = asking = _Asker(asker, array("Q", matching[-room:]))
        asking.question = question
        if room < len(matching):
            asking.above = asking.numbers[0]
        self._next_page(self._number, asking)

    def _offered_all(self, asker: Peer, question: _Question) -> None:
        if question.missed.number and question.newest > 0:
            self.graph.tell(asker, Offered(question.missed.number, question.newest).encode())

    def _matching(self, asker: Peer, question: _Question, above: int) -> list[int]:
        """Numbers of messages that a site may have missed, also of those that are gone, the newest first."""
        missed, asked_at, _ = question
        oldest = [asked_at - most / 1000 for _, most in missed.filters]
        table: FilterTable[int] = FilterTable()
        for index, (topic_filter, _) in enumerate(missed.filters):
            table.add(topic_filter, index)
        since: dict[str, float] = {}
        for topic in self.kept.topics():
            matches = table.match(topic)
            if matches:
                since[topic] = min(oldest[index] for index in matches)
        if not since:
            return []
        confirmed = missed.confirmed.get(self.api.node_id, -1)
        if confirmed >> NUMBERS > self.kept.newest >> NUMBERS:
            confirmed = -1  # numbers began anew, with the state of the node lost
        recent = asked_at - self.config.interest_period
        first = min(since.values())
        numbers = [
            number
            for number, at, topic in self.kept.all_since(first, recent, max(confirmed, above))
            if number > above and at >= since.get(topic, inf)
        ]
        if missed.heard is not None:
            heard = self.there_until(asker.node_id, asked_at - missed.heard / 1000)
            entries = ((number, self.kept.get(number)) for number in numbers)
            numbers = [
                number for number, entry in entries if entry is not None and entry.lacks(asker.node_id, heard)
            ]
        return sorted(numbers, reverse=True)

    def _room(self, asker: Peer) -> int:
        """How many more can be offered to a site. In all it takes no more than what it leaves to others."""
        its = [asking for asking in self._askers.values() if asking.peer.node_id == asker.node_id]
        if len(its) >= ASKERS - len(self._askers):
            return 0
        offered = sum(len(asking.page) + len(asking.numbers) for asking in self._askers.values())
        taken = sum(len(asking.page) + len(asking.numbers) for asking in its)
        return max(0, (self.config.offered_messages - offered - taken) // 2)

    def _next_page(self, number: int, asker: _Asker) -> None:
        asker.page = [asker.numbers.pop() for _ in range(min(PAGE, len(asker.numbers)))]
        asker.attempts = 0
        if asker.page:
            self._send_page(number, asker)
            return
        del self._askers[number]
        if asker.question is None:
            return
        if asker.above is None:
            self._offered_all(asker.peer, asker.question)
        else:
            self._answer(asker.peer, asker.question, asker.above)

    def _send_page(self, number: int, asker: _Asker) -> None:
        asker.attempts += 1
        self.count("offers")
        self.graph.tell(asker.peer, self._offer(number, asker.page).encode())
        asker.timer = self.api.call_later(ANSWER_TIME * asker.attempts, self._unanswered, number)

    def _unanswered(self, number: int) -> None:
        asker = self._askers.get(number)
        if asker is None:
            return
        if asker.attempts < ATTEMPTS:
            self._send_page(number, asker)
            return
        # it asks again when it is back
        self.count("offers_unanswered")
        del self._askers[number]

    def _offer(self, number: int, messages: Iterable[int]) -> Offer:
        now = self.api.now()
        topics: dict[str, list[tuple[int, int]]] = {}
        for at in messages:
            entry = self.kept.get(at)
            if entry is None:
                published, topic = self.kept.gone(at) or (0.0, "")
            elif entry.expires_at is None or entry.expires_at > now:
                published, topic = entry.at, entry.topic
            else:
                continue
            if topic:
                topics.setdefault(topic, []).append((at, milliseconds(now - published)))
        return Offer(number, list(topics.items()))

    def wanted(self, sender: Peer, want: Want) -> None:
        """A site has got an offer, or lacks messages of one: send them.

        Raises:
            IldmError: it wants more than there are in any offer.
        """
        if len(want.numbers) > PAGE:
            raise IldmError(f"{len(want.numbers)} messages requested at once, more than {PAGE}")
        asker = self._askers.get(want.offer)
        if asker is not None and asker.peer.node_id == sender.node_id:
            if asker.timer is not None:
                asker.timer.cancel()
            self._next_page(want.offer, asker)
        if not want.numbers:
            return

        def send(last: bool, gone: list[int], messages: dict[int, tuple[int, bytes]]) -> bool:
            self.graph.tell(sender, Late(last, gone, list(messages.values())).encode())
            return True

        send_late(self.kept, want.numbers, self.api.now(), send, self.count)

    # where some may have missed something -------------------------------------------------------

    def resumed(self, member: Member) -> None:
        """Offer what an own publisher has not sent into a segment while it was suspended, if it is that no
        more."""
        if member.skipped is None or not member.active:
            return
        since, member.skipped = member.skipped, None
        segment = member.segment
        if segment.is_exact:
            self._skipped(segment, since, member.topics.__contains__)
        else:
            self._skipped(segment, since, partial(topic_matches, segment.text))

    def overlooked(self, segment: Segment) -> None:
        """A segment below an aggregate has subscribers, and they have not announced themselves in time."""
        self._skipped(segment, 0.0, partial(topic_matches, segment.text))

    def _skipped(self, segment: Segment, since: float, concerns: Callable[[str], bool]) -> None:
        for number, entry in self.kept.since(max(since, self.api.now() - self._window)):
            if concerns(entry.topic):
                self.unconfirmed(segment, number)
        unconfirmed = self._unconfirmed.get(segment.code)
        if unconfirmed is not None and not unconfirmed.under_way:
            self._offer_to_all(segment.subscribers, [unconfirmed])

    def learned(self, codes: Iterable[bytes]) -> None:
        """An own aggregate has not sent into these segments, and hears now that they have subscribers: they
        may have had them for a while."""
        if not self._learned:
            self.api.call_later(LEARN, self._offer_learned)
        for code in codes:
            if len(self._learned) >= LEARNED:
                self.count("learned_full")
                return
            self._learned.add(code)

    def _offer_learned(self) -> None:
        codes, self._learned = self._learned, set()
        segments: dict[str, list[Segment]] = {}
        for number, entry in self.kept.since(self.api.now() - self._window):
            found = segments.get(entry.topic)
            if found is None:
                found = [segment for segment in segments_of_topic(entry.topic) if segment.code in codes]
                segments[entry.topic] = found
            for segment in found:
                self.unconfirmed(segment, number)

    def found_others(self, since: float) -> None:
        """This node was alone since that time, and is no more: what its clients have published meanwhile, or
        an earlier incarnation may not have sent, nobody asks for who has been in the graph all the time."""
        self._found(array("Q", (number for number, _ in self.kept.since(since))), 0)

    def _found(self, numbers: array[int], at: int) -> None:
        """The newest first, so many in one call."""
        for number in numbers[at : at + FOUND]:
            entry = self.kept.get(number)
            for segment in segments_of_topic(entry.topic) if entry is not None else ():
                self.unconfirmed(segment, number)
        if at + FOUND < len(numbers):
            self.api.call_later(0.0, self._found, numbers, at + FOUND)
        else:
            self._offer_due()

    def unconfirmed(self, segment: Segment, number: int) -> None:
        """A message may not have reached all in a segment: offer it to them, until that has."""
        entry = self.kept.get(number)
        if entry is None or self._unconfirmed_numbers >= self.config.offered_messages:
            self.kept.give_up(segment.text if entry is None else entry.topic)
            return
        unconfirmed = self._unconfirmed.get(segment.code)
        if unconfirmed is None:
            unconfirmed = self._unconfirmed[segment.code] = _Unconfirmed(segment)
        if number not in unconfirmed.numbers:
            unconfirmed.numbers[number] = None
            self._unconfirmed_numbers += 1
            entry.unconfirmed += 1
        if not self._ticking:
            self._ticking = True
            self.api.call_later(TICK * (0.5 + self.api.random.random()), self._tick)

    def merged(self) -> None:
        """The graph is another: what could not be offered before may be offered now."""
        for unconfirmed in self._unconfirmed.values():
            unconfirmed.attempts = unconfirmed.wait = 0

    def _tick(self) -> None:
        self._ticking = bool(self._unconfirmed)
        if not self._ticking:
            return
        self.api.call_later(TICK * (0.5 + self.api.random.random()), self._tick)
        for unconfirmed in self._unconfirmed.values():
            unconfirmed.wait -= 1
        self._offer_due()

    def _offer_due(self) -> None:
        due = [one for one in self._unconfirmed.values() if one.wait <= 0 and not one.under_way]
        if len(due) > AT_ONCE:
            self._offer_to_all(ALL_NODES, due)
        else:
            for unconfirmed in due:
                self._offer_to_all(unconfirmed.segment.subscribers, [unconfirmed])

    def _offer_to_all(self, target: Range, segments: list[_Unconfirmed]) -> None:
        """Offer a page of what some in these segments may have missed."""
        offered: list[tuple[_Unconfirmed, list[int]]] = []
        room = PAGE
        for unconfirmed in segments:
            for number in list(unconfirmed.numbers):
                if self.kept.get(number) is None:
                    self._sure(unconfirmed, number)
            if not room:
                break
            if numbers := list(islice(unconfirmed.numbers, room)):
                room -= len(numbers)
                unconfirmed.under_way = True
                offered.append((unconfirmed, numbers))
        if offered:
            self.count("offers_to_all")
            payload = self._offer(0, {number for _, numbers in offered for number in numbers}).encode()
            self.graph.cast(target, payload, reliable=True, done=partial(self._page_offered, offered))

    def _page_offered(self, offered: list[tuple[_Unconfirmed, list[int]]], result: CastResult) -> None:
        for unconfirmed, numbers in offered:
            unconfirmed.under_way = False
            if result.complete:
                unconfirmed.attempts = unconfirmed.wait = 0
                for number in numbers:
                    self._sure(unconfirmed, number)
            else:
                unconfirmed.attempts = min(unconfirmed.attempts + 1, LONGEST)
                unconfirmed.wait = min(2**unconfirmed.attempts, LONGEST)

    def _sure(self, unconfirmed: _Unconfirmed, number: int) -> None:
        if number not in unconfirmed.numbers:
            return
        del unconfirmed.numbers[number]
        self._unconfirmed_numbers -= 1
        entry = self.kept.get(number)
        if entry is not None:
            entry.unconfirmed -= 1
            if not (entry.unconfirmed or entry.casts) and entry.reached == inf:
                self.kept.done(number)  # not before: those that had it then have it, whoever gets it now
        if not unconfirmed.numbers:
            self._unconfirmed.pop(unconfirmed.segment.code, None)

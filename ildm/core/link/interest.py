"""Inter-subscribing (thesis 5.3.2) on one link: what this node wants there, what the neighbour wants here.

What an algorithm wants is kept in a map; of its changes one SUBSCRIBE or UNSUBSCRIBE at a time is under way,
so a link that is slow or stalls holds back a set of filters, never a queue of packets. Changes go in rounds:
those that have come up to a moment, additions first, so that no topic is uncovered between the two halves of
an exchange. Filters that change to and fro within a round cost nothing.

SUBACK says that the neighbour has the filters; that it has told them on, and so did those behind it, says its
control message ``told``, with the number of packets up to which that holds (see ``telling``).

A neighbour that has no room for a filter refuses it. Then it is told ``#``, for which there is always room,
and sends too much rather than too little; that comes before anything is withdrawn, so that a filter may take
the place of those it covers at a neighbour that is full. What it has refused is tried again when something
was withdrawn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from ildm.core.plugin.arguments import new_filters, old_filters
from ildm.mqtt import (
    MalformedPacket,
    ReasonCode,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
)

if TYPE_CHECKING:
    from ildm.config import LinkConfig
    from ildm.core.counters import Counters
    from ildm.core.link.translation import Translation
    from ildm.core.transfer.sender import Sender

FILTERS_PER_PACKET = 500
"""Its receiver takes one in slices (:mod:`.slices`)."""
BYTES_PER_PACKET = 1 << 16
"""Of a SUBSCRIBE or UNSUBSCRIBE; one filter may need all of it."""
LARGEST_PACKET = BYTES_PER_PACKET + 64
MARKS = 64
EVERYTHING = "#"
"""Stands for all that a neighbour has no room for; there is always room for it."""
FILTER_BYTES = 100
LEVEL_BYTES = 650
"""What a filter, and a level of it, take in memory beside the text: measured with subscription flooding and
one more neighbour, each filter with levels of its own."""


def kept_bytes(topic_filter: str) -> int:
    """What a neighbour's filter takes in memory at most, about: here, in the table of filters that routes,
    and in what is announced to another neighbour."""
    return FILTER_BYTES + len(topic_filter) + LEVEL_BYTES * (topic_filter.count("/") + 1)


class Announcer:
    """What this node wants from a neighbour, and how far the neighbour has been told.

    Args:
        sender: of the link's first session.
        synchronized: everything has been repeated; may write more.
        progressed: :attr:`advertised` has grown.
        full: the neighbour has no room for a filter, and had for all before.
    """

    def __init__(
        self,
        counters: Counters,
        sender: Callable[[], Sender],
        synchronized: Callable[[], None],
        progressed: Callable[[], None],
        full: Callable[[], None] = lambda: None,
    ) -> None:
        self.counters = counters
        self.interest: dict[str, int] = {}
        """Filter -> maximum QoS."""
        self.version = 0
        """Grows with every change of the interest."""
        self.advertised = 0
        """The neighbour, and all behind it, know the interest of this version."""
        self.speaking = False
        """The neighbour is told changes; else everything is repeated to it later."""
        self.waiting_for: int | None = None
        """Identifier of the packet under way."""
        self._sender = sender
        self._synchronized = synchronized
        self._progressed = progressed
        self._full = full
        self._synchronizing = False
        # filters that have changed, each with the QoS the neighbour was last told
        self._round: dict[str, int | None] = {}
        self._next: dict[str, int | None] = {}
        self._steps: Iterator[tuple[bool, str]] = iter(())
        self._first_steps: list[tuple[bool, str]] = []
        self._version_of_round = 0
        self._under_way: dict[str, int | None] = {}
        self._refused: dict[str, None] = {}
        self._freed = 0  # filters for which the neighbour may have room since it has refused one
        self._sent = 0
        self._answered = 0
        self._marks: deque[tuple[int, int]] = deque()
        self._pings = 0
        self._sent_at_ping = 0

    # what the algorithm wants -------------------------------------------------------------------

    def subscribe(self, filters: Mapping[str, int]) -> None:
        """Raises: PluginError when one is no filter."""
        for topic_filter, qos in new_filters(filters, self.interest).items():
            self._note(topic_filter)
            self.interest[topic_filter] = qos
        self._go_on()

    def unsubscribe(self, filters: Iterable[str]) -> None:
        for topic_filter in old_filters(filters, self.interest):
            self._note(topic_filter)
            del self.interest[topic_filter]
            self._settle(topic_filter)
        self._go_on()

    def _note(self, topic_filter: str) -> None:
        self.version += 1
        if self.speaking and topic_filter not in self._round:
            advertised = None if topic_filter in self._refused else self._aim(topic_filter)
            self._next.setdefault(topic_filter, advertised)

    def _aim(self, topic_filter: str) -> int | None:
        """The QoS the neighbour is to know in the end."""
        if self._refused and topic_filter == EVERYTHING:
            return 2
        return self.interest.get(topic_filter)

    def _settle(self, topic_filter: str) -> None:
        """The neighbour has taken a filter, or need not any more."""
        if topic_filter in self._refused:
            del self._refused[topic_filter]
            if not self._refused and EVERYTHING not in self._round:
                self._next.setdefault(EVERYTHING, 2)

    def clear(self) -> None:
        """The link has left the cooperation."""
        self.stop()
        self.interest.clear()

    # telling ----------------------------------------------------------------------------------

    @property
    def behind(self) -> bool:
        """Some of the interest is not known to the neighbour, or to those behind it."""
        return self.speaking and self.advertised < self.version

    def connected(self) -> None:
        """There is a new connection: packets are counted anew."""
        self.stop()
        self._sent = self._answered = self._pings = self._sent_at_ping = 0

    def start(self) -> None:
        """Repeat everything; the neighbour drops what is not repeated."""
        self.stop()
        self.speaking = self._synchronizing = True
        self.advertised = -1
        self._next = dict.fromkeys(self.interest)
        self._begin_round()
        self._go_on()

    def stop(self) -> None:
        """The neighbour cannot be told anything now."""
        self.speaking = self._synchronizing = False
        self.waiting_for = None
        self._round, self._next, self._steps = {}, {}, iter(())
        self._first_steps, self._under_way, self._refused, self._freed = [], {}, {}, 0
        self._marks.clear()

    def acknowledged(self, packet_id: int, reason_codes: Iterable[int]) -> None:
        """SUBACK or UNSUBACK has come."""
        if packet_id != self.waiting_for:
            return
        self.waiting_for = None
        self._sender().release_packet_id(packet_id)
        under_way, self._under_way = self._under_way, {}
        if any(qos is None for qos in under_way.values()):
            self._freed += len(under_way)
        else:
            self._answers(under_way, reason_codes)
        self._go_on()

    def _answers(self, under_way: Mapping[str, int | None], reason_codes: Iterable[int]) -> None:
        """The neighbour has taken some filters of a SUBSCRIBE, and perhaps refused others."""
        everything, was_full = self._aim(EVERYTHING), bool(self._refused)
        full, taken = False, 0
        for (topic_filter, qos), code in zip(under_way.items(), reason_codes, strict=False):
            refused = code >= 0x80
            if topic_filter in self._next:  # it has changed meanwhile
                self._next[topic_filter] = None if refused else qos
            if refused:
                self.counters["inter_subscribes_refused"] += 1
            if code == ReasonCode.QUOTA_EXCEEDED:
                full = True
                if topic_filter in self.interest:
                    self._refused.pop(topic_filter, None)
                    self._refused[topic_filter] = None
            elif topic_filter in self._refused:
                taken += 1
                self._settle(topic_filter)
        if not full:
            self._freed += 2 * taken
        elif self._refused and not was_full:
            self._round.setdefault(EVERYTHING, self._next.pop(EVERYTHING, everything))
            self._first_steps.append((True, EVERYTHING))
            self._full()

    def ping_answered(self) -> int:
        """The neighbour has answered a PINGREQ; answers how many since the packet under way was sent, which
        it should have answered before. Time says nothing: over a slow line both may wait behind messages."""
        waited = self.waiting_for is not None and self._sent == self._sent_at_ping
        self._pings = self._pings + 1 if waited else 0
        self._sent_at_ping = self._sent
        return self._pings

    def advertised_on(self, packets: int) -> None:
        """So many packets of this connection are known behind the neighbour, too.

        Raises:
            MalformedPacket: it has not got that many.
        """
        if packets > self._sent:
            raise MalformedPacket(f"told {packets} of {self._sent} packets", clause="MQTT-4.13")
        self._answered = max(self._answered, packets)
        before = self.advertised
        while self._marks and self._marks[0][0] <= self._answered:
            self.advertised = self._marks.popleft()[1]
        if self.advertised > before:
            self._progressed()

    def _begin_round(self) -> None:
        self._round, self._next = self._next, {}
        self._version_of_round = self.version
        subscribing, unsubscribing = list(self._round), self._round
        parts = (True, subscribing), (False, unsubscribing), (False, (EVERYTHING,))
        self._steps = ((adding, f) for adding, part in parts for f in list(part))

    def _next_step(self) -> tuple[bool, str] | None:
        return self._first_steps.pop() if self._first_steps else next(self._steps, None)

    def _try_again(self) -> None:
        """What was refused, as much of it as there may be room for now."""
        if self._refused:
            for topic_filter in islice(self._refused, min(self._freed, FILTERS_PER_PACKET)):
                self._next.setdefault(topic_filter, None)
        self._freed = 0

    def _go_on(self) -> None:
        """Send what comes next, unless a packet is under way."""
        while self.speaking and self.waiting_for is None:
            adding, part = self._part()
            if part:
                self._send(adding, part)
                return
            self._end_round()
            self._try_again()
            if not self._next:
                return
            self._begin_round()

    def _part(self) -> tuple[bool, list[str]]:
        """The filters of the next packet; empty at the end of the round."""
        sender, size = self._sender(), 0
        part: list[str] = []
        room = min(LARGEST_PACKET, sender.wire.max_packet_size) - 16
        kind = True
        while (step := self._next_step()) is not None:
            adding, topic_filter = step
            if topic_filter not in self._round or (self._aim(topic_filter) is None) is adding:
                if not adding and topic_filter in self._round:
                    # wanted again since the additions went out: another round, if that is news
                    advertised = self._round.pop(topic_filter)
                    if advertised != self._aim(topic_filter):
                        self._next[topic_filter] = advertised
                continue
            advertised = self._round.pop(topic_filter)
            if advertised == self._aim(topic_filter):
                continue
            needed = len(topic_filter.encode()) + 3
            if needed > room:
                self.counters["inter_subscribes_dropped_too_large"] += 1
                continue
            if part and (adding is not kind or size + needed > room):
                self._round[topic_filter] = advertised
                self._first_steps.append(step)
                break
            kind = adding
            part.append(topic_filter)
            size += needed
            if len(part) == FILTERS_PER_PACKET:
                break
        return kind, part

    def _send(self, adding: bool, part: list[str]) -> None:
        sender = self._sender()
        self.waiting_for = packet_id = sender.new_packet_id()
        packet: Subscribe | Unsubscribe
        self._under_way = {f: self._aim(f) for f in part}
        if adding:
            interest = [Subscription(topic_filter=f, qos=qos or 0) for f, qos in self._under_way.items()]
            packet = Subscribe(packet_id=packet_id, subscriptions=interest)
        else:
            packet = Unsubscribe(packet_id=packet_id, topic_filters=part)
        self.counters["inter_subscribes" if adding else "inter_unsubscribes"] += len(part)
        self._sent += 1
        sender.wire.write(packet.encode(Version.V5))

    def _end_round(self) -> None:
        if self._synchronizing:
            self._synchronizing = False
            self._synchronized()
            self._freed += FILTERS_PER_PACKET  # the neighbour drops what was not repeated
        version = self._version_of_round if self._next else self.version
        if self._answered >= self._sent:
            if version > self.advertised:
                self.advertised = version
                self._progressed()
        elif len(self._marks) < MARKS:
            self._marks.append((self._sent, version))
        else:
            self._marks[-1] = self._sent, version


class ReceivedInterest:
    """What a neighbour wants from this node, bounded in number and bytes."""

    def __init__(
        self,
        config: LinkConfig,
        counters: Counters,
        levels: int,
        refused: Callable[[str], None] = lambda topic_filter: None,
        translation: Translation | None = None,
    ) -> None:
        """``refused`` is told of each filter that is not taken; ``translation`` makes local ones of them."""
        self._refused = refused
        self._translation = translation
        self.config = config
        self.counters = counters
        self.levels = levels
        """Levels of the longest filter that is taken."""
        self.filters: dict[str, int] = {}
        """Filter -> maximum QoS, by wire names."""
        self.local = self.filters if translation is None else translation.made
        """The same by local names."""
        self.bytes = 0
        """About what the filters take in memory."""
        self.packets = 0
        """SUBSCRIBE and UNSUBSCRIBE of this connection that were taken whole."""
        self._stale: set[str] | None = None

    def begin_synchronization(self) -> None:
        """The neighbour is about to repeat its interest."""
        self._stale = set(self.filters)

    def end_synchronization(self) -> dict[str, int | None]:
        """The neighbour has repeated its interest; answers what is no longer in it."""
        stale, self._stale = self._stale or set(), None
        for topic_filter in stale:
            self._remove(topic_filter)
        return dict.fromkeys(stale)

    def local_changes(self, changes: dict[str, int | None]) -> dict[str, int | None]:
        """What changes of the neighbour's interest mean for local names; all since the last call."""
        return changes if self._translation is None else self._translation.take_changes()

    @property
    def synchronizing(self) -> bool:
        """The neighbour has not repeated all of its interest yet."""
        return self._stale is not None

    def translate(self, translation: Translation | None) -> dict[str, int | None]:
        """Make local filters in another way from now on; answers what that changes of them."""
        before = dict(self.local)
        self._translation = translation
        self.local = self.filters if translation is None else translation.made
        self.bytes = 0
        for topic_filter, qos in self.filters.items():
            self.bytes += self._kept(topic_filter)
            if translation is not None:
                translation.put(topic_filter, qos)
        if translation is not None:
            translation.take_changes()  # they are told by what is answered
        changes: dict[str, int | None] = {f: qos for f, qos in self.local.items() if before.get(f) != qos}
        return changes | dict.fromkeys(before.keys() - self.local.keys())

    @property
    def over_limit(self) -> bool:
        """More is kept than a neighbour may want, as other rules make more of it."""
        number, size = self._room_taken
        return number > self.config.max_filters or size > self.config.max_filter_bytes

    def restore(self, filters: Mapping[str, int]) -> None:
        """What an earlier life of this node has received."""
        for topic_filter, qos in filters.items():
            self._set(topic_filter, qos)

    def subscribed(self, packet: Subscribe) -> tuple[dict[str, int | None], list[int]]:
        """Answers the changes and the reason codes of SUBACK.

        Raises:
            MalformedPacket: what no node sends.
        """
        changes: dict[str, int | None] = {}
        codes: list[int] = []
        for entry in packet.subscriptions:
            topic_filter = entry.topic_filter
            if topic_filter.startswith("$"):
                raise MalformedPacket(
                    f"inter-subscription to {topic_filter!r}: $-topics do not cross", clause="MQTT-4.7.2-1"
                )
            if self._stale is not None:
                self._stale.discard(topic_filter)
            before = self.filters.get(topic_filter)
            refusal = self._refusal(topic_filter) if before is None else None
            if refusal is not None:
                self.counters["interest_over_limit"] += 1
                self._refused(topic_filter)
                codes.append(int(refusal))
                continue
            codes.append(entry.qos)
            if before != entry.qos:
                self._set(topic_filter, entry.qos)
                changes[topic_filter] = entry.qos
        return changes, codes

    def unsubscribed(self, packet: Unsubscribe) -> tuple[dict[str, int | None], list[int]]:
        """Answers the changes and the reason codes of UNSUBACK."""
        changes: dict[str, int | None] = {}
        codes: list[int] = []
        for topic_filter in packet.topic_filters:
            known = self._remove(topic_filter)
            codes.append(int(ReasonCode.SUCCESS if known else ReasonCode.NO_SUBSCRIPTION_EXISTED))
            if known:
                changes[topic_filter] = None
        return changes, codes

    def clear(self) -> None:
        self.filters.clear()
        if self._translation is not None:
            self._translation.clear()
        self.bytes = 0
        self._stale = None

    def _refusal(self, topic_filter: str) -> ReasonCode | None:
        """Why a new filter is not taken; ``#`` always is, and takes no room."""
        kept = [topic_filter]
        if self._translation is not None:
            kept += self._translation.becomes(topic_filter)
        if any(each.count("/") >= self.levels for each in kept):
            return ReasonCode.TOPIC_FILTER_INVALID
        if topic_filter == EVERYTHING:
            return None
        number, size = self._room_taken
        size += self._kept(topic_filter)
        full = number >= self.config.max_filters or size > self.config.max_filter_bytes
        return ReasonCode.QUOTA_EXCEEDED if full else None

    @property
    def _room_taken(self) -> tuple[int, int]:
        """Filters and bytes, without what ``#`` takes."""
        number = max(len(self.filters), len(self.local))
        if EVERYTHING in self.filters:
            return number - 1, self.bytes - self._kept(EVERYTHING)
        return number, self.bytes

    def _set(self, topic_filter: str, qos: int) -> None:
        if topic_filter not in self.filters:
            self.bytes += self._kept(topic_filter)
        self.filters[topic_filter] = qos
        if self._translation is not None:
            self._translation.put(topic_filter, qos)

    def _remove(self, topic_filter: str) -> bool:
        if self.filters.pop(topic_filter, None) is None:
            return False
        self.bytes -= self._kept(topic_filter)
        self._verify()
        if self._translation is not None:
            self._translation.remove(topic_filter)
        return True

    def _verify(self) -> None:
        assert self.bytes >= 0, f"the filters of a neighbour have {self.bytes} bytes"
        assert self.filters or not self.bytes, f"no filters have {self.bytes} bytes"

    def check(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        self._verify()
        size = sum(map(self._kept, self.filters))
        assert self.bytes == size, f"filters of {size} bytes count {self.bytes}"

    def _kept(self, topic_filter: str) -> int:
        """What a filter, with what is made of it, takes in memory, about."""
        made = () if self._translation is None else self._translation.becomes(topic_filter)
        return kept_bytes(topic_filter) + sum(map(kept_bytes, made))

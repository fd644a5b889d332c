"""What a client has published at QoS 1 and 2 and the local broker has not answered.

Such a message is transferred when the broker has taken it, not before: one that it refuses must not be
had elsewhere (by its access rules, its quota, a hang-up), and one that it never got will come again.

The messages of one QoS are transferred in the order in which they came. Most brokers answer in that order
(MQTT-4.6.0-2, -3), so runs are kept and transferred as runs. Some do not: RabbitMQ answers at once what goes
to no queue, and the rest once it is written; in Moquette with several subscribers one PUBREC in some hundred
overtakes others. What is answered *early* waits in its place until all before it is answered, too. It counts
as not answered meanwhile, and so is within the same bounds.

A client may break MQTT-2.2.1-3 and use an identifier again that is in use. Brokers take the second message,
and answer it as well (Mosquitto 2.0, amqtt). So it waits for an answer of its own: those of one identifier
and QoS are answered in the order in which they came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ildm.api import Stamp
from ildm.mqtt import Publish

OVERHEAD = 500
"""Bytes which a message on its own is taken to need besides its frame."""


_NONE: deque[UnansweredBatch] = deque()
"""Of all who have never sent any; never changed. One each would be 600 bytes for every client."""


class UnansweredMessage(NamedTuple):
    """One message; ``stamp`` is that of a retained one, of the time it came."""

    message: Publish
    stamp: Stamp | None
    released: bool = False
    """The client has sent PUBREL (QoS 2) without waiting for PUBREC."""

    def is_repeated_by(self, message: Publish) -> bool:
        """Whether the broker takes a message with the same identifier for this one, sent again.

        Of QoS 2 not by DUP, as brokers do not: some compare what they hold.
        """
        mine = self.message
        return (
            mine.qos == message.qos
            and (message.dup or message.qos == 2)
            and not self.released
            and (mine.topic, mine.payload) == (message.topic, message.payload)
        )


Taken = tuple[bytes, bytes, int]
"""Messages of a run which the broker has taken: topic, frames, bytes of each. A plain tuple, as one is made
for every message of a client that waits for each acknowledgement."""


class UnansweredBatch:
    """A run of QoS 1 as it will be transferred, or one message; ``ids`` are those of the client."""

    __slots__ = ("bytes", "done", "early", "frames", "ids", "loose", "message", "over", "size", "topic")

    def __init__(
        self,
        topic: bytes,
        frames: bytes,
        size: int,
        ids: Sequence[int],
        message: UnansweredMessage | None = None,
    ) -> None:
        self.topic = topic
        self.frames = frames
        self.size = size
        self.ids = ids
        self.message = message
        """Instead of topic, frames and size: of a message on its own."""
        self.bytes = len(frames) + OVERHEAD
        self.done = 0
        """So many from the beginning on are dealt with."""
        self.early: set[int] | None = None
        """Those which the broker has taken and whose turn it is not, by their place."""
        self.over: set[int] | None = None
        """Those dealt with out of turn: refused, or loose."""
        self.loose = False
        """Nobody waits for what of it is unanswered."""

    def part(self, first: int, end: int) -> Taken | UnansweredMessage:
        if self.message is not None:
            return self.message
        whole = first == 0 and end == len(self.ids)
        frames = self.frames if whole else self.frames[first * self.size : end * self.size]
        return self.topic, frames, self.size

    def is_open(self, place: int) -> bool:
        """Whether it is not answered."""
        return (
            place >= self.done
            and not (self.early and place in self.early)
            and not (self.over and place in self.over)
        )

    def finish(self, first: int, end: int) -> None:
        """These are dealt with, in turn or not."""
        if first == self.done:
            self.done = end
            while self.over and self.done in self.over:
                self.over.remove(self.done)
                self.done += 1
        else:
            self.over = self.over or set()
            self.over.update(range(first, end))


class Unanswered:
    """Messages of one connection, in the order of their arrival.

    ``messages`` and ``bytes`` are what is kept; the owner stops reading when that is too much. ``early`` of
    the messages are answered and wait for their turn.
    """

    __slots__ = ("_places", "_qos1", "_qos2", "_single", "bytes", "early", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.early = 0
        self._qos1 = self._qos2 = _NONE
        """None of them is finished."""
        self._single: dict[int, UnansweredBatch] = {}
        """Messages on their own by :func:`_key`; of those with one key the newest."""
        self._places: dict[int, list[tuple[UnansweredBatch, int]]] | None = None
        """Where an identifier is, the oldest first; made only when the broker answers what is not the
        oldest."""

    def __bool__(self) -> bool:
        return self.messages > 0

    # what is sent -----------------------------------------------------------------------------

    def add_run(self, topic: bytes, frames: bytes, size: int, ids: Sequence[int]) -> None:
        """A run of QoS 1 without properties is relayed."""
        self._add(UnansweredBatch(topic, frames, size, ids), 1)

    def add(self, message: Publish, stamp: Stamp | None, size: int) -> None:
        """One message is relayed, whose frame has ``size`` bytes.

        Not if it is here already: the client has sent it again, and one answer is enough.
        """
        packet_id = message.packet_id
        assert packet_id is not None
        key = _key(packet_id, message.qos)
        before = self._single.get(key)
        if before is not None and before.message is not None and before.message.is_repeated_by(message):
            return
        run = UnansweredBatch(b"", b"", 0, (packet_id,), UnansweredMessage(message, stamp))
        run.bytes += size
        self._single[key] = run
        self._add(run, message.qos)

    def release_one(self, packet_id: int) -> None:
        """The client has sent PUBREL: what comes next with this identifier is another message."""
        run = self._single.get(_key(packet_id, 2))
        if run is not None and run.message is not None:
            run.message = run.message._replace(released=True)

    def _add(self, run: UnansweredBatch, qos: int) -> None:
        runs = self._qos1 if qos == 1 else self._qos2
        if runs is _NONE:
            runs = deque()
            if qos == 1:
                self._qos1 = runs
            else:
                self._qos2 = runs
        runs.append(run)
        self.messages += len(run.ids)
        self.bytes += run.bytes
        if self._places is not None:
            self._note(run)

    # what is answered -------------------------------------------------------------------------

    def taken(self, ids: Sequence[int], qos: int) -> list[Taken | UnansweredMessage]:
        """The broker has taken messages of this QoS: those whose turn it is now, in order."""
        handed: list[Taken | UnansweredMessage] = []
        pos = 0
        while pos < len(ids):
            runs = self._qos1 if qos == 1 else self._qos2
            run = runs[0] if runs else None
            if run is None or run.ids[run.done] != ids[pos]:
                handed += self.answer(ids[pos], qos, taken=True) or ()
                pos += 1
                continue
            first = run.done
            count = min(len(run.ids) - first, len(ids) - pos)
            if count > 1 and (
                run.early or run.over or not _same(run.ids[first : first + count], ids[pos : pos + count])
            ):
                count = 1
            pos += count
            handed.append(self._hand_over(run, first, first + count))
            if self.early:
                handed += self._in_turn(runs)
        return handed

    def answer(self, packet_id: int, qos: int, *, taken: bool) -> list[Taken | UnansweredMessage] | None:
        """The broker has taken or refused a message: those whose turn it is now; None: it is not here.

        ``qos``: which its answer is for. Some answer PUBACK to QoS 2, which they do not know.
        """
        run, place = self._find(packet_id, qos)
        if run is None or not run.is_open(place):
            return None
        handed: list[Taken | UnansweredMessage] = []
        if not taken:
            self._finish(run, place, place + 1)
        elif run.loose or self._is_next(run, place):
            handed.append(self._hand_over(run, place, place + 1))
        else:
            run.early = run.early or set()
            run.early.add(place)
            self.early += 1
        if self.early:
            handed += [*self._in_turn(self._qos1), *self._in_turn(self._qos2)]
        return handed

    def release(self) -> list[Taken | UnansweredMessage]:
        """All that is early, in order; what is unanswered now nobody waits for any longer."""
        if self._places is None:
            self._note_all()
        runs = [*self._qos1, *self._qos2]
        self._qos1 = self._qos2 = _NONE
        self.early = 0
        handed: list[Taken | UnansweredMessage] = []
        for run in runs:
            early, run.early, run.loose = run.early, None, True
            handed += [self._hand_over(run, place, place + 1) for place in sorted(early or ())]
        return handed

    def held_up_by(self) -> list[tuple[UnansweredBatch, int]]:
        """The unanswered messages, by run and place, for which others wait."""
        orders = (self._qos1, self._qos2)
        return [(runs[0], runs[0].done) for runs in orders if any(run.early for run in runs)]

    def _is_next(self, run: UnansweredBatch, place: int) -> bool:
        return place == run.done and any(runs and runs[0] is run for runs in (self._qos1, self._qos2))

    def _in_turn(self, runs: deque[UnansweredBatch]) -> Iterator[Taken | UnansweredMessage]:
        """What is early and at the beginning."""
        while runs:
            run = runs[0]
            first = end = run.done
            while run.early and end in run.early:
                run.early.remove(end)
                end += 1
            if end == first:
                return
            self.early -= end - first
            yield self._hand_over(run, first, end)

    def _hand_over(self, run: UnansweredBatch, first: int, end: int) -> Taken | UnansweredMessage:
        part = run.part(first, end)
        self._finish(run, first, end)
        return part

    def _finish(self, run: UnansweredBatch, first: int, end: int) -> None:
        run.finish(first, end)
        self.messages -= end - first
        if run.done < len(run.ids):
            return
        self.bytes -= run.bytes
        self._verify()
        if run.message is not None:
            key = _key(run.ids[0], run.message.message.qos)
            if self._single.get(key) is run:
                del self._single[key]
        for runs in (self._qos1, self._qos2):
            while runs and runs[0].done == len(runs[0].ids):
                runs.popleft()
        if not self.messages:
            self._places = None
        elif self._places is not None:  # a publisher that is always busy would have all its messages kept
            for packet_id in run.ids:
                left = [each for each in self._places.get(packet_id, ()) if each[0] is not run]
                if left:
                    self._places[packet_id] = left
                else:
                    self._places.pop(packet_id, None)

    # sums -------------------------------------------------------------------------------------

    def _verify(self) -> None:
        assert min(self.messages, self.bytes, self.early) >= 0, f"negative: {self._sums}"
        assert self.messages or not (self.bytes or self.early), f"empty: {self._sums}"

    @property
    def _sums(self) -> str:
        return f"{self.messages} messages, {self.bytes} bytes, {self.early} early without an answer"

    def check(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        self._verify()
        waiting = {*self._qos1, *self._qos2}
        runs = waiting.union(run for places in (self._places or {}).values() for run, _ in places)
        messages = sum(len(run.ids) - run.done - len(run.over or ()) for run in runs)
        size = sum(run.bytes for run in runs)
        early = sum(len(run.early or ()) for run in waiting)
        found = f"{messages} messages, {size} bytes, {early} early without an answer"
        assert found == self._sums, f"{found} are counted as {self._sums}"

    # where an identifier is -------------------------------------------------------------------

    def _find(self, packet_id: int, qos: int) -> tuple[UnansweredBatch | None, int]:
        runs = (self._qos1 if qos == 1 else self._qos2) or (self._qos2 if qos == 1 else self._qos1)
        if runs and runs[0].ids[runs[0].done] == packet_id:
            return runs[0], runs[0].done
        if not self.messages:
            return None, 0
        if self._places is None:
            self._note_all()
        assert self._places is not None
        found = [each for each in self._places.get(packet_id, ()) if each[0].is_open(each[1])]
        for run, place in found:
            if (run.message is None or run.message.message.qos == 1) is (qos == 1):
                return run, place
        return found[0] if found else (None, 0)

    def _note_all(self) -> None:
        self._places = {}
        for runs in (self._qos1, self._qos2):
            for run in runs:
                self._note(run)

    def _note(self, run: UnansweredBatch) -> None:
        assert self._places is not None
        for place, packet_id in enumerate(run.ids):
            self._places.setdefault(packet_id, []).append((run, place))


def _key(packet_id: int, qos: int) -> int:
    return packet_id | qos << 16


def _same(one: Sequence[int], other: Sequence[int]) -> bool:
    return one == other if type(one) is type(other) else list(one) == list(other)

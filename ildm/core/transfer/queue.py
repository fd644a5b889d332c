"""What waits in a sender: the port, the entries, and the queue in memory.

Of what waits the highest priority leaves first; within one priority the order of arrival is kept. What is
dropped first when there is no room: of the lowest priority the messages of QoS 0, the oldest first, as for
telemetry the newest value is the one worth keeping; then its messages of QoS 1 and 2, then the next priority;
never those whose sender, a neighbour, has not been answered yet: they are within the credit it was given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from ildm.core.frames import frames_topic
from ildm.core.spool import NEVER
from ildm.core.transfer.batch import Batch
from ildm.core.transfer.classes import BEHIND, HIGHEST_PRIORITY, priority_of
from ildm.core.transfer.receipt import Receipt


class Entry:
    """A batch that waits in the queue of a sender; it may leave in parts, as the window opens.

    The packet identifiers in it are those of ``receipt``, which is told when messages are disposed of.
    ``priority`` is a rank: see :mod:`ildm.core.transfer.classes`.
    """

    __slots__ = ("behind", "count", "first", "priority", "qos", "receipt", "since", "size", "turn", "whole")

    def __init__(self, batch: Batch, receipt: Receipt | None = None, priority: int = 0):
        self.whole = batch
        """With what no longer waits: a part of it would have to find its bounds again."""
        self.first = 0
        """Place of the first message that still waits."""
        self.count = batch.count
        self.size = len(batch.frames)
        self.qos = batch.qos
        self.receipt = receipt
        self.priority = priority
        self.since = NEVER
        """When it began to wait, if it may have a class."""
        self.turn = 0
        """Place in the queue: of one priority the smaller one goes first."""
        self.behind = False
        """It goes after all that is not, where it has a class."""

    @property
    def level(self) -> int:
        """Its priority, or the one below all."""
        if self.priority <= HIGHEST_PRIORITY:
            return self.priority
        return BEHIND if self.behind else priority_of(self.priority)

    @property
    def batch(self) -> Batch:
        """The messages that still wait."""
        return self.whole.part(self.first, self.count)

    def needed(self, size: int, last: bool = False) -> int:
        """How many of its first or ``last`` messages have so many bytes together, or all."""
        each = self.whole.size
        if each:
            return min(-(-size // each), self.count)
        count = 0
        while count < self.count:
            begin = self.first + self.count - count if last else self.first
            if self.whole.bytes_of(begin, count) >= size:
                break
            count += 1
        return count

    def remove(self, count: int) -> int:
        """Forget the first ``count`` messages, but not all; answers their size."""
        size = self.whole.bytes_of(self.first, count)
        self.first += count
        self.size -= size
        self.count -= count
        return size

    def cut(self, count: int) -> int:
        """Forget the last ``count`` messages, but not all; answers their size.

        They are not kept either: a queue may have many entries of which little is left.
        """
        size = self.size
        self.whole = self.whole.part(self.first, self.count - count)
        self.first = 0
        self.count = self.whole.count
        self.size = len(self.whole.frames)
        return size - self.size

    def runs(self) -> Sequence[Entry]:
        """The same as entries of one topic each."""
        if self.whole.size:
            return (self,)
        return [Entry(run, self.receipt, self.priority) for run in self.batch.runs()]

    def topics(self) -> Iterable[bytes]:
        return [frames_topic(run.frames) for run in self.batch.runs()]

    def settle(self) -> None:
        """All of it has been disposed of."""
        self.whole.settle(self.receipt, self.first, self.count)

    def own(self) -> None:
        """Answer its sender now: from here on it is this node's alone."""
        if self.receipt is not None:
            self.receipt.settle(self.whole, self.first, self.count)
        self.receipt = None


class Queue(Protocol):
    """Where a sender keeps what cannot be sent yet, in order: by priority, then by arrival."""

    @property
    def messages(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def unacknowledged_messages(self) -> int:
        """Of them, those which must not be dropped: within a neighbour's credit, or kept by the spool."""

    @property
    def unacknowledged_bytes(self) -> int: ...

    def __bool__(self) -> bool: ...

    def check(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""

    @property
    def first(self) -> Entry:
        """The entry whose turn it is; the queue is not empty."""

    def waiting(self) -> list[int]:
        """Priorities of what is in memory, the highest first."""

    def favour(self, priority: int, size: int) -> None:
        """Let so many bytes of a priority, or one message more, go before all others."""

    @property
    def has_behind(self) -> bool:
        """Whether something may wait that goes after all others."""

    @property
    def behind(self) -> int:
        """Messages of that kind, at most."""

    @property
    def behind_since(self) -> float:
        """When the oldest of them in memory began to wait."""

    def set_back(self, goes_back: Callable[[Entry], bool]) -> int:
        """Let of what waits now that go after all others of which it is asked; answers how many messages of
        that are in memory."""

    def over(self, messages: float, size: float) -> bool:
        """There is more than that, apart from what is unacknowledged."""

    def overtakes(self, entry: Entry) -> bool:
        """Whether an entry just appended goes before something that was there already."""

    def append(self, entry: Entry) -> None: ...

    def replace(self, entry: Entry) -> Entry | None:
        """Put a message in the place of one of its topic that waits, if that is alike; else append it.
        Answers what waits no longer."""

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Put entries before all others of their priority, in their order."""

    def remove(self, count: int) -> None:
        """The first messages of the entry whose turn it is, perhaps all of them, no longer wait."""

    def trim(self, messages: int, size: int, lowest: bool = False) -> Iterator[tuple[Entry, int]]:
        """Remove what is more than these bounds, but unacknowledged messages; ``lowest``: of QoS 0 only.

        Answers from which entry how many messages went. The last one stays, however large: it would
        otherwise be lost for want of room in an empty queue.
        """

    def cut(self, messages: int, size: int) -> int:
        """Remove of the entry appended last what is more than these bounds; answers how many messages."""

    def take_all(self) -> list[Entry]:
        """Empty the queue; answers the entries in the order of their arrival."""

    def disown(self, receipt: Receipt) -> None:
        """Nobody waits for an answer to these messages any longer."""

    def own(self, enough: Callable[[], bool]) -> int:
        """Answer the senders of unacknowledged messages, of the lowest priority the oldest first, until it is
        enough; answers how many messages."""


Lines = tuple[deque[Entry], deque[Entry], deque[Entry]]
"""Of one priority: what is of QoS 0, of QoS 1 and 2, and what is unacknowledged."""


class Backlog:
    """The queue in memory: for each priority one line for each class of what may be dropped first, merged by
    the turns of entries."""

    __slots__ = (
        "_favour",
        "_favoured",
        "_first",
        "_last",
        "_newest",
        "_ranks",
        "bytes",
        "messages",
        "unacknowledged_bytes",
        "unacknowledged_messages",
    )

    def __init__(self) -> None:
        self._ranks: dict[int, Lines] = {0: (deque(), deque(), deque())}
        """By priority, the highest first; those that never came are not there."""
        self._favoured: Lines | None = None
        self._favour = 0
        """Bytes that go first from there."""
        self._first = self._last = 0
        self._newest: dict[bytes, Entry] = {}
        """By topic, of classes that conflate: what was appended last, and waits yet."""
        self.messages = 0
        self.bytes = 0
        self.unacknowledged_messages = 0
        self.unacknowledged_bytes = 0

    def __bool__(self) -> bool:
        return self.messages > 0

    @property
    def first(self) -> Entry:
        return self._front()[0]

    def _front(self) -> deque[Entry]:
        if self._favoured is not None:
            front = _front_of(self._favoured)
            if front is not None:
                return front
        for lines in self._ranks.values():
            front = _front_of(lines)
            if front is not None:
                return front
        raise LookupError("the queue is empty")

    def waiting(self) -> list[int]:
        return [priority for priority, lines in self._ranks.items() if any(lines)]

    def favour(self, priority: int, size: int) -> None:
        self._favoured, self._favour = self._ranks[priority], size

    @property
    def has_behind(self) -> bool:
        return any(self._ranks.get(BEHIND, ()))

    @property
    def behind_since(self) -> float:
        return min((line[0].since for line in self._ranks.get(BEHIND, ()) if line), default=NEVER)

    @property
    def behind(self) -> int:
        return sum(entry.count for line in self._ranks.get(BEHIND, ()) for entry in line)

    def set_back(self, goes_back: Callable[[Entry], bool]) -> int:
        moved: list[Entry] = []
        for line in self._lines():
            going = [entry for entry in line if not entry.behind and goes_back(entry)]
            if going:
                staying = [entry for entry in line if entry.behind or not goes_back(entry)]
                line.clear()
                line.extend(staying)
                moved += going
        if not moved:
            return 0
        for entry in moved:
            entry.behind = True
        count = sum(entry.count for entry in moved)
        for line in self._ranks.get(BEHIND, ()):
            moved += line
            line.clear()
        for entry in sorted(moved, key=_turn):
            self._line(entry).append(entry)
        return count

    def over(self, messages: float, size: float) -> bool:
        return (
            self.messages - self.unacknowledged_messages > messages
            or self.bytes - self.unacknowledged_bytes > size
        )

    def overtakes(self, entry: Entry) -> bool:
        return len(self._ranks) > 1 and self.messages > entry.count and self._front()[0] is entry

    def append(self, entry: Entry) -> None:
        self._last += 1
        entry.turn = self._last
        self._line(entry).append(entry)
        self._count(entry, entry.count, entry.size)

    def replace(self, entry: Entry) -> Entry | None:
        topic = frames_topic(entry.whole.frames)
        found = self._newest.get(topic)
        if (
            found is None
            or found.whole.frames[0] != entry.whole.frames[0]
            or found.priority != entry.priority
            or (found.receipt is None) != (entry.receipt is None)
        ):
            self._newest[topic] = entry
            self.append(entry)
            return None
        replaced = Entry(found.whole, found.receipt, found.priority)
        self._count(found, -1, -found.size)
        found.whole, found.receipt, found.since = entry.whole, entry.receipt, entry.since
        found.size = entry.size
        self._count(found, 1, found.size)
        self._verify()
        return replaced

    def _leaves(self, entry: Entry) -> None:
        """An entry no longer waits."""
        if entry.priority > HIGHEST_PRIORITY:
            topic = frames_topic(entry.whole.frames)
            if self._newest.get(topic) is entry:
                del self._newest[topic]

    def put_back(self, entries: Iterable[Entry]) -> None:
        for entry in reversed(list(entries)):
            entry.turn = self._first
            self._first -= 1
            if entry.receipt is not None and entry.receipt.is_void:
                entry.receipt = None
            self._line(entry).appendleft(entry)
            self._count(entry, entry.count, entry.size)

    def _line(self, entry: Entry) -> deque[Entry]:
        level = entry.level
        lines = self._ranks.get(level)
        if lines is None:
            self._ranks[level] = lines = (deque(), deque(), deque())
            self._ranks = dict(sorted(self._ranks.items(), reverse=True))
        return lines[2 if entry.receipt is not None else 1 if entry.qos else 0]

    def _lines(self) -> Iterator[deque[Entry]]:
        return (line for lines in self._ranks.values() for line in lines)

    def _count(self, entry: Entry, count: int, size: int) -> None:
        self.messages += count
        self.bytes += size
        if entry.receipt is not None:
            self.unacknowledged_messages += count
            self.unacknowledged_bytes += size

    def remove(self, count: int) -> None:
        before = self.bytes
        self._remove(self._front(), count)
        if self._favoured is not None:
            self._favour -= before - self.bytes
            if self._favour <= 0 or _front_of(self._favoured) is None:
                self._favoured = None

    def _remove(self, line: deque[Entry], count: int) -> None:
        entry = line[0]
        if count < entry.count:
            self._count(entry, -count, -entry.remove(count))
        else:
            line.popleft()
            self._count(entry, -entry.count, -entry.size)
            if self._newest:
                self._leaves(entry)
        self._verify()

    def trim(self, messages: int, size: int, lowest: bool = False) -> Iterator[tuple[Entry, int]]:
        for lines in reversed(self._ranks.values()):
            for line in lines[: 1 if lowest else 2]:
                while line:
                    over = self.messages - self.unacknowledged_messages - messages
                    bytes_over = self.bytes - self.unacknowledged_bytes - size
                    if over <= 0 and bytes_over <= 0:
                        return
                    entry = line[0]
                    count = entry.count
                    last = count == self.messages - self.unacknowledged_messages
                    count = min(max(over, entry.needed(bytes_over)), count - last)
                    if not count:
                        return
                    self._remove(line, count)
                    yield entry, count

    def cut(self, messages: int, size: int) -> int:
        line = max((line for line in self._lines() if line), key=_turn_of_last)
        entry = line[-1]
        over = self.messages - self.unacknowledged_messages - messages
        bytes_over = self.bytes - self.unacknowledged_bytes - size
        if over <= 0 and bytes_over <= 0:
            return 0
        count = min(max(over, entry.needed(bytes_over, last=True)), entry.count)
        if count == entry.count:
            line.pop()
            self._count(entry, -count, -entry.size)
            if self._newest:
                self._leaves(entry)
        else:
            self._count(entry, -count, -entry.cut(count))
        self._verify()
        return count

    def take_all(self) -> list[Entry]:
        entries = sorted((entry for line in self._lines() for entry in line), key=_turn)
        for line in self._lines():
            line.clear()
        self._newest.clear()
        self.messages = self.bytes = self.unacknowledged_messages = self.unacknowledged_bytes = 0
        return entries

    def disown(self, receipt: Receipt) -> None:
        entries = self.take_all()
        for entry in entries:
            if entry.receipt is receipt:
                entry.receipt = None
        self.put_back(entries)

    def own(self, enough: Callable[[], bool]) -> int:
        count = 0
        for _, line, unacknowledged in reversed(self._ranks.values()):
            while unacknowledged and not enough():
                entry = unacknowledged.popleft()
                self._count(entry, -entry.count, -entry.size)
                entry.own()
                place = len(line)
                while place and line[place - 1].turn > entry.turn:
                    place -= 1
                line.insert(place, entry)
                self._count(entry, entry.count, entry.size)
                count += entry.count
        return count

    def _verify(self) -> None:
        assert 0 <= self.unacknowledged_messages <= self.messages, f"a queue has {self._sums}"
        assert 0 <= self.unacknowledged_bytes <= self.bytes, f"a queue has {self._sums}"
        assert self.messages or not self.bytes, f"an empty queue has {self._sums}"

    @property
    def _sums(self) -> str:
        return (
            f"{self.messages} messages ({self.unacknowledged_messages} unacknowledged), "
            f"{self.bytes} bytes ({self.unacknowledged_bytes})"
        )

    def check(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        self._verify()
        found = Backlog()
        for line in self._lines():
            for entry in line:
                found._count(entry, entry.count, entry.size)
        assert found._sums == self._sums, f"a queue of {found._sums} counts {self._sums}"


def _front_of(lines: Lines) -> deque[Entry] | None:
    waiting = [line for line in lines if line]
    if not waiting:
        return None
    return waiting[0] if len(waiting) == 1 else min(waiting, key=_turn_of_first)


def _turn(entry: Entry) -> int:
    return entry.turn


def _turn_of_last(line: deque[Entry]) -> int:
    return line[-1].turn


def _turn_of_first(line: deque[Entry]) -> int:
    return line[0].turn

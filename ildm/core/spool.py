"""The spool, as the core sees it: a log of what this node has taken upon itself, on disk.

A *record* is one message of QoS 1 or 2, or a batch of QoS 1. It is written once, for all its *consumers*: the
receivers that are still to get it, such as a session of a link or one with the local broker. Each consumer
frees its share when the peer has taken it; a record all of whose shares are free may be forgotten.

Numbers of records (LSN) count up through all incarnations of a spool. What is appended is *durable* once it
survives what ``spool.mode`` promises: the end of the process, or of the machine's power. Nothing may be
acknowledged before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from ildm.mqtt import frame_bounds

NEVER = float("inf")


class Identity(NamedTuple):
    """Who a message is, wherever it comes along: the node it has entered by, and its number there.

    Numbers count up through all incarnations of the node: ``epoch << 32 | n`` (see :attr:`Spool.epoch`).
    Messages of a run have consecutive ones.
    """

    origin: str
    number: int


class Delivery(NamedTuple):
    """How a consumer is to get a record."""

    consumer: str
    qos: int
    priority: int = 0
    """From -8 to 23: what :meth:`Consumer.read_ahead` tells records apart by."""
    held: bool = False
    """It is in hand as soon as it is appended: what sends it has it in memory."""


class Record(NamedTuple):
    """A message, or a batch of messages of QoS 1.

    ``frames``: so many PUBLISH packets of MQTT 5 and of QoS 1 or 2, whose packet identifiers count up from 1:
    the place of each in the record, plus one. Those of a batch have neither flags nor properties.
    ``expires``: by :meth:`ildm.core.calendar.Calendar.date`; of ``mixed`` frames the moment from which on
    their expiry intervals count, of others the moment at which that of a single message ends.
    """

    frames: bytes
    messages: int
    identity: Identity | None
    turn: int = 0
    """Of the publisher in the round-robin over sessions; keeps its order."""
    expires: float = NEVER
    again: Identity | None = None
    """Its reroute id, if it was rerouted as the tree has changed: the node that did so, and a number."""
    mixed: bool = False
    """The frames are not all of one length and topic."""

    def parts(self, stretches: Sequence[tuple[int, int]]) -> list[Record]:
        """The same with some of its messages each: stretches by the place of the first, and their number."""
        if len(stretches) == 1 and stretches[0][1] == self.messages:
            return [self]
        starts, frames = self._starts(), self.frames
        return [
            self._replace(frames=frames[starts[first] : starts[first + count]], messages=count)
            for first, count in stretches
        ]

    def _starts(self) -> Sequence[int]:
        """Where each message begins, and at last where all end."""
        frames = self.frames
        if not self.mixed:
            return range(0, len(frames) + 1, len(frames) // self.messages)
        starts = [0]
        for _ in range(self.messages):  # whatever the frames are
            starts.append(frame_bounds(frames, starts[-1])[1])
        return starts


class Stored(NamedTuple):
    """What one consumer is to get, read back: consecutive messages of a record."""

    lsn: int
    first: int
    """Place of the first of them in the record as it was written, from 0."""
    record: Record
    """With these messages alone; packet identifiers as they were, and identities those of the whole."""
    qos: int
    priority: int
    note: int | None
    """See :meth:`Consumer.note`; with one, it is a single message."""
    written: float
    """When it was, as :meth:`Spool.keep_time` counts."""


class Waiting(NamedTuple):
    """What a consumer has not freed."""

    messages: int
    bytes: int
    oldest: float | None
    """Unix time at which the oldest of it was written, as the machine's clock would show it now."""


class Consumer(Protocol):
    """One receiver of records. What it has not freed is either *in hand*, that is in memory with whoever
    sends it, or *beyond*: on the disk alone, to be read when there is room. Both in the order of LSN: the
    records beyond are newer than those in hand, but for what was given in hand out of turn: by
    :meth:`Spool.append` (:attr:`Delivery.held` although there is something beyond) or :meth:`read_ahead`."""

    name: str

    @property
    def waiting(self) -> Waiting: ...

    @property
    def beyond_messages(self) -> int: ...

    @property
    def beyond_bytes(self) -> int: ...

    def read(self, size: int) -> list[Stored]:
        """The next of what is beyond, ``size`` bytes or a little more; it is in hand from here on.

        Empty when there is nothing. What cannot be read is counted, named in the log, and passed over.
        """

    @property
    def scattered(self) -> bool:
        """So much is in hand or freed out of turn that nothing more is to be."""

    def priorities(self, after: int = 0, until: int = 1 << 62) -> list[int]:
        """Of the records beyond that are newer than one LSN, and not newer than the other; some may be named
        that are not there. ``after`` never falls for a priority."""

    def read_ahead(self, size: int, priority: int, after: int = 0, until: int = 1 << 62) -> list[Stored]:
        """As :meth:`read`, out of turn: records of one priority alone, newer than one LSN, not newer than
        the other. The work of one call is bounded: fewer may be found than there are, also none."""

    def free(self, lsn: int, first: int, count: int) -> None:
        """Messages in hand are done with, for this consumer; nothing where they were retired meanwhile."""

    def note(self, lsn: int, place: int, value: int, count: int = 1) -> None:
        """Remember a number beside a message in hand, for :attr:`Stored.note`, until it is freed; beside
        ``count`` messages from that place on, numbers that count up."""

    def noted(self) -> list[int]:
        """All numbers beside what earlier incarnations have left; to be asked at the start."""

    def retire(self) -> Waiting:
        """Free all it has; answers what that was. It may get records again."""


class Spool(Protocol):
    """See the module. Its methods belong to the event loop's thread and do not raise for what disks do."""

    epoch: int
    """Number of this incarnation, greater than that of any before; saved before anybody can ask for it."""
    last: int
    """LSN of the newest record, journal entry or note."""
    on_durable: Callable[[], None]
    """Called whenever :attr:`durable` has grown, but not within :meth:`append` or :meth:`journal`."""
    on_room: Callable[[], None]
    """Called when :attr:`full` has ceased to hold."""
    losses: dict[str, int]
    """Messages for each consumer that the disk had lost at the beginning, as far as it still tells."""
    lost_entries: int
    """At most so many more were lost with parts that tell nothing."""

    @property
    def disk_bytes(self) -> int:
        """Of its files, with what is not needed any more."""

    @property
    def failure(self) -> str | None:
        """Why nothing becomes durable at present; None when it does."""

    @property
    def durable(self) -> int:
        """All up to this LSN is durable."""

    @property
    def full(self) -> bool:
        """There is no room by ``spool.bytes``, or nothing can be written. What is appended nevertheless is
        taken as far as memory goes (it is the credit of those who are made to wait)."""

    def keep_time(self, now: Callable[[], float], lead: float) -> None:
        """Count ages by ``now() + lead``, which no change of the machine's clock moves, from now on."""

    def shown(self, written: float | None) -> float | None:
        """What the machine's clock shows now for a time of that count."""

    def consumer(self, name: str) -> Consumer:
        """The consumer of this name, with what earlier incarnations have left to it; made if there is
        none."""

    def consumers(self) -> list[str]:
        """Names of all that have something, or are used in this incarnation."""

    def append(self, record: Record, deliveries: Iterable[Delivery]) -> int:
        """Write a record soon; answers its LSN. There is one delivery at least, to different consumers."""

    def commit(self) -> None:
        """Begin to make durable what was appended.

        ``process``: it is, on return, unless writing fails. ``power``: later.
        """

    # what else must outlive the process -------------------------------------------------------------

    def journal(self, entry: bytes) -> int:
        """Keep a few bytes in order with the records, until :meth:`journaled`; answers their LSN."""

    def journaled(self, lsn: int) -> None:
        """Entries of the journal up to this LSN are kept elsewhere by now, durably."""

    def replay(self) -> Iterator[tuple[int, bytes]]:
        """Entries of earlier incarnations that are kept nowhere else, in order; to be asked at the start."""

    snapshot: Callable[[], bytes]
    """Asked for what the owner wants to find as :attr:`restored`; at a checkpoint, now and then."""
    restored: bytes
    """The last snapshot; empty if there was none."""

    def identities(self) -> Iterator[tuple[Identity, int]]:
        """Identities and counts of records appended since that snapshot was taken, in order; at the start."""

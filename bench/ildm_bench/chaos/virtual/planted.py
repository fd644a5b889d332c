"""Bugs that the check has to find: each is planted into the node's code and taken out again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from ildm import compiled
from ildm.core.frames import frames_topic
from ildm.core.guests.hosting import HostSession, House
from ildm.core.guests.wire import DO_HEAD
from ildm.core.link.reading import Reader
from ildm.core.link.slices import Slices, sliced
from ildm.core.link.swapping import Swaps
from ildm.core.local.clients import ClientRegistry
from ildm.core.local.relay import NO_ROOM, ClientRelay
from ildm.core.local.wills import Wills
from ildm.core.transfer.classes import BEHIND
from ildm.core.transfer.custody import Custody
from ildm.core.transfer.pacer import Pacer
from ildm.core.transfer.queue import Backlog, Entry
from ildm.core.transfer.router import Router
from ildm.core.transfer.sender import Sender
from ildm.core.transfer.share import Share
from ildm.state.spool import FileSpool
from ildm.state.spool.consumers import FileConsumer
from ildm.state.spool.records import Kind
from ildm.state.spool.rewriting import Rewriting
from ildm_algorithms.exchange.log import LogEntry
from ildm_bench.chaos.drawing import Scale
from ildm_bench.chaos.virtual.pair import Pair

if TYPE_CHECKING:
    from ildm.core.spool import Record
    from ildm.core.transfer.batch import Batch as Messages
    from ildm.core.transfer.custody import Destination
    from ildm.core.transfer.ports import Targets

LATE = 0.5
"""Seconds."""
BUSY = Scale(publications=30, faults=3)
CALM = Scale(seconds=1.0, publications=1, publishers=1, subscribers=5)
QUICK = Scale(seconds=2.0, publications=20, faults=3, pause=1.0)


class Plant(NamedTuple):
    """A bug. ``breaks``: what does not hold then, any of it."""

    bug: Callable[[], Any]
    breaks: frozenset[str]
    fault: str = "mixed"
    """What is to befall the nodes for it to show."""
    scale: Scale | None = None
    algorithm: str = "sf"


def _acknowledged_before_written() -> Any:
    """Nobody waits for the disk, which is written to a little later."""
    commit = FileSpool.commit

    def late(self: FileSpool) -> None:
        self._call_later(LATE, lambda: commit(self))

    return patch.multiple(FileSpool, commit=late, durable=property(lambda self: self.last))


def _reused_sequence() -> Any:
    """Numbers of messages begin anew with each life."""
    made = Custody.__init__

    def make(self: Custody, *args: Any) -> None:
        made(self, *args)
        self._next_number = 1

    return patch.object(Custody, "__init__", make)


def _forgotten_identities() -> Any:
    """What has come from neighbours is not known after a restart."""
    return patch.object(Custody, "_restore", lambda self: None)


def _forgotten_window() -> Any:
    """What was under way when a connection broke is not sent again."""
    resume = Sender.resume

    def forget(self: Sender, session_present: bool = True) -> None:
        if self.wire.transport is not None and not self.open:
            for _ in self._window.take_all():
                pass
        resume(self, session_present)

    return patch.object(Sender, "resume", forget)


def _acknowledged_while_blocked() -> Any:
    """What is for a neighbour or broker that takes nothing now is acknowledged all the same, and not kept."""
    append = Custody._append

    def only_open(
        self: Custody, record: Record, destinations: Iterable[Destination]
    ) -> tuple[int, list[Destination]]:
        is_open = [each for each in destinations if isinstance(each[0], Sender) and each[0].open]
        return append(self, record, is_open)

    return patch.object(Custody, "_append", only_open)


def _retained_without_a_stamp() -> Any:
    """Retained messages cross without what tells which of two is newer."""
    return patch("ildm.core.transfer.router.stamped", lambda message, stamp, repeated=False: message)


def _lost_at_compaction() -> Any:
    """A segment that is written anew has none of the records that are needed."""
    keeps = Rewriting._keeps

    def lose(self: Rewriting, kind: int, entry: bytes, needs: dict[int, Callable[[int], bool]]) -> bool:
        return kind != Kind.RECORD and keeps(self, kind, entry, needs)

    return patch.object(Rewriting, "_keeps", lose)


def _freed_with_its_first_part() -> Any:
    """The first acknowledgement of messages of a batch frees all of its record."""

    def settle(self: Share, batch: Messages, first: int, count: int) -> None:
        assert isinstance(self.consumer, FileConsumer)
        hand = self.consumer.hands.get(self.lsn)
        if hand is not None:
            self._done(0, hand.messages)

    return patch.object(Share, "settle", settle)


def _half_of_a_batch() -> Any:
    """Of a batch of several topics that a neighbour has sent one half is taken, and all is acknowledged."""
    forward = Router.forward

    def half(self: Router, route: Targets, batch: Messages, *more: Any) -> None:
        arrived = len(more) > 2
        kept = batch if batch.size or not arrived else batch.part(0, (batch.count + 1) // 2)
        forward(self, route, kept, *more)

    return patch.object(Router, "forward", half)


def _forgotten_rest() -> Any:
    """What a chunk has beyond the packets that one turn of the event loop deals with is forgotten."""
    put_off = ClientRelay._put_off

    def forget(self: ClientRelay, rest: bytes, missing: int, left: int) -> None:
        if missing or left == NO_ROOM or self.awaits_decision:
            put_off(self, rest, missing, left)

    return patch.object(ClientRelay, "_put_off", forget)


def _forgotten_filters() -> Any:
    """What a neighbour's SUBSCRIBE has beyond the filters of the first turn is forgotten."""
    return patch("ildm.core.link.slices.sliced", lambda frame, header_end: sliced(frame, header_end, 1)[:1])


@contextmanager
def _forgotten_behind_filters() -> Iterator[None]:
    """What has come behind filters that were put off is forgotten."""
    take = Reader._take_filters

    def forget(self: Reader, slices: Slices) -> bool:
        taken = take(self, slices)
        if taken:
            self._tail.clear()
        return taken

    with (
        patch("ildm.core.link.slices.sliced", lambda frame, header_end: sliced(frame, header_end, 1)),
        patch.object(Reader, "_take_filters", forget),
    ):
        yield


def _forgotten_by_a_rate() -> Any:
    """What one write over a link with a rate has no room for is forgotten."""
    send = Sender.send

    def forget(
        self: Sender,
        batch: Messages,
        source: Any = None,
        receipt: Any = None,
        priority: int = 0,
        waited: Any = None,
    ) -> int:
        sent = send(self, batch, source, receipt, priority, waited)
        if self.wire.pacer is None or waited is None or not 0 < sent < waited.count:
            return sent
        batch.settle(receipt, waited.first + sent, waited.count - sent)
        return int(waited.count)

    return patch.object(Sender, "send", forget)


def _never_told_of_tokens() -> Any:
    """A pacer that finds debts as it looks for tokens does not look again."""

    def look(self: Pacer) -> None:
        self._end_timer()
        self._release()
        self.paced = False
        if not self.budget.wait(self._driver.now()):
            self._wire.go_on()

    return patch.object(Pacer, "look", look)


def _forgotten_wills() -> Any:
    """What was saved of wills is not taken up after a restart."""
    return patch.object(Wills, "restore", lambda self: None)


def _kept_the_oldest() -> Any:
    """Of a topic that is conflated the oldest message waits, not the newest."""
    replace = Backlog.replace

    def keep(self: Backlog, entry: Entry) -> Entry | None:
        found = self._newest.get(frames_topic(entry.whole.frames))
        alike = found is not None and found.whole.frames[0] == entry.whole.frames[0]
        return entry if alike else replace(self, entry)

    return patch.object(Backlog, "replace", keep)


def _forgotten_backlog() -> Any:
    """What is set back as a link comes up never goes."""
    set_back = Backlog.set_back

    def forget(self: Backlog, goes_back: Callable[[Entry], bool]) -> int:
        count = set_back(self, goes_back)
        for line in self._ranks.get(BEHIND, ()):
            while line:
                self._remove(line, line[0].count)
        return count

    return patch.object(Backlog, "set_back", forget)


@contextmanager
def _unadopted() -> Iterator[None]:
    """A new node does not care for sessions that the broker had before."""
    with (
        patch.object(ClientRegistry, "adopt", lambda self, seconds: None),
        patch.object(ClientRegistry, "_adopt", lambda self, record, told: None),
    ):
        yield


def _forgotten_for_good() -> Any:
    """A node without state is offered nothing of what it had not acknowledged."""
    return patch.object(LogEntry, "lacks", lambda self, node_id, heard: False)


def _fetched_again() -> Any:
    """A node without state is offered all again."""
    return patch.object(LogEntry, "lacks", lambda self, node_id, heard: True)


def _joined_before_the_word() -> Any:
    """A link that takes another one's place in the tree does not wait until that has left."""
    begin = Swaps.begin

    def join(self: Swaps, *given: Any) -> None:
        begin(self, *given)
        swap, self.waits = self.waits, None
        if swap is not None:
            near, far = swap.new
            self.join(far if near == self.node_id else near)

    return patch.object(Swaps, "begin", join)


def _unfenced() -> Any:
    """A member takes the site from a silent owner that is not ended, and wakes later."""

    def take(self: Pair) -> None:
        self._look()
        del self.up[self.owner]
        self.owner = ""
        self._freed()

    return patch.object(Pair, "fence", take)


def _taken_unwritten() -> Any:
    """The owner confirms what a member has told before that is done and written."""
    do = HostSession._do

    def confirm(self: HostSession, house: House, body: bytes) -> None:
        self._durable, _ = DO_HEAD.unpack_from(body)
        self._answer()
        self.node.driver.call_later(LATE, do, self, house, body)

    return patch.object(HostSession, "_do", confirm)


PLANTS = {
    "acknowledged-before-written": Plant(_acknowledged_before_written, frozenset({"lost"}), "kill-all"),
    "reused-sequence": Plant(_reused_sequence, frozenset({"lost"}), "kill-all"),
    "forgotten-identities": Plant(_forgotten_identities, frozenset({"twice"}), "kill", BUSY),
    "forgotten-window": Plant(_forgotten_window, frozenset({"lost"}), "cut"),
    "acknowledged-while-blocked": Plant(_acknowledged_while_blocked, frozenset({"lost"}), "cut"),
    "retained-without-a-stamp": Plant(
        _retained_without_a_stamp, frozenset({"stale", "retained", "twice"}), "cut"
    ),
    "lost-at-compaction": Plant(_lost_at_compaction, frozenset({"lost"})),
    "freed-with-its-first-part": Plant(_freed_with_its_first_part, frozenset({"lost"}), "kill", QUICK),
    "half-of-a-batch": Plant(_half_of_a_batch, frozenset({"lost"}), "none"),
    "forgotten-rest": Plant(_forgotten_rest, frozenset({"raised"}), "none"),
    "forgotten-filters": Plant(_forgotten_filters, frozenset({"lost"}), "cut"),
    "forgotten-behind-filters": Plant(_forgotten_behind_filters, frozenset({"lost"}), "cut"),
    "kept-the-oldest": Plant(_kept_the_oldest, frozenset({"lost", "retained", "stale"}), "cut"),
    "forgotten-by-a-rate": Plant(_forgotten_by_a_rate, frozenset({"lost"}), "none", BUSY),
    "never-told-of-tokens": Plant(_never_told_of_tokens, frozenset({"lost", "raised"}), "kill-all", BUSY),
    "forgotten-backlog": Plant(_forgotten_backlog, frozenset({"lost"}), "cut", BUSY),
    "joined-before-the-word": Plant(_joined_before_the_word, frozenset({"twice"}), "drift", CALM),
    "forgotten-wills": Plant(_forgotten_wills, frozenset({"lost"})),
    "unadopted": Plant(_unadopted, frozenset({"lost"}), "arrive"),
    "forgotten-for-good": Plant(_forgotten_for_good, frozenset({"lost"}), "lose-state", algorithm="octopia"),
    "taken-unwritten": Plant(_taken_unwritten, frozenset({"lost"}), "guests"),
    "unfenced": Plant(_unfenced, frozenset({"lost", "twice"}), "deposed"),
    "fetched-again": Plant(_fetched_again, frozenset({"twice"}), "lose-state", algorithm="octopia"),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """A context in which nodes have a bug.

    Raises:
        RuntimeError: they run compiled, and would go past it.
    """
    if compiled.form() == "compiled":
        raise RuntimeError(f"bugs are planted in what runs interpreted: {compiled.SWITCH}=0")
    with PLANTS[name].bug():
        yield

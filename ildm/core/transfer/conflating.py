"""Last value: of a topic whose class conflates only the newest message waits for a link.

In memory a newer message takes the place of the older one, so a topic that changes all the time has its turn
as well. On disk nothing is replaced: an older message is passed over when it is read, or when its turn comes.
What was sent is never replaced.

A rerouted message may be older than what waits already. So it neither takes a place nor gives one up.

The older message has to be alike: of the same QoS, and retained as well or as little. Else the retained value
that a neighbour keeps would be lost, or a message that was acknowledged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.core.frames import RETAIN, frames_topic
from ildm.core.transfer.queue import Entry
from ildm.core.transfer.share import Share

if TYPE_CHECKING:
    from ildm.core.transfer.batch import Batch
    from ildm.core.transfer.classes import LinkClasses
    from ildm.core.transfer.queue import Queue

MOST_TOPICS = 65_536
"""Topics of which the newest message on disk is known, for each sender."""


class NewestOnDisk:
    """The LSN of the newest message of each topic that was appended and not taken to memory."""

    __slots__ = ("_newest",)

    def __init__(self) -> None:
        self._newest: dict[bytes, int] = {}

    def note(self, batch: Batch, lsn: int, classes: LinkClasses) -> None:
        """A record was appended."""
        for run in batch.runs():
            key = _key(run.frames)
            if key in self._newest or len(self._newest) < MOST_TOPICS:
                self._newest[key] = lsn
            else:
                classes.not_conflated(run.count)

    def outdates(self, entry: Entry) -> bool:
        """Whether there is a newer message of the topic than these, which are of one."""
        share = entry.receipt
        if not self._newest or not entry.whole.size or not isinstance(share, Share):
            return False
        if share.reroute_id is not None:
            return False
        return share.lsn < self._newest.get(_key(entry.whole.frames), 0)

    def clear(self) -> None:
        """All was taken to memory."""
        self._newest.clear()


def append(
    queue: Queue, entry: Entry, classes: LinkClasses, newest: NewestOnDisk | None = None
) -> Entry | None:
    """Let messages wait of a class that conflates; answers the last entry, if that was appended."""
    share = entry.receipt
    if isinstance(share, Share) and share.reroute_id is not None:
        queue.append(entry)
        return entry
    last: Entry | None = None
    for run in entry.runs():
        if run.count > 1:
            classes.conflated(run, run.count - 1)
            run.remove(run.count - 1)
        if newest is not None and newest.outdates(run):
            classes.conflated(run, run.count)
            continue
        last = Entry(run.batch, run.receipt, entry.priority)
        last.since = entry.since
        replaced = queue.replace(last)
        if replaced is not None:
            classes.conflated(replaced, replaced.count)
            last = None
    return last


def _key(frames: bytes) -> bytes:
    """The topic of like frames, and whether they are retained."""
    return bytes((frames[0] & RETAIN,)) + frames_topic(frames)

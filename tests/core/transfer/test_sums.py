"""What is counted as it changes: the check finds a count that is wrong, and goes past one that is right."""

from __future__ import annotations

import pytest

from ildm.config import LinkConfig
from ildm.core.counters import Counters
from ildm.core.link.interest import ReceivedInterest
from ildm.core.local.unanswered import Unanswered
from ildm.core.transfer.batch import Batch
from ildm.core.transfer.inbound import Inbound
from ildm.core.transfer.queue import Backlog, Entry
from ildm.core.transfer.window import Inflight, Window
from ildm.mqtt import Publish, Version
from tests.support.senders import message_of

FRAMES = b"".join(
    Publish(topic="t", payload=b"x", qos=1, packet_id=packet_id).encode(Version.V5) for packet_id in (1, 2, 3)
)
SIZE = len(FRAMES) // 3
BATCH = Batch(FRAMES, 3, SIZE)


def window() -> Window:
    made = Window(10)
    made.add(Inflight(BATCH, 1))
    made.add(Inflight(BATCH.part(0, 1), 4))
    return made


def unanswered() -> Unanswered:
    made = Unanswered()
    made.add_run(b"t", FRAMES, SIZE, (1, 2, 3))
    made.add(Publish(topic="t", qos=2, packet_id=4), None, 9)
    assert made.answer(2, 1, taken=True) == []
    return made


def inbound() -> Inbound:
    made = Inbound(10, 1 << 20, lambda data: None)
    made.take(message_of(4))
    return made


def queue() -> Backlog:
    made = Backlog()
    made.append(Entry(BATCH))
    return made


def test_a_window_that_counts_wrong_is_found() -> None:
    made = window()
    made.check()
    made.bytes -= 1
    with pytest.raises(AssertionError, match="a window of"):
        made.check()
    with pytest.raises(AssertionError, match="a window has -1 bytes"):
        made.acknowledged(range(1, 5))


def test_a_batch_that_counts_wrong_is_found() -> None:
    made = window()
    run = made.get(1)
    assert isinstance(run, Inflight)
    run.left -= 1
    with pytest.raises(AssertionError, match="a batch with 3 messages left counts 2"):
        made.check()


@pytest.mark.parametrize("name", ["messages", "bytes", "early"])
def test_what_is_unanswered_and_counted_wrong_is_found(name: str) -> None:
    made = unanswered()
    made.check()
    setattr(made, name, getattr(made, name) + 1)
    with pytest.raises(AssertionError, match="are counted as"):
        made.check()


def test_what_is_unanswered_may_not_be_fewer_than_none() -> None:
    made = unanswered()
    made.answer(4, 2, taken=True)
    made.messages -= 1
    made.answer(1, 1, taken=True)
    with pytest.raises(AssertionError, match="negative: -1 messages"):
        made.answer(3, 1, taken=True)


def test_what_is_unacknowledged_and_counted_wrong_is_found() -> None:
    made = inbound()
    made.check()
    made.unacknowledged_bytes = 1
    with pytest.raises(AssertionError, match="1 messages without acknowledgement have 1 bytes"):
        made.check()
    made.unacknowledged_bytes = 10
    with pytest.raises(AssertionError, match="no message has 1 bytes"):
        made.settle(message_of(4))


@pytest.mark.parametrize(("name", "found"), [("messages", "a queue has -1"), ("bytes", "a queue has 0")])
def test_a_queue_that_counts_wrong_is_found(name: str, found: str) -> None:
    made = queue()
    made.check()
    setattr(made, name, getattr(made, name) - 1)
    with pytest.raises(AssertionError, match="a queue of"):
        made.check()
    with pytest.raises(AssertionError, match=found):
        made.remove(3)


def test_filters_that_are_counted_wrong_are_found() -> None:
    made = ReceivedInterest(LinkConfig(), Counters(), 128)
    made._set("a/#", 1)
    made.check()
    made.bytes -= 1
    with pytest.raises(AssertionError, match="count"):
        made.check()
    with pytest.raises(AssertionError, match="-1 bytes"):
        made._remove("a/#")

"""A sender over connections that are cut, in orders of chance: nothing is lost, nothing changes its place."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.core.frames import without_dup
from ildm.core.transfer.batch import Batch
from ildm.core.transfer.inbound import Inbound
from ildm.core.transfer.sender import Sender
from ildm.mqtt import Framer, Property, PubComp, Publish, PubRec, PubRel, Version, decode
from ildm.testing.virtual.world import World
from tests.support.senders import make, send, send_message


class Far:
    """The far end of a sender across its connections: takes what has arrived and answers it in any order."""

    def __init__(self, version: Version) -> None:
        self.version = version
        self.inbound = Inbound(1000, 1 << 30, self._answered)
        self.received: list[int] = []
        self.new: list[int] = []
        self.answers: list[Any] = []
        self.waiting: list[bytes] = []
        self.framer = Framer()

    def _answered(self, data: bytes) -> None:
        self.answers.append(decode(data, Version.V5))

    def write(self, data: bytes) -> None:
        assert isinstance(data, bytes)
        self.waiting.append(data)

    def receive(self, bytes_lost: int = 0) -> None:
        """Take what was written but for the last bytes."""
        data = b"".join(self.waiting)
        self.waiting.clear()
        for frame in self.framer.feed(data[: max(0, len(data) - bytes_lost)]):
            packet: Any = decode(frame, self.version)
            if isinstance(packet, PubRel):
                self.answers.append(PubComp(packet_id=packet.packet_id))
                self.inbound.released((packet.packet_id,))
                continue
            assert isinstance(packet, Publish)
            new = True
            if packet.packet_id is not None:
                batch = Batch(without_dup(frame, len(frame)) if packet.dup else frame, 1, len(frame))
                new = self.inbound.take(batch, packet.dup)
                if new:
                    self.inbound.settle(batch)
            self.received.append(int(packet.payload))
            if new:
                self.new.append(int(packet.payload))

    def answer(self, sender: Sender, count: int, random: Any) -> None:
        """Answer some messages: those of QoS 1 in chunks as they come, in an order of chance."""
        random.shuffle(self.answers)
        chosen, self.answers = self.answers[:count], self.answers[count:]
        sender.acknowledged(
            [packet.packet_id for packet in chosen if not isinstance(packet, PubRec | PubComp)]
        )
        for packet in chosen:
            if isinstance(packet, PubRec):
                sender.on_pubrec(packet.packet_id)
            elif isinstance(packet, PubComp):
                sender.completed((packet.packet_id,))

    def lose(self, bytes_lost: int) -> None:
        self.receive(bytes_lost)
        self.answers.clear()
        self.framer = Framer()


STEPS = st.one_of(
    st.tuples(st.just("run"), st.integers(1, 40)),
    st.tuples(st.just("one"), st.integers(1, 2)),
    st.tuples(st.just("answer"), st.integers(1, 60)),
    st.tuples(st.just("cut"), st.integers(0, 400)),
    st.tuples(st.just("slow"), st.integers(0, 1)),
)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(STEPS, max_size=25),
    st.integers(1, 50),
    st.sampled_from([Version.V311, Version.V5]),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_runs_acknowledged_in_any_order_over_connections_that_are_cut(
    steps: list[tuple[str, int]], window: int, version: Version, random: Any, forgets: bool
) -> None:
    """Every message arrives, once and in order; at least once when the far end forgets the session."""
    world = World()
    sender, counters = make(world)
    sender._window.last_id = 65_500
    far = Far(version)

    def connect() -> None:
        if forgets:
            far.inbound.reset()
        sender.attach(far, version=version, window=window)  # type: ignore[arg-type]
        sender.resume(session_present=not forgets)
        world.run(0)

    connect()
    count = 0
    for what, value in steps:
        if what == "run":
            send(sender, count, value)
            count += value
        elif what == "one":
            properties = {Property.CONTENT_TYPE: "x"}
            message = Publish(
                topic="t", payload=b"%04d" % count, qos=value, packet_id=1, properties=properties
            )
            send_message(sender, message, value, None)
            count += 1
        elif what == "answer":
            far.receive()
            far.answer(sender, value, random)
        elif what == "slow":
            sender.wire.set_flowing(bool(value))
        else:
            sender.detach()
            far.lose(value)
            connect()
        world.run(0)
        assert sender.inflight <= window
    sender.wire.set_flowing(True)
    for _ in range(2 * count + 3):
        world.run(0)
        far.receive()
        far.answer(sender, 1 << 16, random)
    world.run(0)
    assert sender.idle
    assert (sender.queued_messages, sender.queued_bytes, sender.dropped) == (0, 0, 0)
    assert set(far.received) == set(range(count))
    if not forgets:
        assert far.new == list(range(count))
        assert counters.get("link_refused", 0) == 0

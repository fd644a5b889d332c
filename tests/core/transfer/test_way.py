"""The way of a message of QoS 2 through the core: how many functions, each once."""

from __future__ import annotations

import os
import subprocess
import sys
from types import FrameType
from typing import Any

from ildm import compiled
from ildm.mqtt import Publish, PubRel, Subscribe, Subscription
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool
from tests.support.site import row

WAY = [
    "BrokerSession.data_received",
    "BrokerSession._watch",
    "Publishing.transfer",
    "Router.forward",
    "Custody.take",
    "Sender.send",
    "Wire.write_batch",
    "Wire._flush_soon",
]
"""From the socket of the broker, which has taken the message, to the buffer of the link's."""
FAR_WAY = ["LinkSession.data_received", "Gathering.send", "Router.take", *WAY[3:]]
"""From the socket of the link to the buffer of the session that injects; at the end of the chunk."""


def way_of(frame: FrameType | None) -> list[str]:
    """Functions of the node that have been entered and not left, the first one first."""
    names = []
    while frame is not None:
        if "/ildm/core/" in frame.f_code.co_filename:
            names.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return names[::-1]


def test_a_message_of_qos_2_crosses_in_few_functions_none_of_which_is_entered_twice(world: World) -> None:
    if compiled.form() == "compiled":  # it tells no profiler of its functions
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
        subprocess.run(command, env={**os.environ, "ILDM_COMPILED": "0"}, check=True)
        return
    a, b = row(world, "ab", "sf", spool=MemorySpool())
    reader = b.client("reader")
    reader.send(Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="t", qos=2)]))
    world.run(1)
    publisher = a.client("publisher")
    for packet_id in (1, 2):  # the second one finds all that is made for the first
        publisher.send(Publish(topic="t", payload=b"%d" % packet_id, qos=2, packet_id=packet_id))
        world.run(0.0015)  # it is at the broker
        entered: list[str] = []
        ways: list[list[str]] = []

        def note(frame: FrameType, event: str, _: Any) -> None:
            if event == "call" and len(ways) < 2 and "/ildm/core/" in frame.f_code.co_filename:  # noqa: B023
                entered.append(frame.f_code.co_qualname)  # noqa: B023 - of this message
                way = way_of(frame)
                if way[-1] == WAY[-1] and "Custody.take" in way:
                    ways.append(way)  # noqa: B023

        sys.setprofile(note)
        try:
            world.run(0.02)
        finally:
            sys.setprofile(None)
        world.run(0.1)
        publisher.send(PubRel(packet_id=packet_id))
        world.run(0.1)
    assert ways == [WAY, FAR_WAY]
    both = set(WAY) & set(FAR_WAY)
    once = {name: 2 if name in both else 1 for name in (*WAY, *FAR_WAY)}
    assert {name: entered.count(name) for name in once} == once
    assert [payload for _, payload in reader.messages] == [b"1", b"2"]

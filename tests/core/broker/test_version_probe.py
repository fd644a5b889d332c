"""Finding out which MQTT version the broker speaks, for each way brokers have of not speaking one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ildm.config import Address
from ildm.core.broker.refusals import own_session_refused
from ildm.core.transfer.batch import single
from ildm.mqtt import Connect, Publish, Version
from ildm.testing.virtual.broker import Broker, Connection
from ildm.testing.virtual.world import World
from tests.support.site import Site

V311, V5 = Version.V311, Version.V5
Answer = bytes | None
"""Bytes to send before closing (none: closed without a word), or None to keep silent."""
PROPER = b"as a broker does"


class Scripted(Broker):
    """Answers the CONNECT number ``n`` as a function of its version and ``n`` says."""

    def __init__(self, answer: Callable[[Version, int], Answer]) -> None:
        super().__init__()
        self.answer = answer
        self.times: list[float] = []
        self.takes = self._takes

    @property
    def versions(self) -> list[Version]:
        return [connect.version for connect in self.connects]

    def _takes(self, connection: Connection, packet: Any) -> bool:
        if not isinstance(packet, Connect):
            return True
        self.times.append(connection.transport.world.time)
        said = self.answer(packet.version, len(self.connects))
        if said is not None and said != PROPER:
            if said:
                connection.transport.write(said)
            connection.transport.close()
        return said == PROPER


def only(version: Version, otherwise: Answer) -> Callable[[Version, int], Answer]:
    return lambda asked, _: PROPER if asked is version else otherwise


def after(
    attempts: int, otherwise: Answer, then: Callable[[Version, int], Answer]
) -> Callable[[Version, int], Answer]:
    return lambda asked, n: otherwise if n <= attempts else then(asked, n)


def both(asked: Version, n: int) -> Answer:
    return PROPER


def probed(
    world: World, answer: Callable[[Version, int], Answer], seconds: float = 60
) -> tuple[Site, Scripted]:
    """A node that finds out about a broker, without persistent sessions (they connect twice)."""
    broker = Scripted(answer)
    site = Site(world, "a", "pf", link={"qos": 1})
    site.use(broker)
    world.run(seconds)
    return site, broker


@pytest.mark.parametrize(
    ("answer", "spoken", "asked"),
    [
        pytest.param(both, V5, [V5], id="accepts 5"),
        pytest.param(only(V311, b"\x20\x02\x00\x01"), V311, [V5, V311], id="refuses as 3.1.1 does"),
        pytest.param(only(V311, b"\x20\x03\x00\x01\x00"), V311, [V5, V311], id="refuses in a mixed form"),
        pytest.param(only(V311, b"\x20\x03\x00\x84\x00"), V311, [V5, V311], id="refuses as 5 does"),
        pytest.param(only(V311, b""), V311, [V5, V5, V5, V311, V5], id="closes without a word"),
        pytest.param(only(V311, None), V311, [V5, V5, V5, V311, V5], id="keeps silent"),
        pytest.param(after(1, b"", both), V5, [V5, V5], id="closes once while it starts"),
        pytest.param(after(3, b"", both), V5, [V5, V5, V5, V311, V5], id="closes thrice while it starts"),
        pytest.param(
            after(2, b"", only(V311, b"\x20\x02\x00\x01")), V311, [V5, V5, V5, V311], id="starts, then 3.1.1"
        ),
    ],
)
def test_the_version_is_found(
    world: World, answer: Callable[[Version, int], Answer], spoken: Version, asked: list[Version]
) -> None:
    site, broker = probed(world, answer)
    assert site.node.injector.version is spoken
    assert broker.versions == [*asked, spoken]  # the last one is the injection session's
    assert site.node.injector.connected
    site.node.injector.send(single(Publish(topic="t", payload=b"x"), 0), 0, None)
    world.run(1)
    assert broker.topics() == ["t"]
    assert site.node.reach.down_reason is None


@pytest.mark.parametrize("downtime", [0.5, 5, 50, 500])
@pytest.mark.parametrize("version", [V5, V311])
def test_a_port_forwarder_that_closes_while_the_broker_starts_decides_nothing(
    world: World, downtime: float, version: Version
) -> None:
    wait = b"\x20\x02\x00\x01" if version is V311 else b""

    def answer(asked: Version, n: int) -> Answer:
        return (PROPER if asked is version else wait) if world.time > downtime else b""

    site, _ = probed(world, answer, downtime + 60)
    assert site.node.injector.version is version
    assert site.node.injector.connected


@pytest.mark.parametrize(
    ("never", "why"),
    [(b"", "no CONNACK came"), (None, "no CONNACK came"), (b"\x20\x02\x00\x01", own_session_refused(1))],
    ids=["closes", "silent", "refuses"],
)
def test_a_broker_that_accepts_no_version_is_asked_patiently_and_reported(
    world: World, never: Answer, why: str
) -> None:
    site, broker = probed(world, lambda asked, n: never, 600)
    assert site.node.injector.version is None
    assert {V5, V311} == set(broker.versions)
    # never both versions over and over without a pause
    assert all(later - sooner > 0.1 for sooner, later in zip(broker.times, broker.times[2:], strict=False))
    assert len(broker.connects) < 200
    assert site.node.reach.down_reason == f"the broker accepts the node's own session in no version: {why}"


@pytest.mark.parametrize(
    ("spoken", "refusal"),
    [(V5, b"\x20\x03\x00\x87\x00"), (V311, b"\x20\x02\x00\x05"), (V5, b"\x20\x02\x00\x05")],
)
def test_wrong_credentials_are_reported_and_decide_nothing(
    world: World, spoken: Version, refusal: bytes
) -> None:
    wrong = True

    def answer(asked: Version, n: int) -> Answer:
        if asked is not spoken:
            return b"\x20\x02\x00\x01"
        return refusal if wrong else PROPER

    site, broker = probed(world, answer)
    assert site.node.injector.version is None
    assert broker.versions[-1] is spoken
    assert site.node.reach.down_reason == (
        f"the broker refused the node's own session with code 0x{refusal[3]:02X}: not authorized;"
        " see broker.username and the access rules of the broker, which may be about the node's own client"
        " identifiers (ildm-...), too"
    )
    wrong = False
    world.run(60)
    assert {sender.wire.version for sender in site.node.injector.senders} == {spoken}
    assert site.node.injector.connected
    assert site.node.reach.down_reason is None


def test_a_broker_that_is_not_there_yet(world: World) -> None:
    broker = Scripted(both)
    site = Site(world, "a", "pf")
    del world.listeners[Address("a", 3)]
    world.run(5)
    assert site.node.reach.down_reason == "a:3: connection refused"
    site.use(broker)
    world.run(30)
    assert site.node.injector.version is V5
    assert broker.versions == [V5, V5]


def test_what_is_no_connack_is_reported_and_tried_again(world: World) -> None:
    site, broker = probed(world, after(2, b"\x20\x01\x00", both))
    assert broker.versions == [V5] * 4
    assert site.node.counters["malformed_from_broker"] == 2
    assert site.node.injector.version is V5


def test_a_node_that_stops_while_it_probes_leaves_no_connection(world: World) -> None:
    broker = Scripted(lambda asked, n: None)
    site = Site(world, "a", "pf")
    site.use(broker)
    site.node.injector.stop()  # while the connection is made
    world.run(60)
    assert broker.connections == []
    site.start()
    world.run(1)
    assert len(broker.connections) == 1
    site.node.injector.stop()  # while it waits for the answer
    world.run(60)
    assert broker.connections == []
    assert len(broker.connects) == 1

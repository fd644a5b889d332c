"""Clients for whom there is no room are told so, counted, and named in the log now and then."""

from __future__ import annotations

import pytest

from ildm.config import Address, Config
from ildm.core.local.admission import LOG_EVERY, TOLD_AT_ONCE
from ildm.mqtt import ConnAck, Publish, Version
from ildm.net.run import descriptors_for_clients
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.site import Site


def refusals(site: Site) -> list[dict[str, object]]:
    return [fields for _, event, fields in site.node.driver.logged if event == "no room for more clients"]


@pytest.mark.parametrize("bound", ["limits.clients", "file descriptors"])
@pytest.mark.parametrize(("version", "code"), [(Version.V31, 3), (Version.V311, 3), (Version.V5, 0x97)])
def test_a_client_for_whom_there_is_no_room_is_told(
    world: World, bound: str, version: Version, code: int
) -> None:
    limits = {"clients": 2} if bound == "limits.clients" else {}
    site = Site(world, "a", None, limits=limits)
    if bound == "file descriptors":
        site.node.admission.descriptors_for = 2
    one, _ = site.client("1"), site.client("2")
    refused = site.client("3", version=version)
    world.run(1)
    assert [packet.reason_code for packet in refused.got(ConnAck)] == [code]
    assert refused.closed
    assert not site.node.admission.being_told
    assert site.node.counters["connections_refused"] == 1
    assert site.node.counters["connections_refused_descriptors"] == (bound == "file descriptors")
    assert [fields["limit"] for fields in refusals(site)] == [bound]
    one.transport.close()
    world.run(1)
    assert site.client("4").got(ConnAck)[0].reason_code == 0


def test_a_storm_is_one_line_of_the_log_in_a_while(world: World) -> None:
    site = Site(world, "a", None, limits={"clients": 1})
    site.client("1")
    for i in range(100):
        site.client(f"more-{i}")
    world.run(LOG_EVERY)
    site.client("last")
    assert [fields["refused"] for fields in refusals(site)] in ([1, 100], [1, 99, 1])
    assert site.node.counters["connections_refused"] == 101


class FromOneAddress:
    """A connection of a client whose address is blocked at the third failure."""

    listener = "listen"

    def __init__(self, address: str, failures: int) -> None:
        self.address = address
        self.failures = failures

    def authentication_failed(self) -> str | None:
        self.failures -= 1
        return None if self.failures else self.address

    def is_blocked(self) -> bool:
        return self.failures <= 0

    def begin(self, transport: object) -> str:
        return self.address

    def end(self) -> None: ...

    def told(self, version: str) -> bytes:
        return b""


def test_blocked_addresses_are_one_line_of_the_log_in_a_while(world: World) -> None:
    site = Site(world, "a", None)
    admission = site.node.admission

    def lines() -> list[tuple[object, object]]:
        event = "address blocked: its clients were refused too often"
        return [(f["address"], f["blocked"]) for _, name, f in site.node.driver.logged if name == event]

    origin = FromOneAddress("192.0.2.1", 3)
    for expected in ([], [], [("192.0.2.1", 1)], [("192.0.2.1", 1)]):
        admission.refused_with(0x87, origin)
        admission.refused_with(0x88, origin)  # for no fault of the client's
        assert lines() == expected
    for number in range(2, 5):
        admission.refused_with(0x87, FromOneAddress(f"192.0.2.{number}", 1))
    admission.refused_with(0x87, None)
    world.run(LOG_EVERY)
    admission.refused_with(0x87, FromOneAddress("192.0.2.9", 1))
    assert lines() == [("192.0.2.1", 1), ("192.0.2.9", 4)]
    assert site.node.counters["authentication_failures"] == 9


def test_refused_clients_that_say_nothing_do_not_add_up(world: World) -> None:
    """Each would hold what there is too little of."""
    site = Site(world, "a", None, limits={"clients": 1, "connect_timeout": 5})
    first = site.client("1")
    silent = [MiniClient() for _ in range(TOLD_AT_ONCE + 10)]
    for client in silent:
        world.connect(Address("a", 1), client)
    world.run(1)
    assert [client.closed for client in silent] == [False] * TOLD_AT_ONCE + [True] * 10
    assert len(site.node.sessions) == 1
    world.run(5)
    assert all(client.closed for client in silent)
    assert not site.node.admission.being_told
    first.send(Publish(topic="t", payload=b"x"))
    world.run(1)
    assert [packet.topic for _, packet in site.broker.published] == ["t"]


def test_a_dial_without_a_descriptor_is_not_the_brokers_fault(world: World) -> None:
    from ildm.core.driver import NO_DESCRIPTOR

    site = Site(world, "a", None)
    site.client("1")
    site.node.driver.dial = lambda address, endpoint, timeout: endpoint.dial_failed(NO_DESCRIPTOR)
    refused = site.client("2")
    world.run(1)
    assert [packet.reason_code for packet in refused.got(ConnAck)] == [3]
    assert site.node.reach.down_reason is None
    assert site.node.counters["out_of_descriptors"] == 1
    assert len(refusals(site)) == 1


def test_some_descriptors_are_kept_for_the_node_itself() -> None:
    relay = Config.model_validate({})
    assert descriptors_for_clients(relay, 1024) == (1024 - 82) // 2
    linked = Config.model_validate({"algorithm": "sf", "link": {"sessions": 2, "max_neighbors": 10}})
    assert descriptors_for_clients(linked, 1024) == (1024 - 84 - 40) // 2
    assert descriptors_for_clients(linked, 100) == 25
    assert descriptors_for_clients(linked, -1) is None

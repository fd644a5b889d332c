"""Connections bounded by address."""

from __future__ import annotations

import socket

import pytest

from ildm.config import LimitsConfig
from ildm.core.counters import Counters
from ildm.mqtt import Connect
from ildm.net.transport import gate as module
from ildm.net.transport.gate import AddressGate
from ildm.testing.live.ports import free_port
from tests.net.transport.conftest import StartNode, until
from tests.net.transport.pki import Pki


class Gate(AddressGate):
    """With a clock of its own."""

    def __init__(self, **limits: object) -> None:
        self.time = 0.0
        self.counted = Counters()
        super().__init__(LimitsConfig.model_validate(limits), lambda: self.time, self.counted)

    def entered(self, host: str, times: int, handshake: bool = False) -> int:
        return sum(self.enter(host, handshake) for _ in range(times))


def test_so_many_at_once_and_so_many_after_some_have_gone() -> None:
    gate = Gate(per_address=3, connect_rate=1000)
    assert gate.entered("192.0.2.1", 5) == 3
    assert gate.entered("192.0.2.2", 5) == 3
    gate.time = 1
    assert gate.entered("192.0.2.1", 1) == 0
    gate.leave("192.0.2.1")
    assert gate.entered("192.0.2.1", 2) == 1
    assert gate.counted["connections_refused_address_connections"] == 6


def test_who_comes_and_goes_is_held_to_a_rate_also_after_all_have_gone() -> None:
    gate = Gate(per_address=2, connect_rate=0.5)

    def visits(times: int) -> int:
        came = 0
        for _ in range(times):
            if gate.enter("192.0.2.1"):
                came += 1
                gate.leave("192.0.2.1")
        return came

    assert visits(10) == 2
    gate.time = 2
    assert visits(10) == 1
    gate.time = 1000
    assert visits(10) == 2
    assert gate.counted["connections_refused_address_rate"] == 25


def test_handshakes_are_bounded_until_they_end() -> None:
    gate = Gate(handshakes=2)
    assert gate.entered("192.0.2.1", 4, handshake=True) == 2
    gate.handshake_ended("192.0.2.1")
    assert gate.entered("192.0.2.1", 4, handshake=True) == 1
    assert gate.counted["connections_refused_address_handshakes"] == 5


def test_a_network_of_ipv6_counts_as_one_and_ipv4_in_it_as_itself() -> None:
    gate = Gate(per_address=2)
    assert gate.entered("2001:db8::1", 1) + gate.entered("2001:db8::2:1", 2) == 2
    assert gate.entered("2001:db8:0:1::1", 2) == 2
    assert gate.entered("::ffff:192.0.2.1", 1) + gate.entered("192.0.2.1", 2) == 2


def test_networks_may_be_exempt_and_loopback_is() -> None:
    assert Gate(per_address=1).entered("127.0.0.1", 5) == 5
    gate = Gate(per_address=1, exempt=["192.0.2.0/24"])
    assert gate.entered("192.0.2.9", 5) == 5
    assert gate.entered("127.0.0.1", 5) == 1


def test_what_is_remembered_of_those_who_have_gone_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 10)
    gate = Gate()
    for number in range(100):
        assert gate.enter(f"192.0.2.{number}")
        gate.leave(f"192.0.2.{number}")
    assert (len(gate._absent), len(gate._present)) == (10, 0)


def answered(connection: socket.socket) -> bool:
    try:
        connection.sendall(Connect(client_id=str(connection.fileno())).encode())
        return connection.recv(4) == b"\x20\x02\0\0"
    except ConnectionError:
        return False


def test_a_node_holds_clients_to_it_and_takes_others_when_some_have_gone(start_node: StartNode) -> None:
    node = start_node(limits={"per_address": 3, "connect_rate": 100_000, "exempt": []})
    held = [socket.create_connection(node.address, 30) for _ in range(5)]
    assert [answered(each) for each in held].count(True) == 3
    for each in held:
        each.close()
    until(lambda: (node.status() or {})["clients"] == 0)
    with socket.create_connection(node.address, 30) as again:
        assert answered(again)


def test_half_open_handshakes_are_bounded_and_do_not_keep_others_out(start_node: StartNode, pki: Pki) -> None:
    port = free_port()
    listener = {"url": f"mqtts://127.0.0.1:{port}", "tls": pki.server()}
    node = start_node(listeners=[listener], limits={"handshakes": 5, "exempt": []})
    half_open = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(20)]
    until(lambda: (node.status() or {})["counters"].get("connections_refused_address_handshakes") == 15)
    for each in half_open:
        each.close()
    until(lambda: (node.status() or {})["counters"].get("tls_handshakes_failed") == 5)
    with (
        socket.create_connection(("127.0.0.1", port), 30) as plain,
        pki.trusting().wrap_socket(plain, server_hostname="localhost") as client,
    ):
        assert answered(client)

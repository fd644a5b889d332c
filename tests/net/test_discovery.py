"""Neighbours by DNS, with a name server of its own and real sockets; the brokers are not needed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.resolver
import dns.rrset
import pytest

from ildm.address import Address
from ildm.config import ConfigError, LookupConfig, parse_config
from ildm.net import names
from ildm.net.names import LookupFailedError, addresses_of
from ildm.net.run import NodeServer
from ildm.net.view import LiveView
from tests.support.ports import free_port

ZONE = "_ildm._tcp.example.org."
SRV = LookupConfig(srv="_ildm._tcp.example.org")


class NameServer(asyncio.DatagramProtocol):
    """Answers questions of SRV records over UDP."""

    def __init__(self) -> None:
        self.records: list[str] = []
        self.code = dns.rcode.NOERROR
        self.silent = False
        self.transport: asyncio.DatagramTransport

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if self.silent:
            return
        question = dns.message.from_wire(data)
        answer = dns.message.make_response(question)
        answer.set_rcode(self.code)
        if self.records and question.question[0].name == dns.name.from_text(ZONE):
            answer.answer.append(dns.rrset.from_text(ZONE, 5, "IN", "SRV", *self.records))
        self.transport.sendto(answer.to_wire(), addr)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NameServer]:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(NameServer, ("127.0.0.1", 0))

    def resolver() -> dns.resolver.Resolver:
        made = dns.resolver.Resolver(configure=False)
        made.nameservers = ["127.0.0.1"]
        made.port = transport.get_extra_info("sockname")[1]
        return made

    monkeypatch.setattr(names, "system_resolver", resolver)
    yield server
    transport.close()


async def ask(question: LookupConfig = SRV) -> list[Address]:
    return await asyncio.to_thread(addresses_of, question)


async def test_srv_records_are_hosts_and_ports_the_first_by_priority(server: NameServer) -> None:
    server.records = ["20 0 1886 b.example.org.", "10 5 1885 a.example.org."]
    assert await ask() == [Address("a.example.org", 1885), Address("b.example.org", 1886)]


async def test_no_such_service_is_nobody(server: NameServer) -> None:
    server.records = ["0 0 0 ."]
    assert await ask() == [], "RFC 2782: the service is decidedly not available"
    server.records = []
    assert await ask() == []
    server.code = dns.rcode.NXDOMAIN
    assert await ask() == []


async def test_a_server_that_fails_is_no_answer(server: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.code = dns.rcode.SERVFAIL
    with pytest.raises(LookupFailedError, match="SERVFAIL"):
        await ask()
    server.silent = True
    monkeypatch.setattr(names, "LIFETIME", 0.1)
    with pytest.raises(LookupFailedError, match="expired"):
        await ask()


async def test_the_addresses_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    places = [(socket.AF_INET, 1, 6, "", (f"192.0.2.{n}", 1885)) for n in (1, 2)]
    places.append((socket.AF_INET6, 1, 6, "", ("2001:db8::1", 1885, 0, 0)))  # type: ignore[arg-type]
    monkeypatch.setattr(names.socket, "getaddrinfo", lambda *_, **__: places)
    question = LookupConfig(host="peers", port=1885)
    assert await ask(question) == [Address(host, 1885) for host in ("192.0.2.1", "192.0.2.2", "2001:db8::1")]


@pytest.mark.parametrize("code", [socket.EAI_NONAME, socket.EAI_NODATA])
async def test_no_such_host_is_nobody(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(code, "Name or service not known")

    monkeypatch.setattr(names.socket, "getaddrinfo", unknown)
    assert await ask(LookupConfig(host="peers", port=1885)) == []


async def test_a_host_that_cannot_be_looked_up_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(names.socket, "getaddrinfo", away)
    with pytest.raises(LookupFailedError, match="Temporary failure"):
        await ask(LookupConfig(host="peers", port=1885))


async def test_a_name_that_cannot_be_is_no_answer() -> None:
    with pytest.raises(LookupFailedError):
        await ask(LookupConfig(host="x" * 100, port=1885))


async def test_nodes_of_one_service_find_each_other(server: NameServer, tmp_path: Path) -> None:
    ports = {name: free_port() for name in "abc"}
    server.records = [f"0 0 {port} localhost." for port in ports.values()]
    nodes = []
    for name, port in ports.items():
        document = {
            "node_id": name,
            "state_dir": name,
            "listen": f"127.0.0.1:{free_port()}",
            "broker": {"address": f"127.0.0.1:{free_port()}"},
            "algorithm": "sf",
            "link": {
                "listen": f"127.0.0.1:{port}",
                "discover": [{"srv": SRV.srv}],
                "discover_interval": 1,
                "secret": "a secret of some length",
                "reconnect_max": 0.5,
            },
        }
        nodes.append(NodeServer(parse_config(document, "test", tmp_path)))
    for node in nodes:
        await node.start()
    try:
        async with asyncio.timeout(30):
            while not all(_linked(node) == set("abc") - {node.node.node_id} for node in nodes):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        rows = LiveView(nodes[2].node, nodes[2].store, nodes[2].request_stop).neighbors()
        assert all(row["found"] or row["direction"] == "in" for row in rows)
        assert nodes[0].node.counters["discover_answered"] > 0
    finally:
        for node in nodes:
            await node.stop()


def _linked(server: NodeServer) -> set[str]:
    return {link.node_id for link in server.node.links.links.values() if link.connected}


LINK = {"discover": [{"host": "peers", "port": 1885}]}


def refusal(tmp_path: Path, algorithm: str | None = "sf", **link: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config({"algorithm": algorithm, "link": {**LINK, **link}}, "test", tmp_path)
    return str(caught.value)


def test_what_is_refused_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "discover needs secret or secret_file, or tls" in refusal(tmp_path)
    secret = {"secret": "a secret of some length"}
    assert "link.discover is without effect" in refusal(tmp_path, None, **secret)
    for entry in (
        {},
        {"host": "a"},
        {"port": 1},
        {"host": "a", "port": 1, "srv": "b"},
        {"srv": "b", "port": 1},
    ):
        assert "give either host and port, or srv" in refusal(tmp_path, discover=[entry], **secret)
    monkeypatch.setattr("ildm.config.link.find_spec", lambda name: None)
    text = refusal(tmp_path, discover=[{"srv": "b"}], **secret)
    assert "link.discover.0.srv: the package dnspython is not installed: pip install 'ildm[discover]'" in text

"""The PROXY protocol: its headers, HAProxy before and behind a node, and who is not to be believed."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from ildm.mqtt import Connect
from ildm.net.transport.arrival import Arrival, own_session
from ildm.net.transport.proxy import (
    LOCAL,
    SIGNATURE,
    UNKNOWN,
    ProxyError,
    ProxyHeader,
    header_v1,
    header_v2,
    parse,
    tls_tlvs,
)
from ildm.testing.live.ports import LOOPBACK, free_port
from ildm.testing.live.process import ManagedProcess
from tests.net.transport.client import connected, echoes
from tests.net.transport.conftest import StartNode, running, until
from tests.net.transport.pki import Pki

V4 = ("192.0.2.7", 5678), ("198.51.100.1", 1883)
V6 = ("2001:db8::7", 5678), ("2001:db8::1", 1883)
TLS = tls_tlvs("TLSv1.3", "device-7", "mqtt")


@pytest.mark.parametrize(
    ("header", "source", "tlvs"),
    [
        (header_v1(*V4), V4[0], b""),
        (header_v1(*V6), V6[0], b""),
        (header_v2(*V4), V4[0], b""),
        (header_v2(*V6, TLS), V6[0], TLS),
        (UNKNOWN, None, b""),
        (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None, b""),
        (LOCAL, None, b""),
        (SIGNATURE + b"\x21\x31\x00\xd8" + b"\0" * 216, None, b""),
    ],
)
def test_a_header_is_read_whole_in_pieces_and_with_what_follows(
    header: bytes, source: Any, tlvs: bytes
) -> None:
    for size in range(1, len(header)):
        assert parse(header[:size]) is None
    for tail in (b"", b"\x16\x03\x01"):
        found = parse(header + tail)
        assert found is not None
        assert (found.size, found.source, found.tlvs) == (len(header), source, tlvs)


def test_headers_are_those_of_the_specification() -> None:
    assert header_v1(*V4) == b"PROXY TCP4 192.0.2.7 198.51.100.1 5678 1883\r\n"
    assert header_v2(*V4).hex() == SIGNATURE.hex() + "2111000c" + "c0000207" + "c6336401" + "162e" + "075b"
    assert parse(header_v2(("192.0.2.7", 1), ("::1", 2))) == ProxyHeader(
        52, ("::ffff:c000:207", 1), ("::1", 2)
    )
    # as HAProxy's send-proxy-v2-ssl-cn: ALPN, then SSL with client, verify, version, CN
    assert TLS.hex() == (
        "010004"
        + b"mqtt".hex()
        + "20001a"
        + "07"
        + "00000000"
        + "210007"
        + b"TLSv1.3".hex()
        + "220008"
        + b"device-7".hex()
    )
    assert tls_tlvs("TLSv1.2", None, None).hex() == "20000f" + "01" + "00000001" + "210007" + b"TLSv1.2".hex()


def test_of_what_a_proxy_says_only_the_clients_tls_goes_on() -> None:
    noise = b"\x04\x00\x02xx" + b"\x05\x00\x01u"
    found = parse(header_v2(*V4, noise + TLS))
    assert found is not None
    assert found.tlvs == TLS


@pytest.mark.parametrize(
    "data",
    [
        b"\x10\x0c",
        b"PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
        b"PROXY TCP4 1.2.3.4 ::1 1 2\r\n",
        b"PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n",
        b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
        b"PROXY SCTP 1.2.3.4 1.2.3.4 1 2\r\n",
        b"PROXY " + b"x" * 120,
        SIGNATURE + b"\x11\x11\x00\x0c" + b"\0" * 12,
        SIGNATURE + b"\x22\x11\x00\x0c" + b"\0" * 12,
        SIGNATURE + b"\x21\x12\x00\x0c" + b"\0" * 12,
        SIGNATURE + b"\x21\x11\x00\x0b" + b"\0" * 11,
        SIGNATURE + b"\x21\x11\xff\xff",
        SIGNATURE + b"\x21\x11\x00\x0f" + b"\0" * 12 + b"\x20\x00\x01",
        SIGNATURE + b"\x21\x11\x00\x0e" + b"\0" * 12 + b"\x20\x00",
    ],
)
def test_what_is_no_header(data: bytes) -> None:
    with pytest.raises(ProxyError):
        parse(data)


class Haproxy(ManagedProcess):
    """In TCP mode from one port to another."""

    name = "haproxy"

    def __init__(self, directory: Path, bind: str, to: tuple[str, int], server: str) -> None:
        super().__init__(directory)
        self._lines = [
            "defaults",
            "  mode tcp",
            *(f"  timeout {which} 60s" for which in ("connect", "client", "server")),
            "listen mqtt",
            f"  bind {self.host}:{self.port} {bind}",
            f"  server node {to[0]}:{to[1]} {server}",
        ]

    def command(self) -> Sequence[str | Path]:
        config = self.directory / "haproxy.cfg"
        config.write_text("\n".join(self._lines) + "\n")
        return [HAPROXY or "haproxy", "-db", "-f", config]

    def ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(self.address) == 0


HAPROXY = shutil.which("haproxy", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
needs_haproxy = pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed")


def listener(scheme: str, port: int, trust: str = "127.0.0.1", **more: Any) -> dict[str, Any]:
    return {"url": f"{scheme}://127.0.0.1:{port}", "proxy": {"trust": [trust]}, **more}


@needs_haproxy
@pytest.mark.parametrize("version", ["send-proxy", "send-proxy-v2"])
@pytest.mark.parametrize("scheme", ["mqtt", "mqtts", "ws"])
def test_behind_haproxy_the_clients_address_is_known(
    start_node: StartNode, pki: Pki, tmp_path: Path, version: str, scheme: str
) -> None:
    port = free_port()
    more = {"tls": pki.server()} if scheme == "mqtts" else {}
    node = start_node(listeners=[listener(scheme, port, **more)])
    options: dict[str, Any] = {"tls": pki.trusting()} if scheme == "mqtts" else {}
    if scheme == "ws":
        options["transport"] = "websockets"
    with running(Haproxy(tmp_path / "haproxy", "", ("127.0.0.1", port), version)) as front:
        until(lambda: node.status() is not None)
        with connected("localhost", front.port, **options) as client:
            echoes(client)
            (row,) = node.admin.clients().items
            sock = client.paho.socket()
            own = getattr(sock, "_socket", sock)  # below paho's WebSocket
            assert row["peer"] == "{}:{}".format(*own.getsockname())


@needs_haproxy
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_broker_that_wants_the_header_gets_it_for_clients_and_for_the_nodes_own_sessions(
    start_node: StartNode, tmp_path: Path, mosquitto: Any, version: str
) -> None:
    with running(Haproxy(tmp_path / "haproxy", "accept-proxy", mosquitto.address, "")) as front:
        address = f"127.0.0.1:{front.port}"
        node = start_node(algorithm="pf", broker={"address": address, "proxy": version})
        with connected(*node.address) as client:
            echoes(client)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_nodes_own_sessions_have_a_real_address_in_the_header(version: str) -> None:
    """Mosquitto 2.1 closes connections whose header has none."""
    with (
        socket.create_server((LOOPBACK, 0)) as server,
        socket.create_connection(server.getsockname(), 30) as made,
    ):
        for said in (own_session(version, made), Arrival(None).told(version, made)):
            header = parse(said)
            assert header is not None
            assert (header.source, header.destination) == (made.getsockname(), made.getpeername())


class Strict:
    """Before a broker, as Mosquitto 2.1: it closes connections whose header has no address."""

    def __init__(self, broker: tuple[str, int]) -> None:
        self._broker = broker
        self._server = socket.create_server((LOOPBACK, 0))
        self.port = self._server.getsockname()[1]
        self.refused: list[bytes] = []
        self.accepted = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._pass, args=(connection,), daemon=True).start()

    def _pass(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(30)
            said = connection.recv(28, socket.MSG_WAITALL)  # v2 of an IPv4 connection
            try:
                header = parse(said)
            except ProxyError:
                header = None
            if header is None or header.source is None:
                if said:  # else the node has only looked whether it is there
                    self.refused.append(said)
                return
            self.accepted += 1
            with socket.create_connection(self._broker, 30) as broker:
                back = threading.Thread(target=_copied, args=(broker, connection), daemon=True)
                back.start()
                _copied(connection, broker)
                back.join()

    def close(self) -> None:
        self._server.close()


def _copied(source: socket.socket, target: socket.socket) -> None:
    source.settimeout(None)
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def test_a_broker_that_refuses_headers_without_an_address_takes_all_sessions_of_a_node(
    start_node: StartNode, mosquitto: Any
) -> None:
    front = Strict(mosquitto.address)
    with closing(front):
        with socket.create_connection((LOOPBACK, front.port), 30) as local:
            local.sendall(LOCAL + bytes(28 - len(LOCAL)))
            assert local.recv(1) == b""
        assert len(front.refused) == 1
        address = f"127.0.0.1:{front.port}"
        node = start_node(algorithm="pf", broker={"address": address, "proxy": "v2"})
        with connected(*node.address) as client:
            echoes(client)
        assert front.accepted >= 2  # the client's and the node's own
        assert len(front.refused) == 1


class Recorder:
    """A broker that only notes how connections begin."""

    def __init__(self) -> None:
        self._server = socket.create_server((LOOPBACK, 0))
        self.port = self._server.getsockname()[1]
        self.begun: list[bytes] = []
        self.enough = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while not self.begun:
            connection, _ = self._server.accept()
            with connection:
                connection.settimeout(30)
                found = b""
                while b"MQTT" not in found and (chunk := connection.recv(4096)):
                    found += chunk
                if b"MQTT" in found:  # else the node has only looked whether it is there
                    self.begun.append(found)
        self.enough.set()


def test_the_broker_is_told_the_name_in_a_clients_certificate(start_node: StartNode, pki: Pki) -> None:
    recorder, port = Recorder(), free_port()
    tls = {**pki.server(), "ca": str(pki.ca), "verify": "require"}
    node = start_node(
        listeners=[{"url": f"mqtts://127.0.0.1:{port}", "tls": tls}],
        broker={"address": f"127.0.0.1:{recorder.port}", "proxy": "v2"},
    )
    assert node.status() is not None
    with (
        socket.create_connection(("127.0.0.1", port), 30) as plain,
        pki.trusting(pki.issue("device-7")).wrap_socket(plain, server_hostname="localhost") as client,
    ):
        source, connect = client.getsockname(), Connect(client_id="c").encode()
        client.sendall(connect)
        assert recorder.enough.wait(30)
    expected = header_v2(source, ("127.0.0.1", port), tls_tlvs("TLSv1.3", "device-7", None))
    assert recorder.begun == [expected + connect]


def test_whoever_is_not_trusted_is_not_believed_and_who_is_has_to_say_it(start_node: StartNode) -> None:
    ports = free_port(), free_port()
    near = listener("mqtt", ports[0])
    near["proxy"]["timeout"] = 0.2
    node = start_node(listeners=[near, listener("mqtt", ports[1], "192.0.2.0/24")])
    connect = Connect(client_id="c").encode()
    for port, said, answer in [
        (ports[0], header_v2(*V4), b"\x20\x02\0\0"),
        (ports[0], b"", b""),
        (ports[0], SIGNATURE, b""),
        (ports[1], header_v2(*V4), b""),
        (ports[1], b"", b"\x20\x02\0\0"),
    ]:
        with socket.create_connection(("127.0.0.1", port), 30) as client:
            client.sendall(said + (b"" if said == SIGNATURE else connect))
            try:
                assert client.recv(4) == answer
            except ConnectionResetError:
                assert answer == b""
    counters = (node.status() or {})["counters"]
    assert counters["proxy_headers_refused"] == 2


def test_the_log_says_once_in_a_while_who_brings_no_header(start_node: StartNode) -> None:
    """At info, and once for many: whoever is trusted could else fill the disk."""
    port = free_port()
    node = start_node(listeners=[listener("mqtt", port, name="behind-haproxy")], log={"level": "info"})
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port), 30) as client:
            client.sendall(Connect(client_id="c").encode())
            with suppress(ConnectionResetError):
                assert client.recv(4) == b""
    until(lambda: (node.status() or {})["counters"]["proxy_headers_refused"] == 20)
    fields = {
        "listener": "behind-haproxy",
        "peer": "127.0.0.1",
        "reason": "no header of the PROXY protocol",
        "refused": 1,
    }
    event = "connection refused: no PROXY header from a trusted address"
    kept = [row for row in node.admin.events().items if row["event"] == event]
    assert [(row["level"], row["fields"]) for row in kept] == [("info", fields)]
    logged = [line for line in node.logged() if line["event"] == event]
    assert [{key: line[key] for key in fields} for line in logged] == [fields]

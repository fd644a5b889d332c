"""TLS towards clients and towards the broker, with certificates made by openssl."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from ildm.mqtt import Connect
from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.ports import free_port
from tests.net.transport.client import PahoClient, connected, echoes
from tests.net.transport.conftest import StartNode, running, until
from tests.net.transport.pki import Pki


def listener(port: int, tls: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    return [{"url": f"mqtts://127.0.0.1:{port}", "tls": tls, **more}]


def counters(node: NodeProcess) -> dict[str, int]:
    status = node.status()
    assert status is not None
    return dict(status["counters"])


def answered(port: int, tls: ssl.SSLContext) -> bool:
    """Whether a client gets an answer to its CONNECT; with TLS 1.3 it learns only then that it is refused."""
    try:
        with (
            socket.create_connection(("127.0.0.1", port), 30) as plain,
            tls.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            client.sendall(Connect(client_id="c").encode())
            return client.recv(4) == b"\x20\x02\0\0"
    except (ssl.SSLError, ConnectionError):
        return False


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_by_tls(start_node: StartNode, pki: Pki, version: ssl.TLSVersion) -> None:
    port = free_port()
    start_node(listeners=listener(port, pki.server()))
    tls = pki.trusting()
    tls.maximum_version = version
    with connected("localhost", port, tls=tls) as client:
        echoes(client, sizes=(0, 5, 300_000))


def test_less_than_tls_1_2_is_refused(start_node: StartNode, pki: Pki) -> None:
    port = free_port()
    node = start_node(listeners=listener(port, pki.server()))
    old = pki.trusting()
    old.set_ciphers("ALL:@SECLEVEL=0")  # or the client itself would not offer it
    with pytest.deprecated_call():
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    assert not answered(port, old)
    until(lambda: counters(node)["tls_handshakes_failed"] == 1)


def test_a_client_certificate_of_another_authority_or_of_the_past_or_none_is_refused(
    start_node: StartNode, pki: Pki, tmp_path: Path
) -> None:
    port = free_port()
    node = start_node(listeners=listener(port, {**pki.server(), "ca": str(pki.ca), "verify": "require"}))
    other = Pki(tmp_path / "other", "other").issue("device")
    refused: list[dict[str, str] | None] = [None, other, pki.issue("late", days=-1)]
    for shown in refused:
        assert not answered(port, pki.trusting(shown))
    until(lambda: counters(node)["tls_handshakes_failed"] == len(refused))
    assert answered(port, pki.trusting(pki.issue("device")))


def test_names_choose_certificates(start_node: StartNode, pki: Pki) -> None:
    port = free_port()
    named = pki.issue("named", "DNS:*.example.org")
    start_node(listeners=listener(port, {**pki.server(), "sni": {"*.example.org": named}}))
    for name in ("localhost", "a.example.org"):
        with (
            socket.create_connection(("127.0.0.1", port), 30) as plain,
            pki.trusting().wrap_socket(plain, server_hostname=name) as client,
        ):
            found = client.getpeercert()
            assert found is not None
            subject = dict(pair[0] for pair in found["subject"])
            assert subject["commonName"] == ("server" if name == "localhost" else "named")


def test_a_renewed_certificate_is_taken_up_while_connections_stay(
    start_node: StartNode, pki: Pki, tmp_path: Path
) -> None:
    port = free_port()
    used = {name: str(tmp_path / f"used.{name}") for name in ("cert", "key")}

    def put(names: dict[str, str]) -> None:
        for name, path in used.items():
            shutil.copy(names[name], path)

    put(pki.server("first"))
    node = start_node(listeners=listener(port, {**used, "watch": 0.05}))
    with connected("localhost", port, tls=pki.trusting()) as client:
        Path(used["cert"]).write_text("no certificate")
        until(lambda: counters(node).get("certificates_unusable", 0) > 0)
        with connected("localhost", port, tls=pki.trusting()) as other:  # the old one serves on
            echoes(other, "other")
        put(pki.server("second"))
        until(lambda: counters(node).get("certificates_renewed", 0) > 0)
        with (
            socket.create_connection(("127.0.0.1", port), 30) as plain,
            pki.trusting().wrap_socket(plain, server_hostname="localhost") as seen,
        ):
            assert "second" in str(seen.getpeercert())
        echoes(client)
        assert client.lost.empty()


@pytest.mark.parametrize("name", ["cert", "key"])
def test_a_fifo_in_the_place_of_a_file_is_not_waited_for(
    start_node: StartNode, pki: Pki, tmp_path: Path, name: str
) -> None:
    port = free_port()
    used = {each: str(tmp_path / f"used.{each}") for each in ("cert", "key")}
    first, second = pki.server("first"), pki.server("second")
    for each, path in used.items():
        shutil.copy(first[each], path)
    node = start_node(listeners=listener(port, {**used, "watch": 0.05}))
    Path(used[name]).unlink()
    os.mkfifo(used[name])
    said = node.wait_for("certificates that have changed cannot be used")
    assert said["error"] == f"listeners.0.tls.{name}: {used[name]} cannot be read: it is no regular file"
    with connected("localhost", port, tls=pki.trusting()) as client:
        echoes(client)
    Path(used[name]).unlink()
    for each, path in used.items():
        shutil.copy(second[each], path)
    until(lambda: counters(node).get("certificates_renewed", 0) > 0)


def test_of_a_renewed_certificate_it_is_said_what_is_wrong_as_at_the_start(
    start_node: StartNode, pki: Pki, tmp_path: Path
) -> None:
    used = {name: str(tmp_path / f"used.{name}") for name in ("cert", "key")}

    def put(names: dict[str, str]) -> None:
        shutil.copy(names["key"], used["key"])
        shutil.copy(names["cert"], used["cert"])

    put(pki.node("site-a"))
    tls = {**used, "ca": str(pki.ca), "watch": 0.05}
    node = start_node("site-a", "pf", link={"listen": f"mqtts://127.0.0.1:{free_port()}", "tls": tls})
    put(pki.node("site-b"))
    problem = (
        f"{used['cert']} is for site-b, not for this node: neighbours refuse it, as it lacks the alternative "
        "name URI:ildm:site-a"
    )
    node.wait_for("configuration", key="link.tls.cert", problem=problem)
    put(pki.issue("site-a", "URI:ildm:site-a", days=-1))
    assert "the certificate ended" in node.wait_for("configuration", key="link.tls.cert")["problem"]


def test_the_broker_by_tls_with_a_client_certificate(start_node: StartNode, pki: Pki, tmp_path: Path) -> None:
    port = free_port()
    server = pki.server("broker")
    lines = [
        f"listener {port} 127.0.0.1",
        f"cafile {pki.ca}",
        f"certfile {server['cert']}",
        f"keyfile {server['key']}",
        "require_certificate true",
    ]
    tls = {"ca": str(pki.ca), **pki.issue("node")}
    with running(Mosquitto(tmp_path / "tls-broker", extra=lines)):
        node = start_node(algorithm="pf", broker={"address": f"mqtts://127.0.0.1:{port}", "tls": tls})
        with connected(*node.address) as client:
            echoes(client, sizes=(0, 5, 300_000))


@pytest.mark.parametrize("fault", ["authority", "name"])
def test_a_broker_that_is_not_the_one_meant_is_not_trusted(
    start_node: StartNode, pki: Pki, tmp_path: Path, fault: str
) -> None:
    port = free_port()
    server = pki.server("broker") if fault == "authority" else pki.issue("stranger", "DNS:stranger.example")
    trusted = Pki(tmp_path / "other", "other").ca if fault == "authority" else pki.ca
    lines = [f"listener {port} 127.0.0.1", f"certfile {server['cert']}", f"keyfile {server['key']}"]
    with running(Mosquitto(tmp_path / "tls-broker", extra=lines)):
        broker = {"address": f"mqtts://127.0.0.1:{port}", "tls": {"ca": str(trusted)}}
        node = start_node(reaches_broker=False, broker=broker)
        client = PahoClient()
        assert client.connect(*node.address) == "Server unavailable"
        client.close()
        status = node.status()
        assert status is not None
        assert status["broker"]["reason"].startswith("TLS: the certificate is not accepted")

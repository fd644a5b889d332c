"""Places where clients connect come, go and change, and whoever is connected stays."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest

from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.ports import LOOPBACK, free_port
from tests.net.reload.conftest import WAIT, MakeRig, Rig, Talker, until
from tests.net.transport.pki import Pki


def at(port: int, **more: Any) -> dict[str, Any]:
    return {"url": f"mqtt://{LOOPBACK}:{port}", **more}


def secure(port: int, shown: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"url": f"mqtts://{LOOPBACK}:{port}", "name": "public", "tls": {**shown, **more}}


async def test_one_comes_and_one_goes_with_its_clients_still_connected(
    rig: MakeRig, mosquitto: Mosquitto
) -> None:
    node, port = await rig(mosquitto.address), free_port()
    before = await node.talker()
    del node.document["listen"]
    lines = await node.reload(listeners=[at(port)])
    assert lines == [
        f"- listen: {LOOPBACK}:{node.port}",
        f"+ listeners[{LOOPBACK}:{port}]: {LOOPBACK}:{port}",
    ]
    after = await node.talker(port)
    assert await node.refuses(node.port)
    assert await before.lives()
    assert await after.lives()
    await node.reload(listen=f"{LOOPBACK}:{node.port}", listeners=[])
    assert await node.refuses(port)
    again = await node.talker()
    assert [await each.lives() for each in (before, after, again)] == [True] * 3


async def test_what_is_the_same_is_not_touched(rig: MakeRig) -> None:
    node = await rig(listeners=[at(0, name="one"), at(0, name="other")])
    ports = node.server.ports
    await node.reload(listeners=[at(0, name="other"), at(free_port()), at(0, name="one")])
    now = node.server.ports
    assert now[0] == ports[0]
    assert {now[1], now[3]} == set(ports[1:])
    assert [each.key for each in node.server.for_clients] == [
        "listen",
        "listeners.0",
        "listeners.1",
        "listeners.2",
    ]


async def test_other_settings_at_the_same_address(rig: MakeRig, mosquitto: Mosquitto, pki: Pki) -> None:
    """From TCP to a trusted proxy to TLS at one port, which is never closed meanwhile."""
    node, port = await rig(mosquitto.address), free_port()
    await node.reload(listeners=[at(port)])
    plain = await node.talker(port)
    await node.reload(listeners=[at(port, proxy={"trust": ["192.0.2.1"]})])
    assert await (await node.talker(port)).lives()
    await node.reload(listeners=[at(port, proxy={"trust": [LOOPBACK], "timeout": 5})])
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    writer.write(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00")
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await asyncio.wait_for(reader.readexactly(1), WAIT)  # no header
    writer.close()
    lines = await node.reload(listeners=[secure(port, pki.server("here"))])
    assert lines == [
        f"- listeners[{LOOPBACK}:{port}]: {LOOPBACK}:{port}",
        f"+ listeners[public]: mqtts://{LOOPBACK}:{port}",
    ]
    assert await (await node.talker(port, pki.trusting())).lives()
    assert await plain.lives()


async def test_a_unix_socket_with_other_settings_stays_where_it_is(
    rig: MakeRig, mosquitto: Mosquitto, tmp_path: Path
) -> None:
    node, path = await rig(mosquitto.address), tmp_path / "m.sock"
    listener = {"url": f"unix:{path}", "name": "local"}
    await node.reload(listeners=[listener])

    async def talker() -> Talker:
        made = Talker(*await asyncio.open_unix_connection(path))
        await made.greet("unix")
        return made

    before = await talker()
    await node.reload(listeners=[{**listener, "name": "renamed"}])
    assert await before.lives()
    after = await talker()
    assert await after.lives()
    await node.reload(listeners=[])
    assert not path.exists()
    before.close()
    after.close()


async def test_other_files_of_certificates(rig: MakeRig, mosquitto: Mosquitto, pki: Pki) -> None:
    node, port = await rig(mosquitto.address), free_port()
    await node.reload(listeners=[secure(port, pki.server("first"))])
    before = await node.talker(port, pki.trusting())
    listener = next(each for each in node.server.for_clients if each.port == port)
    lines = await node.reload(listeners=[secure(port, pki.server("second"))])
    assert [line.split(":")[0] for line in lines] == [
        "listeners[public].tls.cert",
        "listeners[public].tls.key",
    ]
    after = await node.talker(port, pki.trusting())
    assert before.serial != after.serial
    assert await before.lives()
    assert listener in list(node.server.for_clients), "only its certificate has changed"


async def test_files_of_the_same_name_that_hold_something_else(
    rig: MakeRig, mosquitto: Mosquitto, pki: Pki, tmp_path: Path
) -> None:
    """Without waiting for ``watch``."""
    here = {"cert": str(tmp_path / "n.crt"), "key": str(tmp_path / "n.key")}

    def put(name: str) -> None:
        shown = pki.server(name)
        for which, path in here.items():
            shutil.copy(shown[which], path)

    put("third")
    port = free_port()
    node = await rig(mosquitto.address, listeners=[secure(port, here, watch=86400)])
    before = await node.talker(port, pki.trusting())
    put("fourth")
    assert await node.reload() == ["listeners.0.tls: the certificates in use -> those in its files now"]
    after = await node.talker(port, pki.trusting())
    assert before.serial != after.serial
    assert await before.lives()
    assert await node.reload() == []


async def test_an_authority_that_is_no_longer_trusted_lets_nobody_in(
    rig: MakeRig, mosquitto: Mosquitto, pki: Pki, tmp_path: Path
) -> None:
    shown, other = pki.server("guarded"), Pki(tmp_path / "other", "other")
    client, port = pki.issue("client"), free_port()
    node = await rig(mosquitto.address)
    trusted = {"ca": str(pki.ca), "verify": "require"}
    await node.reload(listeners=[secure(port, shown, **trusted)])
    before = await node.talker(port, pki.trusting(client))
    await node.reload(listeners=[secure(port, shown, **{**trusted, "ca": str(other.ca)})])
    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
        await node.talker(port, pki.trusting(client))
    assert node.counted("tls_handshakes_failed") == 1
    assert await before.lives()


@pytest.mark.parametrize("kind", ["certificate", "listener"])
async def test_ten_changes_while_clients_connect_fail_nobody(
    rig: MakeRig, mosquitto: Mosquitto, pki: Pki, kind: str
) -> None:
    """Of the certificate alone, and of the whole listener in its place."""
    shown, port = [pki.server("even"), pki.server("odd")], free_port()
    node = await rig(mosquitto.address, listeners=[secure(port, shown[0])])
    first = await node.talker(port, pki.trusting())
    done = asyncio.Event()

    async def connect(name: str) -> int:
        made = 0
        while not done.is_set():
            talker = await Talker.connect(port, f"{name}-{made}", pki.trusting())
            assert await talker.lives()
            talker.close()
            made += 1
        return made

    talkers = [asyncio.create_task(connect(f"{kind}-{number}")) for number in range(4)]
    for number in range(1, 11):
        listener = secure(port, shown[number % 2])
        if kind == "listener":
            listener["name"] = f"number-{number}"
        assert await node.reload(listeners=[listener])
        await handshakes(node, 8)
    done.set()
    made = await asyncio.gather(*talkers)
    assert sum(made) >= 80
    assert node.counted("tls_handshakes_failed") == 0
    assert node.counted("config_reloads_applied") == 10
    assert await first.lives()


async def handshakes(node: Rig, number: int) -> None:
    """Wait until so many more clients have come."""
    wanted = node.counted("clients_connected") + number
    await until(lambda: node.counted("clients_connected") >= wanted)


async def test_who_is_in_the_handshake_gets_to_its_end(rig: MakeRig, mosquitto: Mosquitto, pki: Pki) -> None:
    node, port = await rig(mosquitto.address), free_port()
    await node.reload(listeners=[secure(port, pki.server("leaving"))])
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    listener = next(each for each in node.server.for_clients if each.port == port)
    await until(lambda: listener.busy)
    await node.reload(listeners=[])
    await asyncio.wait_for(writer.start_tls(pki.trusting(), server_hostname="localhost"), WAIT)
    talker = Talker(reader, writer)
    await talker.greet("late")
    assert await talker.lives()
    assert await node.refuses(port)
    talker.close()


async def test_a_certificate_of_another_node_is_warned_of_as_before_a_start(rig: MakeRig, pki: Pki) -> None:
    own, other = pki.node("node"), pki.node("other")
    node = await rig(algorithm="pf", link={"listen": None, "tls": own})
    node.write(link={"tls": other})
    for dry_run in (True, False):
        (warning,) = (await node.server.reloader.reload(dry_run))["warnings"]
        assert warning.startswith("link.tls.cert: ")
        assert "is for other, not for this node" in warning

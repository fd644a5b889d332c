"""``ildm upgrade``: a new process takes the node over, with clients of a real broker under traffic."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ildm.admin.view import AdminError
from ildm.mqtt import Connect, Properties, Property, PubAck, Publish, Version, Will, decode
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.ports import free_port
from tests.net.transport.pki import Pki
from tests.sites.client import Client, within
from tests.support.brokers import Fleet

PUBLISHERS = 100
MESSAGES = 60
"""Of each publisher and QoS."""
PAIRS = 10
"""Publishers of each of two sites."""
KEEP_ALIVE = 600
"""Seconds; these clients send no PINGREQ, however long a busy machine takes."""
AWAY = 20
"""Clients that are sent away."""


class Node(NodeProcess):
    """Starts the next process with what a test wants in its environment."""

    def __init__(
        self, directory: Path, broker: tuple[str, int], algorithm: str | None = "sf", **options: Any
    ) -> None:
        directory.mkdir(exist_ok=True)
        super().__init__(directory, broker, algorithm, **options)
        self.variables: dict[str, str] = {}

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **self.variables}

    async def upgrade(self, python: str | None = None) -> dict[str, Any]:
        return await asyncio.to_thread(self.admin.upgrade, python, 60.0)


@pytest.fixture
def node(fleet: Fleet, tmp_path: Path) -> Iterator[Node]:
    broker = fleet.shared("mosquitto")
    node = Node(tmp_path / "node", broker.address)
    yield node
    node.kill()


async def _traffic(node: Node, root: str, pairs: int) -> tuple[list[Client], list[Client]]:
    versions = (Version.V311, Version.V5)
    subscribers, publishers = [], []
    for index in range(pairs):
        version = versions[index % 2]
        subscriber = await Client.connect(
            node.address, f"{root}-s{index}", version=version, keep_alive=KEEP_ALIVE
        )
        await subscriber.subscribe((f"{root}/{index}/#", 2))
        subscribers.append(subscriber)
        publishers.append(
            await Client.connect(node.address, f"{root}-p{index}", version=version, keep_alive=KEEP_ALIVE)
        )
    return subscribers, publishers


async def _publish(publisher: Client, root: str, index: int) -> None:
    for number in range(MESSAGES):
        for qos in (0, 1, 2):
            await publisher.publish(f"{root}/{index}/{qos}", b"%d" % number, qos)
        await asyncio.sleep(0.01)


async def _all_came(subscribers: list[Client], root: str) -> None:
    """Each message once, and in order."""
    for index, subscriber in enumerate(subscribers):
        got = await subscriber.receive_all(3 * MESSAGES)
        for qos in (0, 1, 2):
            payloads = [each.payload for each in got if each.topic == f"{root}/{index}/{qos}"]
            assert payloads == [b"%d" % number for number in range(MESSAGES)], (index, qos)
        assert subscriber.waiting == 0


async def test_clients_stay_connected_and_nothing_is_lost_or_comes_twice(node: Node, topic_root: str) -> None:
    await asyncio.to_thread(node.start)
    first = await asyncio.to_thread(node.pids)
    subscribers, publishers = await _traffic(node, topic_root, PUBLISHERS)
    traffic = [
        asyncio.create_task(_publish(publisher, topic_root, index))
        for index, publisher in enumerate(publishers)
    ]
    await asyncio.sleep(0.3)
    told = await node.upgrade()
    assert told["clients"] == 2 * PUBLISHERS
    assert told["sent_away"] == 0
    assert told["pid"] not in first
    await within(asyncio.gather(*traffic), "the end of the traffic")
    await _all_came(subscribers, topic_root)
    assert not any(client.closed.is_set() for client in (*subscribers, *publishers))
    status = await asyncio.to_thread(node.admin.status)
    assert status["clients"] == 2 * PUBLISHERS
    assert status["counters"]["clients_handed_over"] == 2 * PUBLISHERS
    again = await node.upgrade()
    assert again["clients"] == 2 * PUBLISHERS
    await publishers[0].publish(f"{topic_root}/0/1", b"after", 1)
    assert (await subscribers[0].receive()).payload == b"after"


KILL = """
import os, signal
if "ILDM_UPGRADE_FD" in os.environ:
    step = open(os.path.join(os.path.dirname(__file__), "step")).read()
    def die(word):
        if word == step:
            os.kill(os.getpid(), signal.SIGKILL)
    if step == "begin":
        die("begin")
    from ildm.net.handover.channel import Channel
    from ildm.net.handover.estate import Estate
    from ildm.state.store import StateStore
    for owner, name, word in ((Estate, "restore", "restore"), (StateStore, "__init__", "open")):
        def later(*args, original=getattr(owner, name), word=word, **kwargs):
            found = original(*args, **kwargs)
            die(word)
            return found
        setattr(owner, name, later)
    received, sent = Channel.receive, Channel.send
    def receive(self, timeout):
        message = received(self, timeout)
        die(message.word)
        return message
    def send(self, word, *args, **kwargs):
        sent(self, word, *args, **kwargs)
        die("after " + word)
    Channel.receive, Channel.send = receive, send
"""
"""Ends the next process at a step."""
STEPS = ["begin", "after ready", "known", "listening", "clients", "yours", "open", "restore"]


async def test_a_next_process_that_is_killed_at_any_step_leaves_the_node_working(
    fleet: Fleet, tmp_path: Path, topic_root: str
) -> None:
    patches = tmp_path / "patches"
    patches.mkdir()
    (patches / "sitecustomize.py").write_text(KILL)
    node = Node(tmp_path / "node", fleet.shared("mosquitto").address, python_path=patches)
    await asyncio.to_thread(node.start)
    try:
        [pid] = await asyncio.to_thread(node.pids)
        subscribers, publishers = await _traffic(node, topic_root, 5)
        traffic = [
            asyncio.create_task(_publish(publisher, topic_root, index))
            for index, publisher in enumerate(publishers)
        ]
        for step in STEPS:
            (patches / "step").write_text(step)
            with pytest.raises(AdminError, match="SIGKILL"):
                await node.upgrade()
            assert await asyncio.to_thread(node.pids) == [pid]
            await publishers[0].publish(f"{topic_root}/extra", step.encode(), 1)
        (patches / "step").write_text("none")
        assert (await node.upgrade())["clients"] == 10
        await within(asyncio.gather(*traffic), "the end of the traffic")
        await _all_came(subscribers, topic_root)
        assert not any(client.closed.is_set() for client in (*subscribers, *publishers))
    finally:
        await asyncio.to_thread(node.kill)


async def test_a_configuration_that_cannot_be_used_leaves_the_node_as_it_is(
    node: Node, topic_root: str
) -> None:
    await asyncio.to_thread(node.start)
    pids = await asyncio.to_thread(node.pids)
    client = await Client.connect(node.address)
    await client.subscribe((topic_root, 1))
    file = node.directory / "node.yaml"
    right = file.read_text()
    for wrong, says in (
        (right + "\nnonsense: 1\n", "nonsense"),
        (right.replace("algorithm: sf", "algorithm: no_such"), "no_such"),
        (right.replace("state_dir: ", "state_dir: /tmp"), "state_dir"),
    ):
        file.write_text(wrong)
        with pytest.raises(AdminError, match=says):
            await node.upgrade()
    file.write_text(right)
    with pytest.raises(AdminError, match="/no/such/python"):
        await node.upgrade("/no/such/python")
    assert await asyncio.to_thread(node.pids) == pids
    status = await asyncio.to_thread(node.admin.status)
    assert status["counters"].get("handover_failed", 0) == 0
    await client.publish(topic_root, b"still here", 1)
    assert (await client.receive()).payload == b"still here"


KEY = b"\x01\xfe\x33\x80"


def _masked(payload: bytes) -> bytes:
    """A binary frame of a WebSocket client (RFC 6455, 5.3)."""
    assert len(payload) < 126
    covered = bytes(byte ^ KEY[place % 4] for place, byte in enumerate(payload))
    return bytes((0x82, 0x80 | len(payload))) + KEY + covered


async def _open_websocket(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"GET /mqtt HTTP/1.1\r\nHost: node\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
    )
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def _payload(reader: asyncio.StreamReader) -> bytes:
    """Of the next frame, which is short."""
    head = await within(reader.readexactly(2), "a frame")
    assert head[1] < 126
    return await within(reader.readexactly(head[1]), "its payload")


async def test_a_websocket_client_stays_connected_within_its_frame(
    fleet: Fleet, tmp_path: Path, topic_root: str
) -> None:
    """Each upgrade meets it at another byte: in a header, a mask, a payload."""
    plain, port = free_port(), free_port()
    listeners = [{"url": f"mqtt://127.0.0.1:{plain}"}, {"url": f"ws://127.0.0.1:{port}"}]
    node = Node(tmp_path / "node", fleet.shared("mosquitto").address, extra={"listeners": listeners})
    del node.document["listen"]
    await asyncio.to_thread(node.start)
    try:
        watcher = await Client.connect(("127.0.0.1", plain))
        await watcher.subscribe((f"{topic_root}/#", 1))
        reader, writer = await _open_websocket(port)
        will = Will(topic=f"{topic_root}/will", payload=b"gone")
        writer.write(_masked(Connect(client_id="web", version=Version.V5, will=will).encode()))
        assert (await _payload(reader))[0] == 0x20
        for packet_id, cut in enumerate((1, 4, 9), start=1):
            message = Publish(topic=f"{topic_root}/web", payload=b"%d" % cut, qos=1, packet_id=packet_id)
            framed = _masked(message.encode(Version.V5))
            writer.write(framed[:cut])
            told = await node.upgrade()
            assert (told["clients"], told["sent_away"]) == (2, 0)
            writer.write(framed[cut:])
            answer = decode(await _payload(reader), Version.V5)
            assert isinstance(answer, PubAck)
            assert answer.packet_id == packet_id
            assert (await watcher.receive()).payload == b"%d" % cut
        writer.write(b"\x89\x81" + bytes(4) + b"?")  # a PING of WebSocket
        assert await _payload(reader) == b"?"
        writer.write(b"\x88\x80" + bytes(4))  # and CLOSE
        await within(reader.read(), "the end")
        assert (await watcher.receive()).payload == b"gone"
        writer.close()
    finally:
        await asyncio.to_thread(node.kill)


async def test_tls_clients_are_sent_away_at_their_rate_and_come_back(
    fleet: Fleet, tmp_path: Path, topic_root: str
) -> None:
    """Plain clients stay meanwhile. No will is sent, and what waits for a persistent session comes later."""
    pki = Pki(tmp_path)
    plain, secure = free_port(), free_port()
    listeners = [
        {"url": f"mqtt://127.0.0.1:{plain}"},
        {"url": f"mqtts://127.0.0.1:{secure}", "tls": pki.server()},
    ]
    extra = {"listeners": listeners, "limits": {"drain_rate": 20}}
    node = Node(tmp_path / "node", fleet.shared("mosquitto").address, extra=extra)
    del node.document["listen"]
    await asyncio.to_thread(node.start)

    async def connect(index: int) -> Client:
        version = (Version.V311, Version.V5)[index % 2]
        properties: Properties = {Property.SESSION_EXPIRY_INTERVAL: 600} if version is Version.V5 else {}
        return await Client.connect(
            ("127.0.0.1", secure),
            f"{topic_root}-t{index}",
            version=version,
            clean=False,
            will=Will(topic=f"{topic_root}/will", payload=b"gone"),
            properties=properties,
            tls=pki.trusting(),
        )

    try:
        watcher = await Client.connect(("127.0.0.1", plain))
        await watcher.subscribe((f"{topic_root}/#", 1))
        away = [await connect(index) for index in range(AWAY)]
        for index, client in enumerate(away):
            await client.subscribe((f"{topic_root}/{index}", 1))
        begun = asyncio.get_running_loop().time()
        upgrade = asyncio.create_task(node.upgrade())
        for client in away:
            await client.wait_closed()
        took = asyncio.get_running_loop().time() - begun
        assert took > (AWAY - 2 * AWAY // 10) / 20  # the first ones go at once
        for client in away:
            if client.version is Version.V5:
                assert client.end is not None
                assert client.end.reason_code == 0x8B
        told = await upgrade
        assert (told["clients"], told["sent_away"]) == (1, AWAY)
        for index in range(AWAY):
            await watcher.publish(f"{topic_root}/{index}", b"%d" % index, 1)
        back = [await connect(index) for index in range(AWAY)]
        for index, client in enumerate(back):
            assert client.connack.session_present
            assert (await client.receive()).payload == b"%d" % index
        await watcher.publish(f"{topic_root}/end", b"end", 1)
        assert {each.topic for each in await watcher.receive_until(b"end")} == {
            f"{topic_root}/{index}" for index in range(AWAY)
        }
        counters = (await asyncio.to_thread(node.admin.status))["counters"]
        assert (counters["clients_handed_over"], counters["clients_sent_away"]) == (1, AWAY)
    finally:
        await asyncio.to_thread(node.kill)


@pytest.mark.parametrize("upgraded", [0, 1])
async def test_messages_between_sites_cross_once_and_in_order(
    fleet: Fleet, tmp_path: Path, topic_root: str, upgraded: int
) -> None:
    """Both ways over a link of two sites, QoS 1 and 2, while one of them is upgraded three times."""
    dialed = Node(tmp_path / "a", fleet.shared("mosquitto").address, node_id="a")
    link = {"neighbors": [dialed.link_address]}
    dialing = Node(tmp_path / "b", fleet.shared("mosquitto", 1).address, node_id="b", link=link)
    nodes = [dialed, dialing]
    try:
        for node in nodes:
            await asyncio.to_thread(node.start)
        await asyncio.to_thread(dialed.wait_linked, dialing)
        versions = (Version.V311, Version.V5)
        listeners = [
            await Client.connect(node.address, f"{topic_root}-s{index}-{version}", version=version)
            for index, node in enumerate(nodes)
            for version in versions
        ]
        for index, listener in enumerate(listeners):
            await listener.subscribe((f"{topic_root}/{1 - index // 2}/#", 2))
        publishers = [
            [await Client.connect(node.address, version=versions[number % 2]) for number in range(PAIRS)]
            for node in nodes
        ]
        stop = asyncio.Event()

        async def publish(site: int, number: int) -> int:
            count = 0
            while not stop.is_set() or count < MESSAGES:
                for qos in (1, 2):
                    await publishers[site][number].publish(
                        f"{topic_root}/{site}/{number}/{qos}", b"%d" % count, qos
                    )
                count += 1
            return count

        traffic = [asyncio.create_task(publish(site, number)) for site in range(2) for number in range(PAIRS)]
        for _ in range(3):
            await asyncio.sleep(0.3)
            assert (await nodes[upgraded].upgrade())["sent_away"] == 0
        stop.set()
        counts = await within(asyncio.gather(*traffic), "the end of the traffic")
        for index, listener in enumerate(listeners):
            site = 1 - index // 2
            sent = {number: counts[site * PAIRS + number] for number in range(PAIRS)}
            awaited = {
                (f"{topic_root}/{site}/{number}/{qos}", b"%d" % at)
                for number, count in sent.items()
                for qos in (1, 2)
                for at in range(count)
            }
            got: dict[str, list[bytes]] = {topic: [] for topic, _ in awaited}
            while awaited or listener.waiting:
                message = await listener.receive()
                got[message.topic].append(message.payload)
                awaited.discard((message.topic, message.payload))
            for topic, payloads in got.items():
                assert payloads == [b"%d" % at for at in range(len(payloads))], topic
            assert not listener.closed.is_set()
    finally:
        for node in nodes:
            await asyncio.to_thread(node.kill)

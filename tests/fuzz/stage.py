"""A node in virtual time between peers that keep what it says to them: where byte streams are given to it.

Everything that a node sends has to be right, whatever it gets: each of the peers reads it as strictly as
:func:`ildm.mqtt.decode` does, and fails if it cannot.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from ildm.config import Address, Config
from ildm.core.link.hello import Hello
from ildm.core.link.session import LinkSession
from ildm.core.local.client_session import ClientSession
from ildm.core.node import Node
from ildm.mqtt import (
    ConnAck,
    Connect,
    Framer,
    Packet,
    PacketType,
    PingReq,
    PingResp,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
    decode,
)
from ildm.state.spool import FileSpool
from ildm.testing.virtual.broker import Broker
from ildm.testing.virtual.disk import SimDisk
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.node import plugin_specs
from ildm.testing.virtual.pipe import Pipe
from ildm.testing.virtual.store import MemoryStore
from ildm.testing.virtual.world import World
from tests.hostile.arena import LIMITS, LINK
from tests.hostile.bounds import allowed
from tests.support.kept import kept
from tests.support.site import ALGORITHMS

CLIENTS, LINKS, BROKER = Address("a", 1), Address("a", 2), Address("a", 3)
CONFIG = Config.model_validate(
    {
        "listen": str(CLIENTS),
        "broker": {
            "address": str(BROKER),
            "reconnect_min": 0.05,
            "reconnect_max": 0.1,
            "connack_timeout": 0.5,
            "audit": False,
        },
        "link": {
            **LINK,
            "listen": None,
            "settle": 0.01,
            "subscribe_wait": 0.05,
            "keep_alive": 60,
            "inflight": 2000,  # more than an input has, so that the cuts do not decide what is too much
        },
        "spool": {"mode": "process", "bytes": 4 << 20, "segment_bytes": 64 << 10},
        "limits": {**LIMITS, "connect_timeout": 0.5, "will_grace": 0.5},
    }
)
AT_REST = 10.0
"""Seconds within which a node has nothing left in its spool for those who take it."""
EVENTS = 3000
"""What one input may make happen, beside an event for each of its bytes: more is a storm."""
HARMLESS = (
    "two nodes seem",
    "another node seems",
    "broker broke the protocol",
    "message dropped: the far end",
)
"""How events begin that a node may log as errors: they speak of others, who are to blame."""


class Peer:
    """An end of a connection that keeps what it gets."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.got = bytearray()
        self.closed = False

    def connection_made(self, transport: Pipe) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data

    def eof_received(self) -> None:
        pass

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass

    def send(self, *packets: Packet, version: Version = Version.V5) -> None:
        self.transport.write(b"".join(packet.encode(version) for packet in packets))


class Neighbor(Peer):
    """A node that dials ours, and says what a node says; ``answers``: also to what it gets."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__()
        self.world = world
        self.name = name
        self.messages: list[tuple[object, ...]] = []
        """What has crossed to it."""
        self.answers = True
        self._sequence = 0
        self._told = 0
        self._framer = Framer()
        self._hello = Hello(name, 1, "sf", 1, 0, f"{name} and a", inflight_bytes=1 << 20)

    def dial(self) -> None:
        self.closed = False
        self.got.clear()
        self._framer = Framer()
        self._told = 0
        self.world.connect(LINKS, self, self.name)

    def connection_made(self, transport: Pipe) -> None:
        super().connection_made(transport)
        properties: Any = {
            Property.USER_PROPERTY: self._hello.properties(),
            Property.RECEIVE_MAXIMUM: 1000,
            Property.MAXIMUM_PACKET_SIZE: 1 << 20,
        }
        self.send(
            Connect(client_id=f"{self.name}/0", version=Version.V5, clean_start=True, properties=properties)
        )

    def join(self, age: int) -> list[Packet]:
        """What it says to take the link for part of the cooperation."""
        self._sequence += 1
        news = b'["%s", 1, %d, {"a": %d}]' % (self.name.encode(), self._sequence, age)
        return [
            Publish(topic="$ildm/topology", payload=news),
            Publish(topic="$ildm/ready", payload=b"1 %d" % self._sequence),
        ]

    def data_received(self, data: bytes) -> None:
        answers: list[Packet] = []
        for frame in self._framer.feed(data):
            packet = decode(frame, Version.V5)
            if type(packet) is Publish and not packet.topic.startswith("$ildm/"):  # most are that
                properties = sorted(packet.properties.items())
                self.messages.append((packet.topic, packet.payload, packet.qos, packet.retain, properties))
                packet_id = packet.packet_id
                if self.answers and packet_id is not None:
                    answers.append((PubAck if packet.qos == 1 else PubRec)(packet_id=packet_id))
            elif self.answers:
                answers += self._answer(packet)
        if answers:
            self.send(*answers)

    def _answer(self, packet: Packet) -> list[Packet]:
        match packet:
            case ConnAck(reason_code=0):
                said = dict(packet.properties[Property.USER_PROPERTY])
                return self.join(int(said["age"]))
            case Publish(topic="$ildm/ready"):
                everything = [Subscription(topic_filter="#", qos=2)]
                return [
                    Subscribe(packet_id=1, subscriptions=everything),
                    Publish(topic="$ildm/synced", payload=bytes(8)),
                ]
            case Subscribe():
                self._told += 1
                codes = [0] * len(packet.subscriptions)
                return [SubAck(packet_id=packet.packet_id, reason_codes=codes), self._word()]
            case Unsubscribe():
                self._told += 1
                codes = [0] * len(packet.topic_filters)
                return [UnsubAck(packet_id=packet.packet_id, reason_codes=codes), self._word()]
            case Publish(packet_id=int() as packet_id):
                return [PubAck(packet_id=packet_id) if packet.qos == 1 else PubRec(packet_id=packet_id)]
            case PubRel():
                return [PubComp(packet_id=packet.packet_id)]
            case PingReq():
                return [PingResp()]
        return []

    def _word(self) -> Publish:
        return Publish(topic="$ildm/told", payload=b"%d" % self._told)


class Stage:
    """A node ``a`` with a broker, and neighbours that are part of the cooperation.

    Args:
        names: of the neighbours.
        broker: stands behind the node; by default a correct one.
        durable: the node has a spool.
    """

    def __init__(self, names: str = "w", broker: Broker | None = None, durable: bool = False) -> None:
        self.world = World()
        self.broker = broker or Broker()
        self.world.listen(BROKER, self.broker.connection)
        self.store = MemoryStore()
        self.disk = SimDisk() if durable else None
        self.neighbors = [Neighbor(self.world, name) for name in names]
        self.start()

    def start(self) -> None:
        """The node begins, with what earlier lives have left, and its neighbours join it."""
        self.driver = driver = WorldDriver(self.world, "a")
        specs = plugin_specs("sf", ALGORITHMS["sf"])
        spool = None
        if self.disk is not None:
            spool = FileSpool(
                self.disk,
                CONFIG.spool,
                wall=driver.wall,
                call_later=driver.call_later,
                log=driver.log,
                expiry=CONFIG.link.expiry,
            )
        counters = None if spool is None else spool.counters  # the node heeds what has been found damaged
        self.node = Node(CONFIG, specs, driver, self.store, node_id="a", counters=counters, spool=spool)
        self.world.listen(CLIENTS, lambda: ClientSession(self.node.local), driver)
        self.world.listen(LINKS, lambda: LinkSession(self.node.links, None, 0), driver)
        self.node.start({})
        for neighbor in self.neighbors:
            neighbor.dial()
        assert self.world.run_until(lambda: self.joined, 5), "the neighbours do not join"
        self.world.run(0.1)

    def restart(self) -> None:
        """The node's process is killed, and begins anew: whatever it was given, it starts."""
        self.world.kill(self.driver)
        if self.disk is not None:
            self.disk.kill()
        self.start()
        self.check()

    def check_spool(self) -> None:
        """Nothing is left in the spool once everybody has taken what was for him."""
        custody = self.node.custody
        if custody is None or not self.joined:
            return

        def empty() -> bool:
            return not custody.report().messages

        assert self.world.run_until(empty, AT_REST), custody.report()

    @property
    def joined(self) -> bool:
        """Whether all neighbours are part of the cooperation, and get every message."""
        links = self.node.links.cooperation.active
        return {link.node_id for link in links if link.connected and "#" in link.interest} >= {
            neighbor.name for neighbor in self.neighbors
        }

    def client(self, address: Address = CLIENTS) -> Peer:
        """A peer, connected."""
        peer = Peer()
        self.world.connect(address, peer)
        return peer

    def run(self, seconds: float, size: int = 0) -> None:
        """Let virtual time pass after an input of so many bytes."""
        before = self.world.events
        self.world.run(seconds)
        events = self.world.events - before
        assert events <= EVENTS + size, f"{events} events after {size} bytes"

    def check(self) -> None:
        """What must not happen, whatever others send: an error of the node's own."""
        counters = self.node.counters
        assert not counters["link_internal_errors"], "the node has got into a state that cannot be"
        for level, event, fields in self.driver.logged:
            assert level != "error" or event.startswith(HARMLESS), f"{event}: {fields}"
        self.driver.logged.clear()

    def check_memory(self) -> None:
        """A node keeps no more than its configuration lets it."""
        found, most = kept(self.node), allowed(self.node)
        assert found <= most, f"{found} bytes are kept, {most} are allowed"

    def seen(self) -> set[Hashable]:
        """What can be said of the node's life: its counters, by their order of magnitude, and its log."""
        found: set[Hashable] = {
            (name, count.bit_length()) for name, count in self.node.counters.items() if count
        }
        return found | {event for _, event, _ in self.driver.logged}


def align(stages: Sequence[Stage]) -> None:
    """Bring stages to the same time: how long they have waited for something may depend on the cuts."""
    latest = max(stage.world.time for stage in stages)
    for stage in stages:
        stage.world.run(latest - stage.world.time)


def written(pipe: Pipe) -> bytes:
    """All that was written into a pipe since the last call."""
    data = bytes(pipe.written)
    pipe.written.clear()
    return data


def same(what: str, whole: Any, cut: Any) -> None:
    """Raises: AssertionError that says where two answers, which may be long, part."""
    if whole == cut:
        return
    at = 0
    if isinstance(whole, Sequence) and isinstance(cut, Sequence):
        both = enumerate(zip(whole, cut, strict=False))
        at = next((n for n, (a, b) in both if a != b), min(len(whole), len(cut)))
        whole, cut = whole[at : at + 40], cut[at : at + 40]
    raise AssertionError(f"{what} from {at} on: {whole!r:.700} whole, {cut!r:.700} in pieces")


def same_but_late(what: str, whole: Sequence[bytes], cut: Sequence[bytes]) -> None:
    """The same for what a client gets of a node with a spool: acknowledgements wait until their messages are
    durable, may be overtaken meanwhile by what else comes, and come too late for a connection that ends."""
    acknowledging = (PacketType.PUBACK, PacketType.PUBREC)
    one, other = (
        [
            [packet for packet in packets if (packet[0] >> 4 in acknowledging) is late]
            for late in (False, True)
        ]
        for packets in (whole, cut)
    )
    same(what, one[0], other[0])
    same(f"{what}, acknowledgements", one[1][: len(other[1])], other[1][: len(one[1])])

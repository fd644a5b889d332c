"""Neighbours that misbehave: a real node joins, then somebody else speaks over its connection."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from ildm.api import STAMP_PROPERTY
from ildm.config import Address
from ildm.core.link.hello import LATEST
from ildm.mqtt import (
    Disconnect,
    Framer,
    PacketType,
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
    encode_varint,
)
from ildm.testing.virtual.pipe import Pipe
from tests.hostile.arena import LIMITS, LINK, Arena
from tests.hostile.clients import Raw
from tests.support.site import Site

Act = Callable[[Arena, "Evil", Random], None]

DAY = 86_400
YEAR = 365.25 * DAY
CONTROL = [
    f"$ildm/{name}" for name in ("topology", "ready", "weight", "algorithm", "bye", "synced", "unknown")
]


class Evil:
    """A neighbour of a site, whose connection is in wrong hands once the link is part of the tree.

    It answers what keeps the link alive, unless ``silent``; messages are acknowledged if ``acknowledges``.
    """

    def __init__(self, arena: Arena, victim: Site, algorithm: str, name: str = "evil") -> None:
        self.arena = arena
        self.world = arena.world
        self.victim = victim
        self.site = Site(self.world, name, algorithm, link=dict(LINK), limits=dict(LIMITS))
        self.site.node.links.add(Address(victim.name, 2), False)
        joined = self.world.run_until(lambda: victim.links().get(name) == "active", 5)
        assert joined, victim.links()
        self.world.run(0.5)
        driver = self.site.driver
        (self.pipe,) = [
            pipe
            for pipe in self.world.pipes
            if pipe.owner is driver and pipe.peer == f"{victim.name}:2" and not pipe.closed
        ]
        driver.dead = True
        self.silent = False
        self.acknowledges = True
        self.framer = Framer(1 << 28)
        self.packets: list[Any] = []
        self.ended = False
        self.pipe.endpoint = self
        arena.hostile.append(self.pipe)

    # the connection -------------------------------------------------------------------------------

    def connection_made(self, transport: Pipe) -> None:
        raise AssertionError("it was made before")

    def data_received(self, data: bytes) -> None:
        for frame in self.framer.feed(data):
            packet = decode(frame, Version.V5)
            self.packets.append(packet)
            answer = None if self.silent else self._answer(packet)
            if answer is not None:
                self.send(answer)

    def _answer(self, packet: Any) -> Any:
        match packet:
            case Subscribe():
                return SubAck(packet_id=packet.packet_id, reason_codes=[0] * len(packet.subscriptions))
            case Unsubscribe():
                return UnsubAck(packet_id=packet.packet_id, reason_codes=[0] * len(packet.topic_filters))
            case Publish() if packet.qos == 1 and self.acknowledges:
                return PubAck(packet_id=packet.packet_id)  # type: ignore[arg-type]
            case Publish() if packet.qos == 2 and self.acknowledges:
                return PubRec(packet_id=packet.packet_id)  # type: ignore[arg-type]
            case PubRel():
                return PubComp(packet_id=packet.packet_id)
            case _:
                return PingResp() if type(packet).__name__ == "PingReq" else None

    def eof_received(self) -> None:
        pass

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass

    def send(self, packet: Any) -> None:
        self.write(packet.encode(Version.V5))

    def write(self, data: bytes) -> None:
        self.pipe.write(data)


def stops(arena: Arena, evil: Evil, random: Random) -> None:
    """Never reads again, while everybody goes on sending to it."""
    evil.pipe.pause_reading()
    for _ in range(200):
        arena.publish(b"x" * 500)
    arena.world.run(0.1)


def reads_slowly(arena: Arena, evil: Evil, random: Random) -> None:
    evil.pipe.read_rate = 2000.0
    for _ in range(100):
        arena.publish(b"x" * 500)
    arena.world.run(0.1)


def falls_silent(arena: Arena, evil: Evil, random: Random) -> None:
    """Nothing of it arrives any more."""
    evil.pipe.mute = True
    for _ in range(50):
        arena.publish()
    arena.world.run(0.1)


def acknowledges_nothing(arena: Arena, evil: Evil, random: Random) -> None:
    """Is alive, and takes messages without a word."""
    evil.acknowledges = False
    for _ in range(300):
        arena.publish(b"x" * 300)
    arena.world.run(0.1)


def acknowledges_what_it_likes(arena: Arena, evil: Evil, random: Random) -> None:
    """Acknowledgements of all kinds, for messages that were never sent."""
    for _ in range(300):
        first, code = random.choice([0x40, 0x50, 0x62, 0x70]), random.choice([0, 0, 0, 0x92, 0x97])
        evil.write(bytes([first, 3, 0, random.randrange(1, 200), code]))
    evil.send(SubAck(packet_id=random.randrange(1, 65536), reason_codes=[0x80] * 5))
    evil.send(UnsubAck(packet_id=random.randrange(1, 65536), reason_codes=[0]))
    for _ in range(20):
        arena.publish()
    arena.world.run(0.1)


def floods(arena: Arena, evil: Evil, random: Random) -> None:
    """Messages of all kinds on topics of its own, more of them than it may have under way."""
    size = random.choice([0, 100, 3000])
    for number in range(500):
        qos = random.choice([0, 1, 2])
        packet_id = random.randrange(1, 65536) if qos else None
        retain = random.random() < 0.3
        payload = b"x" * size
        topic = f"flood/{number % 50}"
        evil.send(Publish(topic=topic, payload=payload, qos=qos, packet_id=packet_id, retain=retain))
        if number % 50 == 0:
            arena.world.run(0.002)
    arena.world.run(0.1)


def sends_garbage(arena: Arena, evil: Evil, random: Random) -> None:
    first = bytes([random.choice([0x00, 0x10, 0x20, 0x30, 0x36, 0x40, 0x62, 0x82, 0xA2, 0xC0, 0xF0, 0xFF])])
    length = random.choice([b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff\xff", encode_varint(20), b"\x00"])
    evil.write(first + length + random.randbytes(random.randrange(100)))
    arena.world.run(0.05)


def sends_other_packets(arena: Arena, evil: Evil, random: Random) -> None:
    """Packets that are well formed, and have no place on a link."""
    types = [t for t in PacketType if t not in (PacketType.PUBLISH, PacketType.DISCONNECT)]
    for _ in range(5):
        type = random.choice(types)
        evil.write(bytes([type << 4, 4]) + random.randbytes(4))
    arena.world.run(0.05)


def forges_advertisements(arena: Arena, evil: Evil, random: Random) -> None:
    """Links that are not there, of nodes that are not there; and what is no advertisement at all."""
    strange: list[Any] = [
        [],
        {},
        ["evil", 1, 1],
        ["evil", -1, -1, {"a": -1}],
        ["evil", 10**30, 10**30, {"a": 10**30}],
        ["x" * 10_000, 1, 1, {}],
        ["evil", True, False, {"a": True}],
        ["evil", 10**12, 10**6, {f"n{n}": n for n in range(1500)}],
    ]
    topic = random.choice(("$ildm/topology", "$ildm/weight"))
    if random.random() < 0.4:
        data = json.dumps(random.choice(strange)).encode()
    elif random.random() < 0.3:
        data = b"[" * 3000
    else:
        for number in range(300):
            far = {f"ghost{random.randrange(300)}": random.randrange(1000) for _ in range(5)}
            body = json.dumps([f"ghost{number}", 10**12, random.randrange(100), far]).encode()
            evil.send(Publish(topic=topic, payload=body))
        data = b"[]"
    evil.send(Publish(topic=topic, payload=data))
    arena.world.run(0.2)


def speaks_control(arena: Arena, evil: Evil, random: Random) -> None:
    """Control messages without sense and without end."""
    for _ in range(200):
        topic = random.choice(CONTROL[1:])
        payload = random.choice([b"", b"0", b"1", b"\xff" * 16, random.randbytes(16)])
        evil.send(Publish(topic=topic, payload=payload))
    arena.world.run(0.2)


def subscribes_to_everything(arena: Arena, evil: Evil, random: Random) -> None:
    """More filters than it may, deep ones and such as none covers another."""
    for start in range(0, 4000, 500):
        wanted = [Subscription(topic_filter=f"want/{n}", qos=2) for n in range(start, start + 500)]
        evil.send(Subscribe(packet_id=start + 1, subscriptions=wanted))
    deep = [f"{n}/" + "/".join("+" * 150) for n in range(60)]
    for n, topic_filter in enumerate(deep):
        evil.send(Subscribe(packet_id=n + 1, subscriptions=[Subscription(topic_filter=topic_filter, qos=1)]))
    arena.world.run(0.3)


def toggles_everything(arena: Arena, evil: Evil, random: Random) -> None:
    """Wants ``#`` and does not, over and over."""
    for number in range(100):
        wanted = [Subscription(topic_filter="#", qos=1)]
        evil.send(Subscribe(packet_id=2 * number + 1, subscriptions=wanted))
        evil.send(Unsubscribe(packet_id=2 * number + 2, topic_filters=["#"]))
    arena.world.run(0.2)


def many_properties(arena: Arena, evil: Evil, random: Random) -> None:
    users = [("", "")] * random.choice([500, LINK["packet_size"] // 6])
    for number in range(20):
        properties: dict[Property, Any] = {Property.USER_PROPERTY: users}
        evil.send(
            Publish(topic=f"flood/{number}", retain=True, qos=1, packet_id=number + 1, properties=properties)
        )
    arena.world.run(0.2)


def stamps_of_all_times(arena: Arena, evil: Evil, random: Random) -> None:
    """Retained messages which pretend to be of the future, or whose stamps are none."""
    for number in range(100):
        stamp = random.choice(["", "x", "9" * 19, "9" * 400, "-1", "1e9", f"{10**19} evil", "\u0660" * 19])
        users = [("ildm", stamp), ("ildm-stamp", stamp), ("stamp", stamp)]
        evil.send(
            Publish(
                topic=f"flood/{number}",
                retain=True,
                payload=b"x",
                properties={Property.USER_PROPERTY: users},
            )
        )
    arena.world.run(0.2)


def lies_about_the_time(arena: Arena, evil: Evil, random: Random) -> None:
    """Retained messages stamped ahead of all clocks, and clocks to go with them."""
    stamps_ahead(arena, evil, random, [1, DAY, 90 * YEAR, 100 * YEAR - 1, 100 * YEAR, 7000 * YEAR])


def stamps_ahead(arena: Arena, evil: Evil, random: Random, seconds: Sequence[float]) -> None:
    now = int(evil.site.node.driver.wall() * 1000)
    for number in range(100):
        ahead = int(random.choice(seconds))
        stamp = f"{now + 1000 * ahead}:evil" + random.choice(["", ":sync"])
        evil.send(
            Publish(
                topic=f"flood/{number % 10}",
                retain=True,
                payload=random.choice([b"", b"lie"]),
                properties={Property.USER_PROPERTY: [(STAMP_PROPERTY, stamp)]},
            )
        )
        evil.send(Publish(topic="$ildm/clock", payload=b"%d" % min(now + 1000 * ahead, LATEST)))
    arena.world.run(0.2)


def half_handshakes(arena: Arena, evil: Evil, random: Random) -> None:
    """Connections to the link's listener that go no further; this was never a neighbour's doing alone."""
    for _ in range(100):
        raw = Raw()
        local = random.choice(["evil", "other"])
        arena.hostile.append(arena.world.connect(Address(evil.victim.name, 2), raw, local))
        if random.random() < 0.5:
            raw.transport.write(b"\x10\xff\x7f" + random.randbytes(20))
    arena.world.run(0.1)


def says_good_bye(arena: Arena, evil: Evil, random: Random) -> None:
    code = random.choice([0x00, 0x04, 0x81, 0x8B, 0x93, 0x98])
    evil.send(Disconnect(reason_code=code, properties={Property.REASON_STRING: "x" * 500}))
    arena.world.run(0.1)


ACTS: dict[str, Act] = {
    act.__name__: act
    for act in (
        stops,
        reads_slowly,
        falls_silent,
        acknowledges_nothing,
        acknowledges_what_it_likes,
        floods,
        sends_garbage,
        sends_other_packets,
        forges_advertisements,
        speaks_control,
        subscribes_to_everything,
        toggles_everything,
        many_properties,
        stamps_of_all_times,
        lies_about_the_time,
        half_handshakes,
        says_good_bye,
    )
}

"""Local clients that send without end, and what an innocent one notices, counted in bytes of the flood."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios

import pytest

from ildm.mqtt import ConnAck, Connect, Publish, Subscribe, Subscription, Version
from tests.sites.client import until
from tests.sites.conftest import Sites
from tests.sites.site import Site, join, settled

FLOODERS = 20
EACH = 400_000
"""Bytes that one of them sends; the system takes them all before the node reads any."""
ROUNDS = 5
RECEIVED = 128
"""Offset of ``tcpi_bytes_received`` in TCP_INFO (tcp(7), linux/tcp.h)."""


def publish(n: int) -> bytes:
    return Publish(topic=f"flood/{n}", qos=2, packet_id=n).encode(Version.V311)


def subscribe(n: int) -> bytes:
    wanted = [Subscription(topic_filter=f"flood/{n}", qos=0)]
    return Subscribe(packet_id=n, subscriptions=wanted).encode(Version.V311)


FLOODS = {"QoS 2, never released": publish, "SUBSCRIBE": subscribe}
"""What costs the node most."""


class Flooder:
    """A connection with all of its flood on the way, before the loop turns."""

    def __init__(self, sock: socket.socket, near: socket.socket) -> None:
        self._sock = sock
        self._near = near

    @classmethod
    async def connect(cls, site: Site, name: str) -> Flooder:
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        sock.setblocking(False)
        await loop.sock_connect(sock, site.address)
        await loop.sock_sendall(sock, Connect(client_id=name).encode(Version.V311))
        answer = await loop.sock_recv(sock, 4)
        assert answer == ConnAck().encode(Version.V311)
        session = next(each for each in site.node.sessions if each.client_id == name)
        assert session.transport is not None
        return cls(sock, session.transport.get_extra_info("socket"))

    def send(self, packets: bytes) -> int:
        """As much as the system takes."""
        sent = 0
        while sent < len(packets):
            try:
                sent += self._sock.send(packets[sent : sent + 65536])
            except BlockingIOError:
                break
        return sent

    @property
    def read(self) -> int:
        """Bytes that the node has read."""
        info = self._near.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, RECEIVED + 8)
        (received,) = struct.unpack_from("Q", info, RECEIVED)
        (unread,) = struct.unpack("i", fcntl.ioctl(self._near, termios.FIONREAD, bytes(4)))
        return int(received) - int(unread)

    def close(self) -> None:
        self._sock.close()


@pytest.mark.parametrize("flood", FLOODS)
async def test_an_innocent_is_served_amid_a_flood(sites: Sites, flood: str, topic_root: str) -> None:
    here, there = [await sites.make(await sites.own_broker("mosquitto"), "sf") for _ in range(2)]
    await join(there, here)
    near, far = await here.connect(), await there.connect()
    await far.subscribe((topic_root, 1))
    await settled(here, there)
    flooders = [await Flooder.connect(here, f"flood-{number}") for number in range(FLOODERS)]
    packets = b"".join(FLOODS[flood](n % 65535 + 1) for n in range(EACH // len(FLOODS[flood](1))))
    try:
        sent = sum(each.send(packets[:EACH]) for each in flooders)
        assert sent > FLOODERS * EACH // 4
        begun = before = sum(each.read for each in flooders)
        for number in range(ROUNDS):
            await near.publish(topic_root, b"%d" % number, 1)
            assert (await far.receive()).payload == b"%d" % number
            read = sum(each.read for each in flooders)
            assert read - before < sent // 20, "so much of the flood was dealt with meanwhile"
            before = read
        assert before > begun, "the flood goes on, too"
    finally:
        for each in flooders:
            each.close()
        await until(lambda: len(here.node.sessions) == 1, "the flood's end")

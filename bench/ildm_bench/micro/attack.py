"""Clients that flood one address as fast as it takes what they send, each in one way; they never wait.

They are one process without an event loop, so that their rate is bounded by the address and not by them.
"""

from __future__ import annotations

import argparse
import secrets
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ildm.core.link.handshake import DialerHandshake, Terms
from ildm.core.link.hello import NONCE, Hello, Refusal
from ildm.core.link.interest import FILTERS_PER_PACKET
from ildm.mqtt import (
    Connect,
    Disconnect,
    Framer,
    Publish,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
    decode,
)

CHUNK = 20_000
"""Bytes sent to one socket in a row."""
ALGORITHM = "sf"
"""Of the node whose neighbour the peer of a link is."""
PACKET_SIZE = 1 << 20
PACKETS = 2000
"""In what a client sends over and over."""


def publishes(qos: int, number: int) -> bytes:
    """Small messages of one client; those of QoS 2 are never released."""
    ids = range(1, PACKETS + 1)
    topic = f"flood/{number % 10}"
    messages = (Publish(topic=topic, payload=b"x", qos=qos, packet_id=each if qos else None) for each in ids)
    return b"".join(message.encode(Version.V311) for message in messages)


def subscriptions(number: int) -> bytes:
    """One SUBSCRIBE and one UNSUBSCRIBE for each of many filters."""
    packets: list[Subscribe | Unsubscribe] = []
    for each in range(1, PACKETS, 2):
        topic_filter = f"attack/{number}/{each}"
        wanted = [Subscription(topic_filter=topic_filter, qos=1)]
        packets.append(Subscribe(packet_id=each, subscriptions=wanted))
        packets.append(Unsubscribe(packet_id=each + 1, topic_filters=[topic_filter]))
    return b"".join(packet.encode(Version.V311) for packet in packets)


def interest(number: int) -> bytes:
    """As many filters in a packet as a neighbour may send, all wanted and then none."""
    names = range(FILTERS_PER_PACKET)
    every = [[f"interest/{number}/{each}/{name}" for name in names] for each in range(40)]
    packets: list[Subscribe | Unsubscribe] = []
    for each, filters in enumerate(every, 1):
        wanted = [Subscription(topic_filter=topic_filter, qos=1) for topic_filter in filters]
        packets.append(Subscribe(packet_id=each, subscriptions=wanted))
    packets += [Unsubscribe(packet_id=each, topic_filters=filters) for each, filters in enumerate(every, 101)]
    return b"".join(packet.encode(Version.V5) for packet in packets)


FLOODS: dict[str, Callable[[int], bytes]] = {
    "publish-0": lambda number: publishes(0, number),
    "publish-1": lambda number: publishes(1, number),
    "publish-2": lambda number: publishes(2, number),
    "subscribe": subscriptions,
    "interest": interest,
    "connect": lambda _: b"",
}
LINK_KIND = "interest"
"""The address is one for neighbours: the attacker is the peer of a link."""


class Attacker:
    """One client, and what it has still to send of what it sends over and over."""

    def __init__(self, address: tuple[str, int], kind: str, number: int) -> None:
        self._address = address
        self._name = f"attacker-{number}"
        self._leaves = kind == "connect"
        self._flood = FLOODS[kind](number)
        self.ended = False
        """The address has closed its connection: it comes again when it may."""
        self._begin()

    def _begin(self) -> None:
        self.socket = socket.create_connection(self._address)
        self.socket.setblocking(False)
        self._accepted = False
        self._rest = memoryview(self._hello())

    def _hello(self) -> bytes:
        return Connect(client_id=self._name, keep_alive=0).encode()

    def ready(self, events: int) -> None:
        """Read what is there, and send what is taken."""
        try:
            if events & ~select.EPOLLOUT:
                self._read()
            if events & select.EPOLLOUT and not self.ended:
                self._send()
        except BlockingIOError:
            return
        except OSError:
            self.ended = True

    def _read(self) -> None:
        data = self.socket.recv(1 << 16)
        if not data:
            self.ended = True
        elif not self._accepted:
            self._accepted = self._answered(data)
            if self._leaves:
                self.socket.send(Disconnect().encode(Version.V311))
                self.ended = True

    def _answered(self, data: bytes) -> bool:
        """Whether the address has accepted it."""
        return True

    def _send(self) -> None:
        if not self._rest and self._accepted:
            self._rest = memoryview(self._flood)
        if self._rest:
            self._rest = self._rest[self.socket.send(self._rest[:CHUNK]) :]

    @property
    def wanted(self) -> int:
        """What it waits for."""
        sends = self._rest or (self._accepted and self._flood)
        return select.EPOLLIN | (select.EPOLLOUT if sends else 0)

    def again(self) -> None:
        """Another connection in place of the one that has ended."""
        self.socket.close()
        self.ended = False
        self._begin()


class LinkPeer(Attacker):
    """One neighbour, which says what a node says when it dials, and then nothing but interest."""

    def _hello(self) -> bytes:
        terms = Terms(self._name, None, 0, 100, PACKET_SIZE)
        begun = int(1000 * time.time())
        hello = Hello(self._name, begun, ALGORITHM, 1, 0, secrets.token_hex(8), address=f"{self._name}:1")
        self._handshake = DialerHandshake(terms, hello, secrets.token_bytes(NONCE), lambda _: None)
        self._framer = Framer(PACKET_SIZE)
        return self._handshake.start()

    def _answered(self, data: bytes) -> bool:
        """Raises: RuntimeError, the node does not want it."""
        for frame in self._framer.feed(data):
            if self._handshake.outcome is None:
                self._handshake.receive(decode(frame, Version.V5), frame)
        outcome = self._handshake.outcome
        if isinstance(outcome, Refusal):
            raise RuntimeError(f"the node refuses the attacker: {outcome.text}")
        return outcome is not None


def attack(address: tuple[str, int], kind: str, clients: int) -> None:
    """Without end."""
    made = LinkPeer if kind == LINK_KIND else Attacker
    poll = select.epoll()
    every: dict[int, Attacker] = {}
    masks: dict[int, int] = {}

    def watch(attacker: Attacker) -> None:
        fd, mask = attacker.socket.fileno(), attacker.wanted
        every[fd], masks[fd] = attacker, mask
        poll.register(fd, mask)

    for number in range(clients):
        watch(made(address, kind, number))
    print("attacking", flush=True)
    while True:
        for fd, events in poll.poll():
            attacker = every[fd]
            attacker.ready(events)
            if attacker.ended:
                poll.unregister(fd)
                del every[fd], masks[fd]
                attacker.again()
                watch(attacker)
            elif attacker.wanted != masks[fd]:
                masks[fd] = attacker.wanted
                poll.modify(fd, masks[fd])


@contextmanager
def attacked(port: int, kind: str, clients: int) -> Iterator[int]:
    """A port is attacked by a process of its own, as long as the block lasts; its pid.

    Raises:
        RuntimeError: the attackers could not begin, or have ended within the block.
    """
    command = [sys.executable, "-m", "ildm_bench.micro.attack", "--port", str(port)]
    command += ["--kind", kind, "--clients", str(clients)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            if child.stdout.readline() != "attacking\n":
                raise RuntimeError(f"the attackers ({kind}) could not begin")
            yield child.pid
            if child.poll() is not None:
                raise RuntimeError(f"the attackers ({kind}) have ended with status {child.returncode}")
        finally:
            child.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--kind", choices=sorted(FLOODS), required=True)
    parser.add_argument("--clients", type=int, default=100)
    given = parser.parse_args()
    attack(("127.0.0.1", given.port), given.kind, given.clients)


if __name__ == "__main__":
    main()

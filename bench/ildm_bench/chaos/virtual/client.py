"""A client in virtual time: it connects again when its connection breaks, until it is told otherwise."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from ildm.api import Unreachable
from ildm.config import Address
from ildm.mqtt import MqttError, Version, Will
from ildm.testing.virtual.process import Process
from ildm.testing.virtual.world import World
from ildm_bench.chaos.client import MqttClient, Teller
from ildm_bench.chaos.history import payload
from ildm_bench.chaos.schedule import Client, Operation
from ildm_bench.chaos.virtual.site import BROKER, CLIENTS

PAUSE = (0.1, 0.8)
"""Seconds until it tries to connect again."""
CONNACK_TIMEOUT = 3.0
TAKEN = 0.5
"""Seconds after which DISCONNECT has come to node and broker, if nothing has befallen them."""


class VirtualClient:
    """``chance``: of its pauses between attempts to connect. ``returns``: it connects again after it was
    dropped. ``wills_kept``: its node keeps wills over a restart; otherwise the will of a client that returns
    need not be heard. ``drains``: the node there stops in order, and withdraws wills. ``lives``: of node and
    broker there; nobody can tell of them when they stand still. ``says_present``, ``keeps_sessions``,
    ``knows_version_5``: of its broker. ``direct``: it speaks with the broker until it is moved."""

    def __init__(
        self,
        world: World,
        run: str,
        client: Client,
        tell: Teller,
        *,
        chance: int,
        returns: bool,
        wills_kept: bool,
        says_present: bool,
        keeps_sessions: bool,
        knows_version_5: bool,
        lives: Callable[[], object],
        drains: Callable[[], bool],
        direct: bool = False,
        addresses: Sequence[Address] = (),
    ) -> None:
        self.drains = drains
        self.lives = lives
        self.world = world
        self.run = run
        self.about = client
        self.returns = returns
        self.wills_kept = wills_kept
        self.process = Process(world, f"client {client.name}")
        self.random = Random(f"{chance} {client.name}")
        self.away = True
        """It is not to be connected."""
        self._tell = tell
        self._address = Address(client.site, BROKER if direct else CLIENTS)
        self._turns = itertools.cycle(addresses) if len(addresses) > 1 and not direct else None
        self._connection: _Connection | None = None
        self._dropped = False
        self._seq = 0
        self._wills = 0
        self.mqtt = MqttClient(
            client.name,
            self._told,
            version=Version.V5 if client.version == 5 and knows_version_5 else Version.V311,
            clean=client.clean,
            inflight=client.inflight,
            sends_present=says_present,
            keeps_sessions=keeps_sessions,
        )

    def _told(self, op: str, phase: str, **columns: Any) -> None:
        if op == "will" and phase == "ok":
            sent = self.wills_kept or (self._dropped and not self.returns)
            if not sent or self.drains():
                phase = "info"  # it may come back before its node is there again, which then sends none
        if op == "will" and phase == "fail":
            life = self.lives()

            def taken() -> None:
                self._tell(op, phase if self.lives() == life else "info", **columns)

            self.world.call_at(self.world.time + TAKEN, taken)
            return
        self._tell(op, phase, **columns)

    @property
    def settled(self) -> bool:
        """Nothing is to be waited for on its account."""
        return self.away or (self.mqtt.connected and not self.mqtt.unacknowledged)

    def do(self, operation: Operation) -> None:
        """Carry out an operation, at its time."""
        mqtt = self.mqtt
        match operation.do:
            case "connect":
                if self.away:
                    self.away = False
                    self.dial()
            case "disconnect" | "drop":
                self.leave(by_packet=operation.do == "disconnect")
            case "subscribe":
                mqtt.subscribe(operation.topic, operation.qos)
            case "unsubscribe":
                mqtt.unsubscribe(operation.topic)
            case "publish" | "delete":
                for topic, size in operation.messages():
                    data = b""
                    if operation.do == "publish":
                        data = payload(self.run, self.about.name, self._seq, size)
                    mqtt.publish(topic, data, self._seq, operation.qos, retain=operation.retain)
                    self._seq += 1
        if self._connection is not None:
            self._connection.flush()

    def leave(self, *, by_packet: bool) -> None:
        """Be away from now on."""
        self.away = True
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if by_packet:
            self.mqtt.disconnect()
            connection.flush()
        else:
            self._dropped = True
            self.mqtt.lost()
            self._dropped = False
        if connection.transport is not None:
            connection.transport.close()

    def move(self) -> None:
        """A node has taken the broker's place."""
        self._address = Address(self.about.site, CLIENTS)
        if self._connection is not None and self._connection.transport is not None:
            self._connection.transport.abort()

    def dial(self) -> None:
        """Connect, if it is to."""
        if not self.away and self._connection is None:
            self._connection = _Connection(self)
            if self._turns is not None:
                self._address = next(self._turns)
            self.process.dial(self._address, self._connection, 2.0)

    def opened(self, connection: _Connection) -> None:
        if self.about.will:
            self._wills += 1
            data = payload(self.run, f"{self.about.name}-will", self._wills)
            about = self.about
            self.mqtt.will = Will(
                topic=about.will, payload=data, qos=about.will_qos, retain=about.will_retain
            )
        self.mqtt.opened(connection.put)
        self.world.call_at(self.world.time + CONNACK_TIMEOUT, connection.check, owner=self.process)

    def lost(self, connection: _Connection) -> None:
        """A connection has ended by itself, or there was none."""
        if connection is not self._connection:
            return
        self._connection = None
        self.mqtt.lost()
        self.world.call_at(self.world.time + self.random.uniform(*PAUSE), self.dial, owner=self.process)


class _Connection:
    """Has the methods of an ``asyncio.Protocol``; what is sent in one turn goes as one chunk."""

    def __init__(self, client: VirtualClient) -> None:
        self.client = client
        self.transport: Any = None
        self._out: list[bytes] = []

    def put(self, data: bytes) -> None:
        self._out.append(data)

    def flush(self) -> None:
        if self._out:
            data, self._out = b"".join(self._out), []
            self.transport.write(data)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if self.client._connection is not self:  # it has left meanwhile
            transport.abort()
            return
        self.client.opened(self)
        self.flush()

    def check(self) -> None:
        """There must have been a CONNACK by now."""
        if self.client._connection is self and not self.client.mqtt.connected:
            self.transport.abort()

    def dial_failed(self, reason: str, why: Unreachable = Unreachable.NO_ANSWER) -> None:
        self.client.lost(self)

    def data_received(self, data: bytes) -> None:
        if self.client._connection is not self:
            return
        try:
            self.client.mqtt.received(data)
        except MqttError as error:
            raise AssertionError(f"{self.client.about.name} was sent what is no MQTT: {error}") from error
        self.flush()

    def eof_received(self) -> None:
        pass

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass

    def connection_lost(self, exc: Exception | None) -> None:
        self.client.lost(self)

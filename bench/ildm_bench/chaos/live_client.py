"""A client of a live run: `ildm_bench.chaos.client.MqttClient` over TCP, back whenever it breaks."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from random import Random

from ildm.mqtt import MqttError, Version, Will
from ildm_bench.chaos.client import MqttClient, Teller
from ildm_bench.chaos.history import payload
from ildm_bench.chaos.schedule import Client, Operation

KEEP_ALIVE = 4
"""Seconds; a server silent for one and a half of it is given up."""
ANSWER = 5.0
"""Seconds that CONNACK may take."""
PAUSE = 0.3
"""Seconds from one attempt to connect to the next, at most."""

Address = tuple[str, int]


class LiveClient(asyncio.Protocol):
    """One client; `close` ends it, whatever it does."""

    def __init__(
        self,
        spec: Client,
        addresses: Sequence[Address],
        run: str,
        tell: Teller,
        random: Random,
        *,
        knows_version_5: bool = True,
        sends_present: bool = True,
        keeps_sessions: bool = True,
    ) -> None:
        """``addresses``: each connection is made to the next one. ``knows_version_5`` and the rest: of the
        broker; see `MqttClient`."""
        self.spec = spec
        self._addresses = itertools.cycle(addresses)
        self.wrong: list[str] = []
        """What the server has sent against the standard."""
        self._run = run
        self._random = random
        self._seq = 0
        self._wills = 0
        self.core = MqttClient(
            spec.name,
            tell,
            version=Version.V5 if spec.version == 5 and knows_version_5 else Version.V311,
            clean=spec.clean,
            keep_alive=KEEP_ALIVE,
            inflight=spec.inflight,
            sends_present=sends_present,
            keeps_sessions=keeps_sessions,
        )
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._closed = asyncio.Event()
        self._chunk: list[bytes] = []
        self._heard = 0.0

    @property
    def wanted(self) -> bool:
        """Whether it is to be connected."""
        return self._task is not None

    def do(self, operation: Operation) -> None:
        """Do one operation of the schedule."""
        match operation.do:
            case "connect":
                self.connect()
            case "disconnect":
                self.core.disconnect()
                self._flush()
                self._stay_away(lambda transport: transport.close())
            case "drop":
                self._stay_away(lambda transport: transport.abort())
            case "subscribe":
                self.core.subscribe(operation.topic, operation.qos)
            case "unsubscribe":
                self.core.unsubscribe(operation.topic)
            case "publish" | "delete":
                self._publish(operation)

    def connect(self) -> None:
        """Be connected from now on."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep_connected(), name=self.spec.name)

    async def close(self) -> None:
        """End it; nothing more is told that matters."""
        task = self._task
        self._stay_away(lambda transport: transport.abort())
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)

    # the connection ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._heard = asyncio.get_running_loop().time()
        if self.spec.will:
            self._wills += 1
            self.core.will = Will(
                topic=self.spec.will,
                payload=payload(self._run, f"{self.spec.name}.will", self._wills),
                qos=self.spec.will_qos,
                retain=self.spec.will_retain,
            )
        self.core.opened(self._put)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        self._heard = asyncio.get_running_loop().time()
        try:
            self.core.received(data)
        except MqttError as error:
            self.wrong.append(f"{self.spec.name}: {error}")
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._gone()

    def _gone(self) -> None:
        self._transport = None
        self._chunk.clear()
        self.core.lost()
        self._closed.set()

    def _stay_away(self, end: Callable[[asyncio.Transport], None]) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._transport is not None:
            end(self._transport)
            self._gone()

    async def _keep_connected(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._closed.clear()
            try:
                async with asyncio.timeout(ANSWER):
                    await loop.create_connection(lambda: self, *next(self._addresses))
            except OSError:  # nobody listens at present, or takes the connection
                self._closed.set()
            while not self._closed.is_set():
                await self._watch()
            await asyncio.sleep(self._random.uniform(0.02, PAUSE))

    async def _watch(self) -> None:
        """Ping, and end the connection of a server that is silent; returns after a while or at the end."""
        try:
            async with asyncio.timeout(KEEP_ALIVE / 4):
                await self._closed.wait()
        except TimeoutError:
            silence = asyncio.get_running_loop().time() - self._heard
            if silence > (KEEP_ALIVE * 1.5 if self.core.connected else ANSWER):
                if self._transport is not None:
                    self._transport.abort()
                    self._gone()
            else:
                self.core.ping()

    def _put(self, data: bytes) -> None:
        if not self._chunk:
            asyncio.get_running_loop().call_soon(self._flush)
        self._chunk.append(data)

    def _flush(self) -> None:
        if self._transport is not None and self._chunk:
            self._transport.write(b"".join(self._chunk))
        self._chunk.clear()

    def _publish(self, operation: Operation) -> None:
        for topic, size in operation.messages():
            self._seq += 1
            data = b"" if operation.do == "delete" else payload(self._run, self.spec.name, self._seq, size)
            self.core.publish(topic, data, self._seq, operation.qos, retain=operation.retain)

"""The soak itself: three nodes in a row over brokers, under load, with connects, cuts and kills."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from ildm.admin.view import AdminError, Row
from ildm.testing.live.brokers import broker_class
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.ports import LOOPBACK
from ildm_bench.chaos.history import History
from ildm_bench.chaos.live_client import LiveClient
from ildm_bench.chaos.nemesis import Nemesis
from ildm_bench.chaos.processes import IldmSites, make_of
from ildm_bench.chaos.readings import Readings, memory_of
from ildm_bench.chaos.recording import Recorder
from ildm_bench.chaos.schedule import Client, Fault, Operation, Setting
from ildm_bench.chaos.soak.figures import ENTRIES, Sample, Soak

MESSAGES_A_CONNECT = 100
MESSAGES_A_CUT = 6_000
MESSAGES_A_KILL = 90_000
"""In between, as in a day and a half of a busy site."""
CHUNK = 16
AHEAD = 4_000
"""Messages that subscribers may lack until publishers wait for them."""
CHURNING = 8
"""Clients that come and go at the same time."""
PATIENCE = 120.0
"""Seconds until everything is to have arrived once nothing more is sent."""
STUCK = 5.0
"""Seconds after which what does not arrive is not waited for any more."""
REST = 3.0
"""Seconds in which nothing comes any more before nodes are looked at."""
_TURN = 0.01

Progress = Callable[["Count", float], None]


@dataclass
class Count:
    """Events so far."""

    messages: int = 0
    received: int = 0
    connects: int = 0
    cuts: int = 0
    kills: int = 0

    def cut(self) -> None:
        self.cuts += 1

    def killed(self) -> None:
        self.kills += 1

    @property
    def events(self) -> int:
        return self.messages + self.connects + self.cuts + self.kills


async def soak(
    messages: int,
    directory: Path,
    *,
    algorithm: str = "sf",
    broker: str = "mosquitto",
    mode: str = "process",
    interval: float = 5.0,
    host: str = LOOPBACK,
    progress: Progress = lambda count, seconds: None,
) -> Soak:
    """So many messages, published at three sites, and what belongs to them. ``directory``: for processes.

    Node c is killed now and then, the link between a and b is cut; a and b live from beginning to end.

    Raises:
        ProcessError: something did not come up.
        OSError: a port is taken.
    """
    # Brokers are not harmed, and need not write each message to the disk.
    brokers = (f"{broker}-default",) * 3
    setting = Setting(algorithm, ("a", "b", "c"), (("a", "b"), ("b", "c")), brokers, mode)
    sites = IldmSites(setting, directory, host)
    soaking = _Soaking(sites, messages, interval, progress)
    try:
        await sites.start()
        return await soaking.run()
    finally:
        await soaking.close()
        await sites.close()


class _Soaking:
    def __init__(self, sites: IldmSites, messages: int, interval: float, progress: Progress) -> None:
        self.sites = sites
        self.wanted = messages
        self.interval = interval
        self.progress = progress
        self.count = Count()
        self.acknowledged = 0
        """Of QoS 1 and 2."""
        self.got: dict[str, int] = {}
        """Of QoS 1, by subscriber."""
        self.samples: list[Sample] = []
        self.began = time.monotonic()
        self.recorder = Recorder(History("soak"), self.clock)
        self.recorder.finish()  # of a soak there is no history
        self.nemesis = Nemesis(sites, self.recorder)
        self.readings = Readings(sites, self.recorder)
        self.publishers: list[LiveClient] = []
        self.subscribers: list[LiveClient] = []
        self._tasks: list[asyncio.Task[None]] = []
        for site in sites.setting.sites:
            for qos in (0, 1, 2):
                self.publishers.append(self.client(Client(f"p{qos}.{site}", site, inflight=64)))
            subscriber = self.client(Client(f"s.{site}", site, clean=False))
            subscriber.core.subscribe("soak/#", 1)
            self.subscribers.append(subscriber)

    async def run(self) -> Soak:
        for client in (*self.publishers, *self.subscribers):
            client.connect()
        await self.publish(max(10 * CHUNK, self.wanted // 20))
        await self.churn(CHURNING)
        await self.rest()
        first = await self.classes()
        self.count, self.began = Count(), time.monotonic()
        await self.look()  # at each before anything befalls it
        self._tasks = [
            asyncio.create_task(self.nemesis.supervise(), name="supervisor"),
            asyncio.create_task(self.sample(), name="samples"),
        ]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.publish(self.wanted), name="load")
            kill, cut = Fault(0.0, "kill", ("node/c",), 0.1), Fault(0.0, "cut", ("link/a/b",), 0.2)
            tasks.create_task(self.trouble(kill, MESSAGES_A_KILL, self.count.killed), name="kills")
            tasks.create_task(self.trouble(cut, MESSAGES_A_CUT, self.count.cut), name="cuts")
            for place in range(CHURNING):
                tasks.create_task(self.come_and_go(place), name=f"connects {place}")
        await self.look()
        seconds = self.clock()
        quiet = await self.rest()
        setting, count = self.sites.setting, self.count
        return Soak(
            title=f"{count.events:,} events: {setting.algorithm} over {make_of(setting.brokers[0])}, "
            f"spool.mode {setting.mode}",
            machine=f"{platform.machine()}, Python {platform.python_version()}",
            seconds=round(seconds, 1),
            messages=count.messages,
            received=count.received,
            connects=count.connects,
            cuts=count.cuts,
            kills=count.kills,
            samples=self.samples,
            first=first,
            last=await self.classes(),
            quiet=quiet,
            wrong=[text for client in self.subscribers for text in client.wrong] + self.nemesis.ended,
        )

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in (*self.publishers, *self.subscribers):
            await client.close()

    def clock(self) -> float:
        return time.monotonic() - self.began

    def client(self, spec: Client) -> LiveClient:
        make = make_of(self.sites.setting.brokers[0])
        return LiveClient(
            spec,
            [self.sites.address(spec.site)],
            "soak",
            partial(self.told, spec.name),
            Random(spec.name),
            knows_version_5=5 in broker_class(make).versions,
            sends_present=make != "activemq",
        )

    def told(self, client: str, op: str, phase: str, **columns: Any) -> None:
        """Count what clients tell."""
        if op == "publish" and phase == ("ok" if columns["qos"] else "invoke"):
            self.count.messages += 1
            self.acknowledged += columns["qos"] > 0
        elif op == "receive":
            self.count.received += 1
            self.got[client] = self.got.get(client, 0) + (columns["qos"] > 0)

    # events -----------------------------------------------------------------------------------

    async def publish(self, messages: int) -> None:
        """Publish so many more, evenly, as fast as they arrive."""
        until = self.count.messages + messages
        operations = [
            (client, Operation(0.0, client.spec.name, "publish", f"soak/{place}", place % 3, count=CHUNK))  # type: ignore[arg-type]
            for place, client in enumerate(self.publishers)
        ]
        sent = dict.fromkeys(self.publishers, 0)
        moved, before, forgiven = self.clock(), 0, 0
        while self.count.messages < until:
            least = min(self.got.get(client.spec.name, 0) for client in self.subscribers)
            if least != before or self.clock() < moved:
                moved, before = self.clock(), least
            elif self.clock() - moved > STUCK:  # they were lost, or a broker keeps no more of them
                forgiven = self.acknowledged - least
            if self.acknowledged - least - forgiven < AHEAD:
                for client, operation in operations:
                    # QoS 0 has no acknowledgements to go by: no more of it than of the others
                    fair = operation.qos or sent[client] <= min(sent.values()) + CHUNK
                    if client.core.connected and client.core.unacknowledged < 2 * CHUNK and fair:
                        client.do(operation)
                        sent[client] += CHUNK
            await asyncio.sleep(_TURN)

    async def come_and_go(self, place: int) -> None:
        """A client that connects, subscribes, publishes and leaves, again and again."""
        site = self.sites.setting.sites[place % 3]
        client = self.client(Client(f"guest{place}", site))
        client.core.subscribe(f"guests/{place}/#", place % 3)
        greeting = Operation(0.0, client.spec.name, "publish", f"guests/{place}/x", 1)
        try:
            while self.count.messages < self.wanted:
                if self.count.connects * MESSAGES_A_CONNECT >= self.count.messages:
                    await asyncio.sleep(_TURN)
                    continue
                await self.visit(client, greeting)
        finally:
            await client.close()

    async def churn(self, times: int) -> None:
        """Each guest once, so that what they leave once for all is there."""
        for place in range(times):
            client = self.client(Client(f"guest{place}", self.sites.setting.sites[place % 3]))
            client.core.subscribe(f"guests/{place}/#", place % 3)
            greeting = Operation(0.0, client.spec.name, "publish", f"guests/{place}/x", 1)
            await self.visit(client, greeting)
            await client.close()

    async def visit(self, client: LiveClient, greeting: Operation) -> None:
        client.connect()
        client.do(greeting)
        for _ in range(int(PATIENCE / _TURN)):
            await asyncio.sleep(_TURN)
            if client.core.connected and not client.core.unacknowledged:
                break
        client.do(Operation(0.0, client.spec.name, "disconnect"))
        self.count.connects += 1

    async def trouble(self, fault: Fault, between: int, told: Callable[[], None]) -> None:
        """Harm again and again, with so many messages between, once at least."""
        due = min(self.wanted, between) // 2
        while True:
            await asyncio.sleep(_TURN)
            if self.count.messages < min(due, self.wanted):
                continue
            if self.count.messages >= self.wanted and due > between:
                return
            told()
            await self.nemesis.strike(fault)
            due += between

    async def rest(self) -> bool:
        """Wait until nothing is under way; whether that came."""
        give_up, moved, before = self.clock() + PATIENCE, self.clock(), -1
        while self.clock() < give_up:
            if self.count.received != before or any(client.core.unacknowledged for client in self.publishers):
                moved, before = self.clock(), self.count.received
            elif self.clock() - moved > REST and await self.readings.is_idle():
                return True
            await asyncio.sleep(0.2)
        return False

    # looking at nodes -------------------------------------------------------------------------

    async def sample(self) -> None:
        """Look at all nodes again and again, until cancelled."""
        while True:
            self.progress(self.count, self.clock())
            await asyncio.sleep(self.interval)
            await self.look()

    async def look(self) -> None:
        for site, node in self.sites.nodes.items():
            found = await self.internals(node)
            pid = node.process.pid if node.process is not None else 0
            if found is None or (memory := memory_of(pid)) is None:
                continue
            self.samples.append(
                Sample(
                    t=round(self.clock(), 3),
                    events=self.count.events,
                    node=site,
                    life=self.recorder.lives[f"node/{site}"],
                    rss_bytes=memory,
                    descriptors=descriptors_of(pid),
                    timers=sum(found["timers"].values()),
                    **{name: found[name] for name in ("tasks", "objects", "entries")},
                )
            )

    async def classes(self) -> dict[str, dict[str, int]]:
        """Of each node that answers; timers by what they call, and entries of tables."""
        found = {site: await self.internals(node) for site, node in self.sites.nodes.items()}
        return {
            site: each["classes"]
            | {f"timer {name}": number for name, number in each["timers"].items()}
            | {f"{ENTRIES}{name}": number for name, number in each["tables"].items()}
            for site, each in found.items()
            if each is not None
        }

    async def internals(self, node: NodeProcess) -> Row | None:
        try:
            return await asyncio.to_thread(node.admin.internals)
        except AdminError:  # it is down at present
            return None


def descriptors_of(pid: int) -> int:
    """Of a process; 0 if it has gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0

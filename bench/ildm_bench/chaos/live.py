"""One live run: a schedule against real brokers and nodes, in this process's event loop, and its history."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from ildm.config import LinkConfig
from ildm.testing.live.brokers import broker_class
from ildm.testing.live.ports import LOOPBACK
from ildm_bench.chaos.client import Teller
from ildm_bench.chaos.drawing import TREE
from ildm_bench.chaos.history import History, Run
from ildm_bench.chaos.live_client import LiveClient
from ildm_bench.chaos.nemesis import UNABLE, Nemesis
from ildm_bench.chaos.pairs import PairedSites
from ildm_bench.chaos.processes import BridgedSites, IldmSites, Sites, can_mount, make_of
from ildm_bench.chaos.readings import Readings
from ildm_bench.chaos.recording import Recorder
from ildm_bench.chaos.schedule import LINK_FAULTS, Client, Fault, Operation, Schedule, Setting

SETTLE = 2.0
"""Seconds without a fault after which a subscription is known everywhere, and all paths are there again."""
QUIET = 2.0
"""Seconds without a message after which nothing is under way, when no node says that something waits."""
QUIET_OF_OVERLAYS = 12.0
"""The same with an overlay, which sends again after some seconds what it got no answer for."""
QUIET_OF_BRIDGES = 20.0
"""The same where there are no nodes to ask: a bridge misses its neighbour after 1.5 times its keep alive
of 5 s, and then dials again."""
PATIENCE = 45.0
"""Seconds until a run that does not come to rest is given up, where links have no rate."""
CARRIED = frozenset({"kill", "pause", "descriptors"})
"""Faults of nodes that can befall any process."""
READING = 1.0
"""Seconds without a retained message after which there are no more."""
EVERYTHING = "t/#", "u/#", "r/#"
"""Filters of all topics that schedules use."""


def patience(schedule: Schedule) -> float:
    """Seconds until a run is given up: a link may need that long for all that is published."""
    rate = LinkConfig.model_validate(schedule.setting.options.get("link", {})).rate
    rates = [each for each in (rate.out, rate.in_) if each is not None]
    published = [each for each in schedule.operations if each.do == "publish"]
    size = sum(size for each in published for _, size in each.messages())
    return PATIENCE + (size / min(rates) if rates else 0.0)


@dataclass
class LiveRun:
    """What came of a run; the rest is in its history."""

    about: Run
    events: int
    wrong: list[str] = field(default_factory=list)
    """What servers sent against the standard, and processes that ended by themselves."""
    skipped: list[str] = field(default_factory=list)
    """Faults that this machine cannot do."""


async def run_live(
    schedule: Schedule,
    run: str,
    directory: Path,
    history: History,
    *,
    target: str = "ildm",
    host: str = LOOPBACK,
) -> LiveRun:
    """Run a schedule. ``directory``: for processes; ``target``: ``ildm``, ``pair`` or ``bridge``.

    ``host``: a loopback address; ports of it may be those of others at 127.0.0.1.

    Raises:
        ProcessError: something did not come up.
        OSError: a port is taken, or the machine allows something not that it seemed to.
    """
    faults, skipped = possible(schedule.faults, target)
    small = sorted(
        {each.partition("/")[2] for fault in faults if fault.kind == "disk-full" for each in fault.targets}
    )
    sites: Sites
    if target == "bridge":
        sites = BridgedSites(schedule.setting, directory, host)
    elif target == "pair":
        sites = PairedSites(schedule.setting, directory, host, small)
    else:
        sites = IldmSites(schedule.setting, directory, host, small)
    live = _Live(schedule, faults, sites, history)
    began = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        await sites.start()
        complete = await live.run()
        setting = schedule.setting
        about = Run(
            run,
            engine="live",
            target=target,
            algorithm=setting.algorithm if target != "bridge" else "",
            broker="+".join(dict.fromkeys(setting.brokers)),
            store="kept" if set(setting.brokers) == {"mosquitto"} else "lossy",
            mode=setting.mode if target != "bridge" else "",
            sites=len(setting.sites),
            seed=schedule.seed,
            fault=name_of(faults, setting),
            began=began,
            seconds=round(live.recorder.clock(), 3),
            settle=SETTLE,
            complete=complete,
            note="; ".join(skipped),
        )
        history.finish(about)
        return LiveRun(about, history.length, live.wrong, skipped)
    finally:
        await live.close()
        await sites.close()


def possible(faults: Sequence[Fault], target: str) -> tuple[list[Fault], list[str]]:
    """Those that can be done here, and why the others cannot.

    Where there are no nodes, what befalls one befalls the broker, which carries the messages in its place.
    """
    left, skipped = [], []
    for fault in faults:
        if fault.kind in UNABLE:
            skipped.append(f"{fault.kind}: {UNABLE[fault.kind]}")
        elif fault.kind == "disk-full" and not can_mount():
            skipped.append("disk-full: a disk of its own needs root")
        elif target != "bridge" or fault.kind in LINK_FAULTS:
            left.append(fault)
        elif fault.kind in CARRIED:
            brokers = [each.replace("node/", "broker/") for each in fault.targets]
            left.append(replace(fault, targets=tuple(dict.fromkeys(brokers))))
        else:
            skipped.append(f"{fault.kind}: there are no nodes")
    return left, skipped


def name_of(faults: Sequence[Fault], setting: Setting) -> str:
    """The kinds of faults, for `ildm_bench.chaos.tables.RUNS`; ``kill-all``: of all nodes or brokers."""
    every = [{f"{kind}/{site}" for site in setting.sites} for kind in ("node", "broker")]
    kinds = {
        "kill-all"
        if fault.kind == "kill" and any(those.issubset(fault.targets) for those in every)
        else fault.kind
        for fault in faults
    }
    return "+".join(sorted(kinds)) or "none"


def _untold(op: str, phase: str, **columns: Any) -> None:
    """Of such a client nothing is told but what it has brought about."""


class _Live:
    def __init__(self, schedule: Schedule, faults: list[Fault], sites: Sites, history: History) -> None:
        self.schedule = schedule
        self.faults = faults
        self.sites = sites
        self._zero = 0.0
        self.recorder = Recorder(history, lambda: time.monotonic() - self._zero)
        self.nemesis = Nemesis(sites, self.recorder)
        self.readings = Readings(sites, self.recorder)
        self.clients: dict[str, LiveClient] = {}
        self.witnesses: list[LiveClient] = []
        self._tasks: list[asyncio.Task[None]] = []
        for number, client in enumerate(schedule.clients):
            addresses = sites.addresses(client.site)
            begin = number % len(addresses)
            self.clients[client.name] = self._client(client, *addresses[begin:], *addresses[:begin])

    @property
    def wrong(self) -> list[str]:
        told = Counter(text for client in self.clients.values() for text in client.wrong)
        return [f"{text} ({times} times)" for text, times in told.items()] + self.nemesis.ended

    async def run(self) -> bool:
        """All of the schedule, then quiet, then what is retained; whether it came to rest."""
        self._zero = time.monotonic()
        if isinstance(self.sites, IldmSites):
            self.recorder.classes(self.schedule.setting)
        self._tasks = [
            asyncio.create_task(self.nemesis.supervise(), name="supervisor"),
            asyncio.create_task(self.readings.repeat(), name="readings"),
        ]
        if any(target.startswith("broker/") for fault in self.faults for target in fault.targets):
            self._call_witnesses()
        async with asyncio.TaskGroup() as tasks:
            for fault in self.faults:
                tasks.create_task(self._strike(fault), name=f"{fault.kind} at {fault.at}")
            await self._operate()
        complete = await self._rest()
        if self._is_overlay:
            complete = await self._want_retained() and complete
        await self._read_retained()
        for task in self._tasks:
            task.cancel()
        await self.readings.take()
        self.recorder.finish()
        return complete

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in (*self.clients.values(), *self.witnesses):
            await client.close()

    async def _strike(self, fault: Fault) -> None:
        await self._until(fault.at)
        await self.nemesis.strike(fault)

    async def _operate(self) -> None:
        for operation in self.schedule.operations:
            await self._until(operation.at)
            client = self.clients[operation.client]
            for each in self._as_the_broker_bears(operation, client.spec.site):
                client.do(each)

    def _as_the_broker_bears(self, operation: Operation, site: str) -> list[Operation]:
        """ActiveMQ publishes news of itself on topics that are none, such as ``ActiveMQ/Advisory/.../#``."""
        if operation.topic == "#" and make_of(self._kind_at(site)) == "activemq":
            return [replace(operation, topic=each) for each in EVERYTHING]
        return [operation]

    async def _until(self, moment: float) -> None:
        await asyncio.sleep(max(0.0, moment - self.recorder.clock()))

    async def _rest(self) -> bool:
        """Have all back who have something to get or to send, and wait until nothing is under way."""
        for client in self.clients.values():
            if not client.spec.clean or client.core.unacknowledged:
                client.connect()
        give_up = self.recorder.clock() + patience(self.schedule)
        while not (await self._is_quiet()):
            if self.recorder.clock() > give_up:
                return False
            await asyncio.sleep(0.2)
        return True

    @property
    def _is_overlay(self) -> bool:
        return bool(self.sites.nodes) and self.sites.setting.algorithm not in TREE

    async def _want_retained(self) -> bool:
        """Subscribe everywhere to what is retained: with an overlay a site has only what it has asked for."""
        for site in self.sites.setting.sites:
            wanting = self._client(Client(f"wanting.{site}", site), self.sites.address(site), tell=_untold)
            self.witnesses.append(wanting)
            wanting.core.subscribe("r/#", 1)
            wanting.connect()
        await asyncio.sleep(QUIET_OF_OVERLAYS)
        return await self._rest()

    async def _is_quiet(self) -> bool:
        wanted = [client for client in self.clients.values() if client.wanted]
        if any(not client.core.connected or client.core.unacknowledged for client in wanted):
            return False
        quiet = QUIET_OF_OVERLAYS if self._is_overlay else QUIET if self.sites.nodes else QUIET_OF_BRIDGES
        calm = self.recorder.clock() - self.recorder.last_stir > quiet
        return calm and await self.readings.is_idle()

    async def _read_retained(self) -> None:
        topics = sorted({each.topic for each in self.schedule.operations if each.retain})
        if not topics:
            return
        readers = []
        for site in self.sites.setting.sites:
            self.recorder.note(f"reader.{site}", "retained", "invoke", site=site)
            reader = Client(f"reader.{site}", site)
            tell = self.recorder.reader(reader.name, site)
            readers.append(self._client(reader, self.sites.brokers[site].address, tell=tell))
            for topic in topics:
                readers[-1].core.subscribe(topic, 1)
        try:
            for each in readers:
                each.connect()
            await self._until_read(readers)
        finally:
            for each in readers:
                await each.close()

    async def _until_read(self, readers: Sequence[LiveClient]) -> None:
        give_up = self.recorder.clock() + patience(self.schedule)
        asked = self.recorder.clock()
        while self.recorder.clock() < give_up:
            if any(reader.core.waiting for reader in readers):
                asked = self.recorder.clock()
            elif self.recorder.clock() - max(asked, self.recorder.last_stir) > READING:
                return
            await asyncio.sleep(0.1)

    def _call_witnesses(self) -> None:
        """Past the nodes: what they have got, and a client that was there has not, the broker has lost."""
        for site in self.sites.setting.sites:
            witness = Client(f"witness.{site}", site, clean=False)
            self.witnesses.append(self._client(witness, self.sites.brokers[site].address))
            for topic_filter in EVERYTHING:
                self.witnesses[-1].core.subscribe(topic_filter, 2)
            self.witnesses[-1].connect()

    def _client(self, client: Client, *addresses: tuple[str, int], tell: Teller | None = None) -> LiveClient:
        kind = self._kind_at(client.site)
        make = make_of(kind)
        return LiveClient(
            client,
            addresses,
            self.recorder.history.run,
            tell or self.recorder.teller(client.name, client.site),
            Random(f"{self.schedule.seed} {client.name}"),
            knows_version_5=5 in broker_class(make).versions,
            sends_present=make != "activemq",
            keeps_sessions=kind == make != "moquette",
        )

    def _kind_at(self, site: str) -> str:
        setting = self.schedule.setting
        return dict(zip(setting.sites, setting.brokers, strict=True))[site]

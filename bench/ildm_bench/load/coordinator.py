"""One run of the load: workers, clocks, the sampler, the verdict on the generator, the manifest."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ildm_bench.load.connection import LoadError
from ildm_bench.load.resources import Sampler
from ildm_bench.load.scenario import Scenario
from ildm_bench.load.verdict import judge, summarise, total
from ildm_bench.load.wire import Channel
from ildm_bench.load.worker import group_of
from ildm_bench.measure.manifest import Client, Manifest, Process, Worker
from ildm_bench.measure.schema import log_file, run_directory
from ildm_bench.micro.measure import machine

PINGS = 20
SAMPLE = 0.5
"""Seconds between two samples of the processes."""
LEAD = 0.5
"""Seconds from the order to start until the first message."""
FINISH = 120.0
"""Seconds that the workers have to write what is left of their logs."""
NICE = -10


@dataclass(frozen=True, slots=True)
class RunProgress:
    """What has happened so far, t-clients."""

    passed: float
    """Seconds since the first message."""
    sent: int
    received: int


@dataclass
class RunSpec:
    """What to do. ``targets`` has the address of each site, host:port."""

    scenario: Scenario
    targets: Sequence[str]
    results: Path
    """Directory in which the run gets one of its own."""
    interval_ms: float | None = None
    """Between two messages of a t-publisher, instead of the scenario's."""
    label: str = ""
    run: str | None = None
    workers: int = 1
    """Processes for the t-clients on this machine; the l-clients have one of their own."""
    remote: Sequence[str] = ()
    """Workers on other machines, host:port, which share the t-clients instead."""
    secret: str = ""
    processes: Sequence[tuple[Process, int]] = ()
    """To be sampled, with their process ids."""
    notes: list[str] = field(default_factory=list)
    progress: Callable[[RunProgress], None] | None = None


@dataclass
class _Worker:
    name: str
    channel: Channel
    local: bool
    host: str = ""
    pid: int = 0
    offset: tuple[int, int] = (0, 0)
    """Nanoseconds to add to its clock, and the bound of the error."""
    result: dict[str, Any] = field(default_factory=dict)
    sent: int = 0
    received: int = 0


async def run_load(spec: RunSpec) -> Manifest:
    """Put the load on, and write logs and manifest.

    Raises:
        LoadError: the number of targets is wrong, a client was not accepted, a worker has failed, the
            results cannot be written.
    """
    if len(spec.targets) != spec.scenario.sites:
        text = f"{len(spec.targets)} targets given"
        raise LoadError(f"scenario {spec.scenario.name} has {spec.scenario.sites} sites, {text}")
    run = spec.run or f"{datetime.now():%Y%m%d-%H%M%S}-{spec.scenario.name}-{secrets.token_hex(2)}"
    directory = run_directory(spec.results, run)
    try:
        directory.mkdir(parents=True)
        async with AsyncExitStack() as stack:
            workers = await _start_workers(stack, spec)
            return await _Run(spec, run, directory, workers).go()
    except OSError as error:
        raise LoadError(f"{directory}: {error}") from error


async def _start_workers(stack: AsyncExitStack, spec: RunSpec) -> list[_Worker]:
    topics = spec.scenario.topics
    workers: list[_Worker] = []
    if any(topic.clients == "throughput" for topic in topics):
        for index, address in enumerate(spec.remote):
            host, _, port = address.rpartition(":")
            try:
                reader, writer = await asyncio.open_connection(host, int(port))
                channel = Channel(reader, writer, f"worker {address}")
                stack.callback(channel.close)
                await channel.prove(spec.secret, coordinator=True)
            except (OSError, TimeoutError) as error:
                raise LoadError(f"worker {address}: {error or 'no answer'}") from error
            workers.append(_Worker(f"worker-{index}", channel, local=False))
        names = [f"worker-{index}" for index in range(0 if spec.remote else spec.workers)]
        workers += [await _spawn(stack, name) for name in names]
    if any(topic.clients == "latency" for topic in topics):
        workers.append(await _spawn(stack, "latency"))
    for worker in workers:
        hello = await worker.channel.receive("welcome")
        worker.host, worker.pid = hello["host"], hello["pid"]
        worker.offset = await _clock(worker.channel)
    return workers


async def _spawn(stack: AsyncExitStack, name: str) -> _Worker:
    """A worker on this machine, tied to us by a socket pair: when one end goes, so does the other."""
    ours, theirs = socket.socketpair()
    command = ["-m", "ildm_bench.load.worker", "--fd", str(theirs.fileno())]
    with theirs:
        child = await asyncio.create_subprocess_exec(
            sys.executable, *command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
    stack.push_async_callback(_end, child)
    # without the right to this the generator competes with what it measures; the verdict tells when it lost
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, child.pid, NICE)
    reader, writer = await asyncio.open_connection(sock=ours)
    channel = Channel(reader, writer, f"the generator's process {name}")
    stack.callback(channel.close)
    return _Worker(name, channel, local=True)


async def _end(child: asyncio.subprocess.Process) -> None:
    """It ends when its channel closes; what hangs is killed."""
    try:
        async with asyncio.timeout(5):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()


async def _clock(channel: Channel) -> tuple[int, int]:
    """What to add to the other side's clock to get ours, and the bound of the error.

    As in NTP: the answer was given half-way through the quickest of several round trips.
    """
    best: tuple[int, int] | None = None
    for _ in range(PINGS):
        before = time.monotonic_ns()
        await channel.send("clock")
        theirs = int((await channel.receive("time"))["monotonic_ns"])
        after = time.monotonic_ns()
        if best is None or after - before < 2 * best[1]:
            best = ((before + after) // 2 - theirs, (after - before + 1) // 2)
    assert best is not None
    return best


class _Run:
    def __init__(self, spec: RunSpec, run: str, directory: Path, workers: list[_Worker]) -> None:
        self.spec = spec
        self.scenario = spec.scenario
        self.interval_ms = spec.interval_ms or spec.scenario.interval
        self.run = run
        self.directory = directory
        self.workers = workers
        # local workers share our clock: the offset that counts is from the monotonic clock to Unix time
        self.epoch_ns = time.time_ns() - time.monotonic_ns()
        self.clients = self._place_clients()
        self.notes = list(spec.notes)

    def _place_clients(self) -> list[Client]:
        """Clients of the scenario, the t-clients dealt out to the workers in turn."""
        clients: list[Client] = []
        throughput = [worker.name for worker in self.workers if worker.name != "latency"]
        turn = 0
        for role in ("subscribers", "publishers"):
            for index, topic in enumerate(self.scenario.topics):
                for site, count in enumerate(self.scenario.counts(topic, role)):
                    for _ in range(count):
                        worker = "latency"
                        if topic.clients == "throughput":
                            worker = throughput[turn % len(throughput)]
                            turn += 1
                        clients.append(
                            Client(
                                client_id=f"{self.run.rpartition('-')[2]}-{len(clients)}",
                                topic=index,
                                site=site,
                                publisher=role == "publishers",
                                worker=worker,
                            )
                        )
        return clients

    def _offset(self, worker: _Worker) -> int:
        return self.epoch_ns + (0 if worker.local else worker.offset[0])

    def _order(self, worker: _Worker) -> dict[str, Any]:
        """What a worker has to do."""
        places: dict[str, list[int]] = {}
        for name in [each.name for each in self.workers]:
            for client in self.clients:
                if client.publisher and client.worker == name:
                    place = places.setdefault(group_of(self.scenario, client.topic), [0, 0])
                    place[0] += name < worker.name
                    place[1] += 1
        return {
            "scenario": self.scenario.model_dump(mode="json"),
            "directory": str(self.directory) if worker.local else "",
            "name": worker.name,
            "offset_ns": self._offset(worker),
            "interval_ms": self.interval_ms,
            "connect_rate": self.scenario.connect_rate / len(self.workers),
            "places": places,
            "clients": [
                [number, c.client_id, c.topic, self.spec.targets[c.site], c.publisher]
                for number, c in enumerate(self.clients)
                if c.worker == worker.name
            ],
        }

    def now(self) -> int:
        return time.monotonic_ns() + self.epoch_ns

    async def go(self) -> Manifest:
        workers = self.workers
        for worker in workers:
            await worker.channel.send("prepare", **self._order(worker))
        for worker in workers:
            await worker.channel.receive("ready")
        scenario = self.scenario
        begin = self.now() + int(LEAD * 1e9)
        end = begin + int(scenario.duration * 1e9)
        window = (begin + int(scenario.warm_up * 1e9), end - int(scenario.cool_down * 1e9))
        generators = [(Process(name=w.name, role="generator"), w.pid) for w in workers if w.local]
        sampler = Sampler([*self.spec.processes, *generators], self.epoch_ns)
        wall = datetime.now().astimezone().isoformat(timespec="seconds")
        for worker in workers:
            await worker.channel.send("start", begin_ns=begin, window=window, end_ns=end)
        listeners = [asyncio.create_task(self._listen(worker)) for worker in workers]
        watching = asyncio.create_task(self._sample(sampler, begin, window))
        try:
            await self._wait(listeners, begin, end)
            for worker in workers:
                await worker.channel.send("stop")
            _, hanging = await asyncio.wait(listeners, timeout=FINISH)
            if hanging:
                raise LoadError(f"a process of the generator has not written its logs in {FINISH:g} s")
            for listener in listeners:
                listener.result()
        finally:
            for task in (watching, *listeners):
                task.cancel()
            await asyncio.gather(watching, *listeners, return_exceptions=True)
        sampler.sample()
        await asyncio.to_thread(sampler.write, self.directory)
        for worker in workers:
            if not worker.local:
                for role in ("send", "receive"):
                    path = log_file(self.directory, role, worker.name)
                    path.parent.mkdir(exist_ok=True)
                    await worker.channel.receive_file(path)
        results = [worker.result for worker in workers]
        if foreign := total(results, "foreign"):
            self.notes.append(f"{foreign} packets received that are no message of this load")
        manifest = Manifest(
            run=self.run,
            label=self.spec.label or scenario.name,
            scenario=scenario,
            interval_ms=self.interval_ms,
            targets=list(self.spec.targets),
            began_ns=begin,
            window_begin_ns=window[0],
            window_end_ns=window[1],
            ended_ns=end,
            wall_time=wall,
            clients=self.clients,
            workers=[await self._record(worker) for worker in workers],
            processes=[process for process, _ in [*self.spec.processes, *generators]],
            generator=judge(results, sampler.lost),
            summary=summarise(results, scenario, window, self.directory),
            machine=machine(),
            disturbance=sampler.disturbance(*window),
            notes=self.notes,
        )
        manifest.write(self.directory)
        for worker in workers:
            await worker.channel.send("bye")
        return manifest

    async def _listen(self, worker: _Worker) -> None:
        while True:
            message = await worker.channel.receive("progress", "done")
            if message["kind"] == "done":
                worker.result = message
                return
            worker.sent, worker.received = message["sent"], message["received"]

    async def _wait(self, listeners: Sequence[asyncio.Task[None]], begin: int, end: int) -> None:
        """Until the load is over and what was sent has arrived, or the time for that has passed."""
        over = end + int(self.scenario.drain * 1e9)
        seen = (-1, -1)
        while (now := self.now()) < over:
            done, _ = await asyncio.wait(listeners, timeout=0.25, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
                raise LoadError("a process of the generator has ended too soon")
            sent, received = sum(w.sent for w in self.workers), sum(w.received for w in self.workers)
            if self.spec.progress is not None:
                self.spec.progress(RunProgress(max(0.0, (now - begin) / 1e9), sent, received))
            if now > end + 1e9 and received >= sent * self.scenario.sp_ratio and (sent, received) == seen:
                return
            seen = (sent, received)

    async def _sample(self, sampler: Sampler, begin: int, window: tuple[int, int]) -> None:
        """Samples at a steady pace, and one at each end of the window."""
        sampler.sample()
        times = list(window)
        following = begin
        while True:
            following += int(SAMPLE * 1e9)
            for at in [*(t for t in times if t < following), following]:
                await asyncio.sleep(max(0.0, (at - self.now()) / 1e9))
                sampler.sample()
            times = [t for t in times if t >= following]

    async def _record(self, worker: _Worker) -> Worker:
        after = await _clock(worker.channel)
        return Worker(
            name=worker.name,
            host=worker.host,
            clock_offset_ns=self._offset(worker),
            clock_error_ns=0 if worker.local else worker.offset[1],
            clock_drift_ns=0 if worker.local else after[0] - worker.offset[0],
            cpu_seconds=worker.result["cpu_seconds"],
        )

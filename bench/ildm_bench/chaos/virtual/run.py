"""One schedule, carried out in virtual time and judged."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from ildm.config import Address
from ildm.testing.virtual.makes import MAKES
from ildm.testing.virtual.recount import recount
from ildm.testing.virtual.world import World
from ildm_bench.chaos.drawing import TREE
from ildm_bench.chaos.history import Event, History, Run, digest, origin
from ildm_bench.chaos.recording import Recorder
from ildm_bench.chaos.schedule import Client, Operation, Schedule, Setting
from ildm_bench.chaos.verdict import Finding, Verdict, judge
from ildm_bench.chaos.virtual.client import VirtualClient
from ildm_bench.chaos.virtual.faults import Nemesis
from ildm_bench.chaos.virtual.names import LINKS, Names
from ildm_bench.chaos.virtual.pair import Pair
from ildm_bench.chaos.virtual.reached import rare
from ildm_bench.chaos.virtual.site import Site

SETTLE = 3.0
"""Seconds without a fault in which all hear of a subscription where links form a tree; see `Run.settle`."""
OVERLAY_SETTLE = 6.0
STEP = 0.5
QUIET = 2.0
"""Seconds without a message after which it is looked whether all is as it should be."""
LIMIT = 60.0
"""Seconds after the last operation or fault until it must be; with an overlay:"""
OVERLAY_LIMIT = 240.0
AGREED = 20
"""So many steps after links are idle all nodes see the same tree."""
MISUNDERSTOOD = ("link_malformed", "link_unknown_control", "link_internal_errors", "internal_errors")
"""Counters that say of packets between nodes that they cannot be."""
LONGER = 3
"""Times the limit more, as long as messages are on their way: over a slow link one by one may be allowed."""
ROUNDS = 4
"""So often a thin line, or a link with a rate, may have to carry all that is published: more than once after
faults, and when delays change the tree."""
MENDED = frozenset({"lost", "retained", "stale"})
"""Invariants that may come to hold later; what else was found stays so."""


class Result(NamedTuple):
    """What has come of a schedule. ``reached``: how often rare states were, and what was done at all."""

    verdict: Verdict
    about: Run
    reached: Counter[str]
    trouble: str = ""
    """A traceback, if the node has raised."""

    @property
    def failures(self) -> list[Finding]:
        return self.verdict.ours

    @property
    def failed(self) -> bool:
        return bool(self.failures or self.trouble)


def _untold(op: str, phase: str, **columns: Any) -> None:
    """Of readers nothing is told but what they have brought about."""


class Warm:
    """Sites that have found together. Only one schedule can be carried out with it."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.world = world = World(setting.seed)
        world.recording = False
        world.latencies = {Address(name, LINKS): setting.latency for name in setting.sites}
        self.recorder: Recorder | None = None
        self.names = Names(world, setting)
        make = Pair if setting.pairs else Site
        self.sites = {name: make(world, name, setting, self._tree_changed(name)) for name in setting.sites}
        self.overlay = overlay = setting.algorithm not in TREE
        world.run(8.0 if overlay else 2.5)
        self.settle = OVERLAY_SETTLE if overlay else SETTLE
        self.limit = OVERLAY_LIMIT if overlay else LIMIT
        self.longest = LONGER * self.limit

    def _tree_changed(self, name: str) -> Callable[[], None]:
        def changed() -> None:
            if self.recorder is not None:
                self.recorder.note(f"node/{name}", "tree", "info", site=name)

        return changed

    def run(self, schedule: Schedule, run: str = "0") -> tuple[Result, History]:
        """Carry out a schedule of this setting."""
        world, begin = self.world, self.world.time
        world.random.seed(schedule.seed)
        for name, site in self.sites.items():
            site.broker.pause, site.broker.chance = schedule.pause, Random(f"{schedule.chance} {name}")
        history = History(run)
        recorder = self.recorder = Recorder(history, lambda: world.time - begin)
        nemesis = Nemesis(world, self.sites, recorder, self.setting, self.names)
        recorder.classes(self.setting)
        clients = {}
        late = {target for fault in schedule.faults if fault.kind == "arrive" for target in fault.targets}
        for client in schedule.clients:
            coming = [
                operation.do
                for operation in schedule.operations
                if operation.client == client.name and operation.do in {"connect", "drop", "disconnect"}
            ]
            make = self.sites[client.site].broker.make
            clients[client.name] = VirtualClient(
                world,
                run,
                client,
                recorder.teller(client.name, client.site),
                chance=schedule.chance,
                returns="connect" in coming[coming.index("drop") :] if "drop" in coming else False,
                wills_kept=self.setting.mode != "off",
                says_present=make.says_present,
                keeps_sessions=make.keeps_messages,
                knows_version_5=make.speaks_5,
                lives=self.sites[client.site].undisturbed,
                drains=self.sites[client.site].drains,
                direct=f"node/{client.site}" in late,
                addresses=self.sites[client.site].clients_at,
            )
        nemesis.clients = clients.values()
        for operation in schedule.operations:
            world.call_at(begin + operation.at, clients[operation.client].do, operation)
        for fault in schedule.faults:
            nemesis.plan(fault, begin)
        if self.setting.slowest:
            published = [each for each in schedule.operations if each.do == "publish"]
            size = sum(size for each in published for _, size in each.messages())
            self.longest += ROUNDS * size / self.setting.slowest
        about = self._about(schedule, run)
        verdict, trouble = Verdict([], 0), ""
        try:
            nemesis.readings.repeat()
            world.run(schedule.seconds)
            if self.overlay:
                self._read()
            verdict = self._wait(about, recorder, clients)
            unanswered = [name for name, client in clients.items() if not client.settled]
            assert not unanswered, f"messages of {', '.join(unanswered)} are never acknowledged"
            for site in self.sites.values():
                if not site.driver.dead:
                    recount(site.node)
            self._understood()
            if not self.overlay:
                self._in_one_forest()
        except Exception:  # whatever the node raises is what is looked for
            trouble = traceback.format_exc()
        for event in self._retained(recorder):
            history.add(event)
        about = about._replace(seconds=world.time - begin, complete=not trouble)
        history.finish(about)
        return Result(verdict, about, self._reached(recorder), trouble), history

    def _read(self) -> None:
        """Subscribe to what is retained everywhere: with an overlay a site has only what it asked for."""
        for name, site in self.sites.items():
            reader = VirtualClient(
                self.world,
                "",
                Client(f"reader-{name}", name),
                _untold,
                chance=0,
                returns=False,
                wills_kept=False,
                says_present=True,
                keeps_sessions=True,
                knows_version_5=False,
                lives=site.undisturbed,
                drains=site.drains,
            )
            reader.do(Operation(0.0, reader.about.name, "connect"))
            reader.do(Operation(0.0, reader.about.name, "subscribe", topic="r/#"))

    def _wait(self, about: Run, recorder: Recorder, clients: dict[str, VirtualClient]) -> Verdict:
        """Let time pass until nothing is to be mended any more, or it has been long enough."""
        world, history = self.world, recorder.history
        end = world.time + self.limit
        judged: tuple[int, list[Event]] | None = None
        while True:
            world.run(STEP)
            quiet = recorder.clock() - recorder.last_stir >= QUIET
            late = world.time >= end and ((quiet and self._idle()) or world.time >= end + self.longest)
            if late or (quiet and all(client.settled for client in clients.values())):
                retained = self._retained(recorder)
                known = history.length, [event._replace(t=0.0) for event in retained]
                if judged != known:
                    judged = known
                    verdict = judge([*history.events, *retained], about)
                if late or not any(finding.invariant in MENDED for finding in verdict.ours):
                    return verdict

    def _understood(self) -> None:
        """No node has sent another one what its release, or its settings, do not know."""
        for name, site in self.sites.items():
            totals = site.totals()
            wrong = {counter: totals[counter] for counter in MISUNDERSTOOD if totals[counter]}
            assert not wrong, f"{name} does not understand its neighbours: {wrong}"

    def _in_one_forest(self) -> None:
        """All nodes see the same links and the same tree of them, at the latest a while after all is done."""
        left, end = AGREED, self.world.time + self.longest
        while left and self.world.time < end:
            left -= self._idle()
            seen = {name: site.forest() for name, site in self.sites.items()}
            if len(set(map(str, seen.values()))) == 1:
                return
            self.world.run(STEP)
        raise AssertionError(f"nodes differ about the tree: {seen}")

    def _idle(self) -> bool:
        """Whether no message waits for a link or a broker, or is under way there."""
        nodes = [site.node for site in self.sites.values()]
        return all(
            node.injector.idle and all(link.idle for link in node.links.links.values()) for node in nodes
        )

    def _about(self, schedule: Schedule, run: str) -> Run:
        setting = self.setting
        return Run(
            run,
            algorithm=setting.algorithm,
            broker="+".join(setting.brokers),
            store="lossy" if any(MAKES[name].lossy for name in setting.brokers) else "kept",
            mode=setting.mode,
            sites=len(setting.sites),
            seed=schedule.seed,
            fault="+".join(sorted({fault.kind for fault in schedule.faults})) or "none",
            settle=self.settle,
        )

    def _retained(self, recorder: Recorder) -> list[Event]:
        events, now = [], recorder.clock()
        for name, site in self.sites.items():
            events.append(Event(now, "reader", "retained", "invoke", name))
            for topic, message in site.broker.retained.items():
                found = origin(message.payload)
                publisher, seq = ("", -1) if found is None else (found.publisher, found.seq)
                events.append(
                    Event(
                        now,
                        "reader",
                        "retained",
                        "ok",
                        name,
                        topic=topic,
                        publisher=publisher,
                        seq=seq,
                        value=digest(message.payload),
                    )
                )
        return events

    def _reached(self, recorder: Recorder) -> Counter[str]:
        reached = rare(recorder.history.events)
        for site in self.sites.values():
            reached.update(site.reached())
        return reached

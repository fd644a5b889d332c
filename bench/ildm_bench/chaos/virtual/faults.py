"""What befalls sites in virtual time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from functools import partial
from itertools import combinations
from typing import Any

from ildm.config import Address
from ildm.testing.virtual.pipe import Pipe
from ildm.testing.virtual.process import Process
from ildm.testing.virtual.world import World
from ildm_bench.chaos.recording import Recorder
from ildm_bench.chaos.schedule import CHANGES, DEADLY, Fault, Setting
from ildm_bench.chaos.virtual.carried import Carried, bound
from ildm_bench.chaos.virtual.client import VirtualClient
from ildm_bench.chaos.virtual.names import LINKS, Names
from ildm_bench.chaos.virtual.pair import MEMBERS, Pair
from ildm_bench.chaos.virtual.readings import Readings
from ildm_bench.chaos.virtual.site import NodeDriver, Site

MOVES = 16
"""So often the delay of a path changes while it drifts or flaps."""


class Nemesis:
    """Faults begin and end at their times; those that overlap are over when the last of them is."""

    def __init__(
        self, world: World, sites: Mapping[str, Site], recorder: Recorder, setting: Setting, names: Names
    ) -> None:
        self.world = world
        self.sites = sites
        self.recorder = recorder
        self.names = names
        self.clients: Collection[VirtualClient] = ()
        self.active: Counter[tuple[str, str]] = Counter()
        """How often each kind acts on each target; ``down``: what ends processes."""
        self.slow: dict[str, float] = {}
        self.moved: dict[str, tuple[str, float]] = {}
        """Paths whose delay drifts or flaps, and by how much it is more now, by the numbers of the faults."""
        self.stuck: dict[str, Pipe] = {}
        """Connections that alone are held, by the numbers of the faults."""
        self.latency = setting.latency
        self.line = setting.line or None
        bounds = {site: bound(setting, site) for site in setting.sites}
        most = {site: each for site, each in bounds.items() if each is not None}
        self.carried = Carried(world, recorder, most) if most else None
        self.readings = Readings(world, sites, recorder)
        self.taken: dict[str, tuple[NodeDriver, list[str]]] = {}
        """By the numbers of faults: an owner's process, and the members of its pair that they keep away."""
        self.away: Counter[tuple[str, str]] = Counter()
        """How many faults keep a member of a site."""
        for site in sites.values():
            if isinstance(site, Pair):
                site.ending = partial(self.readings.take, site)
                site.began = partial(recorder.began, f"node/{site.name}")
        world.joined = self._joined
        for first, second in combinations(sites, 2):
            for pipe, ends in self._between(first, second):
                if ends[0] == first:
                    self._met(pipe, ends)
        self._number = 0

    def plan(self, fault: Fault, begin: float) -> None:
        """Let it happen, ``begin`` being when the schedule begins."""
        for place, target in enumerate(fault.targets):
            self._number += 1
            between = fault.value * place if fault.kind == "kill" else 0.0
            at = begin + fault.at
            self.world.call_at(at, self._begin, fault, target, str(self._number))
            self.world.call_at(at + fault.lasts + between, self._end, fault, target, str(self._number))

    def _begin(self, fault: Fault, target: str, number: str) -> None:
        self.recorder.struck(fault.kind, target, number)
        kind = "down" if fault.kind in DEADLY else fault.kind
        self.active[kind, target] += 1
        what, _, where = target.partition("/")
        if what == "link":
            if fault.kind == "slow":
                self.slow[target] = fault.value
            elif fault.kind in {"drift", "flap"}:
                self._move(fault, target, number, 1)
            elif fault.kind == "hold-session":
                self._stick(where, int(fault.value), number)
            self._paths(where)
            return
        site = self.sites[where]
        if isinstance(site, Pair) and what == "node" and kind == "down":
            self._take(site, fault, number)
        elif kind == "down":
            if fault.kind in CHANGES:
                site.variant = fault.variant
            if self.active[kind, target] == 1:
                self._kill(what, site, fault)
        elif fault.kind == "pause":
            self._process(what, site).pause()
        elif fault.kind == "dns":
            self.names.spoilt[where] = int(fault.value)
        elif fault.kind == "clock":
            site.jump(fault.value)
        elif fault.kind == "descriptors":
            site.driver.descriptors = False
        elif fault.kind == "disk-full":
            site.fill_disk(int(fault.value))
        elif fault.kind == "io-error":
            site.break_disk()

    def _end(self, fault: Fault, target: str, number: str) -> None:
        kind = "down" if fault.kind in DEADLY else fault.kind
        self.active[kind, target] -= 1
        self.stuck.pop(number, None)
        self.moved.pop(number, None)
        if number in self.taken:
            self._give_back(fault, target, number)
        elif not self.active[kind, target]:
            what, _, where = target.partition("/")
            if what == "link":
                self._paths(where)
            elif kind == "down":
                self._start(what, self.sites[where])
                if fault.kind == "arrive":
                    for client in self.clients:
                        if client.about.site == where:
                            client.move()
            elif fault.kind == "pause":
                process = self._process(what, self.sites[where])
                if process.paused:
                    process.go_on()
            elif fault.kind == "descriptors":
                self.sites[where].driver.descriptors = True
            elif fault.kind == "dns":
                del self.names.spoilt[where]
            elif fault.kind in {"disk-full", "io-error"}:
                self.sites[where].mend_disk()
        self.recorder.note("nemesis", "heal", "info", topic=fault.kind, session=target, value=number)

    # pairs --------------------------------------------------------------------------------------

    def _take(self, site: Pair, fault: Fault, number: str) -> None:
        """A fault takes the owner, or all members there are."""
        driver, owner = site.driver, site.owner
        members = [owner] if owner else []
        if fault.kind == "deposed" and not fault.value:
            for each in site.processes:
                each.pause()
        else:
            if fault.kind == "both":
                for member in [each for each in site.up if each != owner]:
                    site.leave(member)
                    members.append(member)
            site.end(silent=fault.kind == "deposed")
        self.taken[number] = driver, members
        self.away.update((site.name, member) for member in members)

    def _give_back(self, fault: Fault, target: str, number: str) -> None:
        """What a fault has taken is there again, but for what others keep."""
        driver, members = self.taken.pop(number)
        site = self.sites[target.partition("/")[2]]
        assert isinstance(site, Pair)
        for each in {driver, *site.processes}:
            if each.paused and not each.dead:
                each.go_on()
        for member in sorted(members, key=MEMBERS.index, reverse=bool(fault.value)):
            self.away[site.name, member] -= 1
            if not self.away[site.name, member] and member not in site.up:
                site.rise(member)

    # processes --------------------------------------------------------------------------------

    @staticmethod
    def _process(what: str, site: Site) -> Process:
        return site.driver if what == "node" else site.broker.process

    def _kill(self, what: str, site: Site, fault: Fault) -> None:
        if what == "broker":
            site.broker.lost = lambda message: self.recorder.note(
                f"broker/{site.name}",
                "receive",
                "fail",
                site=site.name,
                topic=message.topic,
                qos=message.qos,
                payload=message.payload,
            )
            site.broker.kill()
            self.recorder.began(f"broker/{site.name}")
        else:
            if fault.kind in CHANGES:
                site.counters["change_waiting"] += any(link.queued for link in site.node.links.links.values())
                if fault.value and not site.driver.paused:
                    site.drain(fault.value, lambda: self._kill_node(site))
                    return
            self._kill_node(site, power=fault.kind == "power")
            if fault.kind == "tear":
                site.tear(int(fault.value))
            elif fault.kind == "flip":
                site.flip(fault.value)
            elif fault.kind == "arrive":
                site.lose_state()
            elif fault.kind == "lose-state":
                for other in self.sites.values():
                    self._named(other, "info", b"".join(other.under_way()))
                self._named(site, "fail", b"".join(site.lose_state()))

    def _named(self, site: Site, phase: str, frames: bytes) -> None:
        """Say which messages of the run a node has lost (fail), or had under way when one lost its state."""
        run = self.recorder.history.run.encode()
        found = re.findall(rb"%s/([a-z]\w*)/(\d+)/" % re.escape(run), frames)
        for publisher, seq in dict.fromkeys(found):
            columns: dict[str, Any] = {"publisher": publisher.decode(), "seq": int(seq)}
            self.recorder.note(f"node/{site.name}", "receive", phase, site=site.name, **columns)

    def _kill_node(self, site: Site, *, power: bool = False) -> None:
        self.readings.take(site)
        site.kill(power=power)

    def _start(self, what: str, site: Site) -> None:
        if what == "broker":
            site.broker.start()
        else:
            if not site.driver.dead:  # it has drained for too long
                self._kill_node(site)
            site.start()
            self.recorder.began(f"node/{site.name}")

    # links ------------------------------------------------------------------------------------

    def _paths(self, where: str) -> None:
        """Make all connections between two sites what the faults upon them say, old and new ones."""
        first, _, second = where.partition("/")
        pairs = ((first, second), (second, first))
        cut = any(self.active["cut", f"link/{one}/{other}"] for one, other in pairs)
        held = any(self.active["hold", f"link/{one}/{other}"] for one, other in pairs)
        mute = {one: bool(self.active["hold-one-way", f"link/{one}/{other}"]) for one, other in pairs}
        for one, other in pairs:
            path = (one, Address(other, LINKS))
            if cut or held or any(mute.values()):
                self.world.barred.add(path)
            else:
                self.world.barred.discard(path)
        for pipe, ends in self._between(first, second):
            if cut:
                pipe.reset()
                continue
            pipe.latency = self._latency(first, second)
            stands_still = held or pipe in self.stuck.values()
            if pipe.cut != stands_still:
                pipe.cut = stands_still
            if pipe.mute != mute[ends[0]]:
                pipe.mute = mute[ends[0]]

    def _between(self, first: str, second: str) -> list[tuple[Pipe, tuple[str, str]]]:
        """Ends of the connections between two sites, and where each is and the other."""
        both = ((pipe, _ends(pipe)) for pipe in self.world.pipes)
        return [(pipe, ends) for pipe, ends in both if ends is not None and set(ends) == {first, second}]

    def _stick(self, where: str, which: int, number: str) -> None:
        """One connection alone is held, if there are so many."""
        first, _, second = where.partition("/")
        pipes = [pipe for pipe, ends in self._between(first, second) if ends[0] == first]
        if which < len(pipes):
            self.stuck[number] = pipes[which]

    def _move(self, fault: Fault, target: str, number: str, turn: int) -> None:
        """The delay of a path changes, and will again: ``turn`` counts from 1."""
        part = 1 - abs(2 * turn / MOVES - 1) if fault.kind == "drift" else turn % 2
        self.moved[number] = target, fault.value * part
        self._paths(target.partition("/")[2])
        if turn < MOVES:
            at = self.world.time + fault.lasts / MOVES
            self.world.call_at(at, self._move, fault, target, number, turn + 1)

    def _latency(self, first: str, second: str) -> float:
        """Seconds from one site to another, now."""
        targets = f"link/{first}/{second}", f"link/{second}/{first}"
        moved = sum(more for target, more in self.moved.values() if target in targets)
        slow = max(self.slow[target] if self.active["slow", target] else 0.0 for target in targets)
        return self.latency + slow + moved

    def _joined(self, pipe: Pipe) -> None:
        """A new connection is as slow as its path."""
        ends = _ends(pipe)
        if ends is not None and set(ends) <= self.sites.keys():
            pipe.latency = pipe.other.latency = self._latency(*ends)
            if ends[0] != ends[1]:
                self._met(pipe, ends)

    def _met(self, pipe: Pipe, ends: tuple[str, str]) -> None:
        """A connection between sites is as thin as its line, and metered."""
        pipe.rate = pipe.other.rate = self.line
        if self.carried is not None:
            self.carried.meter(pipe, ends)


def _ends(pipe: Pipe) -> tuple[str, str] | None:
    """Names of the processes at this end and at the other, where both are known."""
    if pipe.owner is None or pipe.other.owner is None:
        return None
    return pipe.owner.name, pipe.other.owner.name

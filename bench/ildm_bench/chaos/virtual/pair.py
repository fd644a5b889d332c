"""A site in virtual time whose node is a pair: two members with one state directory. One owns the site.

The states of the members and the watch for the owner's word are the product's (`ildm.core.pair`). The lock of
the state directory and the end of a silent owner are the kernel's, and played here. Both members have the
addresses of the site.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from ildm.config import Address
from ildm.core.counters import Counters
from ildm.core.guests.hosting import Host, HostSession
from ildm.core.guests.node import GuestNode
from ildm.core.local.client_session import ClientSession
from ildm.core.node import Node
from ildm.core.pair.states import Member, MemberEvent
from ildm.core.pair.word import LOOKS, WORDS, SilenceWatch, Word
from ildm.core.plugin.loading import PluginSpecs
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.process import Process
from ildm_bench.chaos.virtual.site import NodeDriver, Site

MEMBERS = "a", "b"
GUESTS = 11
"""Port of the first member for clients while it stands by; that of the next one follows."""
CLAIM_AFTER = 0.5
"""Seconds of silence after which a member takes the site."""
FREED = 0.001
"""Seconds after the end of an owner until another member has the lock."""


class Pair(Site):
    """:attr:`node` and :attr:`driver` are those of the member that owns the site, or has owned it last."""

    paired = True

    def __init__(self, *given: Any) -> None:
        self.members: dict[str, Member] = {}
        self.up: dict[str, Process] = {}
        """Members that run; of one that stands by, its process."""
        self.owner = ""
        """Who has the lock; empty: nobody."""
        self.word: Word | None = None
        """In the state directory."""
        self.gone: dict[str, NodeDriver] = {}
        """The last life of members that have ended as owners; their machines may be away."""
        self.ending: Callable[[], object] = lambda: None
        """Told before an owner ends."""
        self.began: Callable[[], object] = lambda: None
        """Told when another one serves."""
        self.guests: dict[str, GuestNode] = {}
        """Of members that run and have stood by: what serves clients there."""
        self.gone_guests: dict[str, WorldDriver] = {}
        """As :attr:`gone`, of what has served clients there."""
        self._risen = 0
        super().__init__(*given)

    def start(self) -> None:
        """Both members do."""
        for member in MEMBERS:
            self.rise(member)

    def back(self) -> None:
        """The machine of a former owner is back when that member is."""

    def rise(self, member: str) -> None:
        """A member starts: it owns the site if nobody does, or stands by."""
        for gone in (self.gone, self.gone_guests):
            former = gone.pop(member, None)
            if former is not None:
                self.world.notice(former)
        self.members[member] = state = Member(member)
        self.up[member] = process = Process(self.world, self.name)
        if not self.owner:
            self._claim(member)
            return
        state.step(MemberEvent.REFUSED)
        self._serve(member)
        self._watch(process, state, SilenceWatch(CLAIM_AFTER, self.world.time))

    def end(self, *, silent: bool = False) -> str:
        """The owner does, by kill -9; answers who that was, empty: there is none.

        ``silent``: its machine goes, so that nobody hears of it, and the lock is free after a while.
        """
        member, self.owner = self.owner, ""
        if member:
            self.ending()
            self.kill(silent=silent)
            self._end_guests(member, silent=silent)
            self.gone[member] = self.driver
            self.leave(member)
            self.world.call_at(self.world.time + (CLAIM_AFTER if silent else FREED), self._freed)
        return member

    def leave(self, member: str) -> None:
        """The process of a member is no more."""
        self.up.pop(member).dead = True
        self._end_guests(member)
        self.members[member].step(MemberEvent.ENDED)

    def fence(self) -> None:
        """End the silent owner, so that its lock is free."""
        self.counters["pair_fenced"] += 1
        self.end()

    def _freed(self) -> None:
        for member in list(self.up):
            self._claim(member)

    def _claim(self, member: str) -> None:
        if self.owner:
            return
        self.owner, state = member, self.members[member]
        state.step(MemberEvent.LOCKED)
        self.up[member].dead = True  # it watches nobody any more, but serves
        for known in (self.world.listeners, self.world.owners):
            known.pop(self._place(member), None)  # those who come from now on are the owner's
        super().start()
        state.step(MemberEvent.OPENED)
        self.counters["pair_claims"] += 1
        self.began()
        self._say(self.driver, Word(member, self.node.epoch, 0, "machine"))

    # clients of members that stand by -------------------------------------------------------------

    @property
    def clients_at(self) -> list[Address]:
        found = super().clients_at
        return found + [self._place(member) for member in MEMBERS] if self.setting.guests else found

    @property
    def processes(self) -> list[WorldDriver]:
        """The drivers of the owner's process."""
        found: list[WorldDriver] = [self.driver]
        guest = self.guests.get(self.owner)
        if guest is not None:
            assert isinstance(guest.driver, WorldDriver)
            found.append(guest.driver)
        return found

    def _place(self, member: str) -> Address:
        return Address(self.name, GUESTS + MEMBERS.index(member))

    def _serve(self, member: str) -> None:
        """A member that stands by serves clients."""
        if not self.setting.guests:
            return
        self._risen += 1
        driver = WorldDriver(self.world, self.name)
        driver.clock = self.clock
        node = GuestNode(
            self.node.config,
            PluginSpecs(None, ()),
            driver,
            node_id=self.name,
            member=member,
            life=str(self._risen),
            at=Address(f"{self.name}.sock", 0, "unix"),
            counters=Counters(),
        )
        self.guests[member] = node
        node.start_serving()
        self.world.listen(self._place(member), lambda: ClientSession(node.local), driver)

    def _end_guests(self, member: str, *, silent: bool = False) -> None:
        node = self.guests.pop(member, None)
        if node is not None:
            assert isinstance(node.driver, WorldDriver)
            self.world.kill(node.driver, silent=silent)
            self.gone_guests[member] = node.driver
            self.counters.update(node.counters)

    def resume(self, node: Node) -> Callable[[], None] | None:
        if not self.setting.guests:
            return None
        host = Host(node, MEMBERS)
        at = Address(f"{self.name}.sock", 0, "unix")
        self.world.listen(at, lambda: HostSession(host), self.driver)
        return host.restore

    def totals(self) -> Counter[str]:
        return super().totals() + sum((Counter(node.counters) for node in self.guests.values()), Counter())

    def _say(self, driver: NodeDriver, word: Word) -> None:
        """The owner's word, now and again and again; a process that stands still says none."""
        self.word = word
        driver.call_later(CLAIM_AFTER / WORDS, self._say, driver, word._replace(number=word.number + 1))

    def _watch(self, process: Process, state: Member, watch: SilenceWatch) -> None:
        """A member that stands by looks after the owner."""
        if watch.look(self.word, self.world.time):
            state.step(MemberEvent.HEARD)
        elif watch.silent:
            watch.begin()
            state.step(MemberEvent.SILENT)
            if self.owner:
                self.fence()
        at = self.world.time + CLAIM_AFTER / LOOKS
        self.world.call_at(at, self._watch, process, state, watch, owner=process)

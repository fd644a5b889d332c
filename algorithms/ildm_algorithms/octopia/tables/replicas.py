"""How the tables of nodes come to agree: subscriptions within a cluster.

Each node has the last word on its own set of subscriptions, which it numbers by versions. A change goes along
the tree of the cluster (SUB, UNSUB). A node that lacks a version fetches the whole set from the neighbour
that announced the change. As long as a live node's set is not here, the node counts as one that wants
everything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ildm_algorithms.octopia.messages import (
    GONE,
    Fetch,
    Hello,
    OverlayError,
    SetVersion,
    Subs,
    SubscriptionEntry,
)
from ildm_algorithms.octopia.tables.pages import pages, size_of_entry
from ildm_algorithms.octopia.tables.sessions import Sessions
from ildm_algorithms.octopia.tables.tables import Clt, Prt

if TYPE_CHECKING:
    from ildm.api import NodeApi
    from ildm_algorithms.octopia.config import OctopiaConfig
    from ildm_algorithms.octopia.content.content import ContentFilter
    from ildm_algorithms.octopia.grid.members import Members
    from ildm_algorithms.octopia.grid.scot import View

__all__ = ["Replicas"]

AT_ONCE = 1
"""Messages of a large set sent at once."""
PAUSE = 0.02
"""Seconds until the next ones."""
CALM = 1.0
"""Seconds between two attempts to fetch the same set."""


class _Copy:
    """Another home's set, as far as it is here."""

    __slots__ = ("complete", "fetched", "incarnation", "listed", "part", "version")

    def __init__(self) -> None:
        self.incarnation = 0
        self.version = 0
        self.complete = False
        self.fetched: float | None = None
        self.part = 0
        """The last that has come of a set that is being fetched."""
        self.listed: set[ContentFilter] = set()
        """Its filters so far."""


class Replicas:
    """Keeps the tables of this node and those of its neighbours the same."""

    def __init__(
        self,
        api: NodeApi,
        config: OctopiaConfig,
        members: Members,
        count: Callable[..., None],
    ) -> None:
        self.api = api
        self.config = config
        self.members = members
        self.count = count
        own = members.view.cluster
        self.prt = Prt()
        self.clt = Clt(self.prt, (i for i in range(len(config.grid.clusters)) if i != own), config.summary)
        self.sessions = Sessions(api, config, members, self.clt, self.lacking, count)
        self._version = 0
        self._copies: dict[str, _Copy] = {}
        self._waiting: dict[str, deque[Subs]] = {}
        """Pages of sets for neighbours that have fetched them, and what came after."""

    # what hellos say ----------------------------------------------------------------------------------

    def sets(self, node_id: str) -> tuple[SetVersion, ...]:
        """The sets that a primary neighbour can fetch here."""
        members = self.members
        if node_id not in members.view.primary.values():
            return ()
        found = [SetVersion(members.number, members.incarnation, self._version)]
        found += (
            SetVersion(members.contacts[home].number, copy.incarnation, copy.version)
            for home, copy in sorted(self._copies.items())
            if copy.complete
        )
        return tuple(found)

    def hello(self, node_id: str, hello: Hello) -> None:
        """Compare what a node says with what is here."""
        view = self.members.view
        if node_id in view.primary.values():
            for known in hello.sets:
                home = self.members.member(known.member)
                if view.next_hop(home) == node_id and self._lacks(home, known.incarnation, known.version):
                    self._fetch(home, node_id)
        elif node_id in view.secondary.values():
            self.sessions.hello(node_id, hello)

    # subscriptions ------------------------------------------------------------------------------------

    def lacking(self) -> list[str]:
        """Live nodes of this cluster whose sets are not here: they may want everything."""
        members = self.members
        found = []
        for node_id in members.view.cluster_members.values():
            if node_id != members.me:
                copy = self._copies.get(node_id)
                newest = members.contacts[node_id].incarnation
                if copy is None or not copy.complete or copy.incarnation != newest:
                    found.append(node_id)
        return found

    def absent(self) -> tuple[int, ...]:
        """Nodes of this cluster whose subscriptions are not in the tables, for whatever reason."""
        contacts = self.members.contacts
        return tuple(sorted(contacts[n].number for n in (*self.members.gone, *self.lacking())))

    def change(self, added: Mapping[ContentFilter, int], removed: Iterable[ContentFilter] = ()) -> None:
        """The subscriptions of this node's clients have changed."""
        me = self.members.me
        entries = [SubscriptionEntry(content, qos) for content, qos in added.items()]
        entries += [SubscriptionEntry(content, GONE) for content in removed]
        self._version += len(entries)
        self.sessions.tell(self.clt.changed(self.prt.change(me, self._version, *_split(entries))))
        version = self._version - len(entries)
        for some in pages(entries, size_of_entry):
            version += len(some)
            subs = Subs(self.members.number, self.members.incarnation, version, 0, 0, tuple(some))
            self._along(subs, None)

    def on_subs(self, sender: str, subs: Subs) -> None:
        """A set of another node of the cluster, or changes of it."""
        home = self.members.member(subs.home)
        if home == self.members.me:
            return
        if home not in self.members.mates:
            raise OverlayError(f"subscriptions of {home}, which is in another cluster")
        if subs.incarnation < self.members.contacts[home].incarnation:
            self.count("stale_subs")
            return
        copy = self._copies.setdefault(home, _Copy())
        if subs.incarnation > copy.incarnation:
            self._copies[home] = copy = _Copy()
            copy.incarnation = subs.incarnation
            if not subs.parts and subs.version == len(subs.entries):
                copy.complete = True  # from its first change on
                self.sessions.tell(self.clt.changed(self.prt.drop(home)))
        if subs.parts:
            self._part(sender, home, copy, subs)
        else:
            self._changes(sender, home, copy, subs)

    def _changes(self, sender: str, home: str, copy: _Copy, subs: Subs) -> None:
        first = subs.version - len(subs.entries) + 1
        if subs.incarnation != copy.incarnation or subs.version <= copy.version:
            self.count("doubled_subs")
        elif not copy.complete or first > copy.version + 1:
            self._fetch(home, sender)
        else:
            news = subs.entries[copy.version + 1 - first :]
            if self._full(home, len(self.prt.at(home)) + len(news)):
                return
            begun = not copy.version
            copy.version = subs.version
            self.sessions.tell(self.clt.changed(self.prt.change(home, subs.version, *_split(news))))
            self._along(subs, sender)
            if begun:
                self._completed()

    def _part(self, sender: str, home: str, copy: _Copy, subs: Subs) -> None:
        if subs.incarnation != copy.incarnation or (copy.complete and subs.version <= copy.version):
            self.count("doubled_subs")
            return
        if not 0 < subs.part <= subs.parts:
            raise OverlayError(f"part {subs.part} of {subs.parts}")
        if subs.part == 1:
            copy.complete, copy.version, copy.part, copy.listed = False, subs.version, 0, set()
        if subs.version != copy.version or subs.part != copy.part + 1:
            return  # something of it was lost: it will be fetched again
        copy.part, copy.fetched = subs.part, self.api.now()
        added, _ = _split(subs.entries)
        copy.listed.update(added)
        if self._full(home, len(copy.listed)):
            return
        self.sessions.tell(self.clt.changed(self.prt.change(home, subs.version, added)))
        if subs.part < subs.parts:
            return
        gone = [content for content in self.prt.at(home) if content not in copy.listed]
        self.sessions.tell(self.clt.changed(self.prt.change(home, subs.version, {}, gone)))
        copy.complete, copy.listed, copy.fetched = True, set(), None
        for node_id in self.members.view.primary.values():
            if node_id != sender:
                self.members.greet(node_id)  # which may lack it, too
        self._completed()

    def _completed(self) -> None:
        """Another set is here."""
        self.sessions.answer_all()
        self.members.greet_region()

    def _full(self, home: str, filters: int) -> bool:
        """A home with too many filters counts as one that wants everything."""
        if filters <= self.config.max_filters:
            return False
        self.count("homes_full")
        self._copies[home] = copy = _Copy()
        copy.incarnation = self.members.contacts[home].incarnation
        self.sessions.tell(self.clt.changed(self.prt.drop(home)))
        return True

    def _along(self, subs: Subs, sender: str | None) -> None:
        for node_id in self.members.view.primary.values():
            if node_id == sender:
                continue
            if node_id in self._waiting:
                self._waiting[node_id].append(subs)
            else:
                self.members.send(node_id, subs)

    def _lacks(self, home: str, incarnation: int, version: int) -> bool:
        contact = self.members.contacts[home]
        if home == self.members.me or incarnation < contact.incarnation:
            return False
        copy = self._copies.get(home)
        return (
            copy is None
            or not copy.complete
            or incarnation > copy.incarnation
            or (incarnation == copy.incarnation and version > copy.version)
        )

    def _fetch(self, home: str, node_id: str) -> None:
        copy = self._copies.setdefault(home, _Copy())
        now = self.api.now()
        if copy.fetched is None or now - copy.fetched >= CALM:
            copy.fetched = now
            self.count("fetches")
            self.members.send(node_id, Fetch(self.members.contacts[home].number))

    def on_fetch(self, sender: str, fetch: Fetch) -> None:
        """A neighbour lacks a set that it believes to be here."""
        home = self.members.member(fetch.home)
        if home == self.members.me:
            incarnation, version = self.members.incarnation, self._version
        else:
            copy = self._copies.get(home)
            if copy is None or not copy.complete:
                return
            incarnation, version = copy.incarnation, copy.version
        entries = [SubscriptionEntry(content, qos) for content, qos in self.prt.at(home).items()]
        parts = list(pages(entries, size_of_entry)) or [[]]
        waiting = self._waiting.setdefault(sender, deque())
        if any(subs.home == fetch.home and subs.parts for subs in waiting):
            return  # it is on its way
        idle = not waiting
        waiting.extend(
            Subs(fetch.home, incarnation, version, part, len(parts), tuple(some))
            for part, some in enumerate(parts, 1)
        )
        if idle:
            self._send_some(sender)

    def _send_some(self, node_id: str) -> None:
        """Some pages of sets; what has changed meanwhile comes behind."""
        waiting = self._waiting[node_id]
        for _ in range(min(AT_ONCE, len(waiting))):
            self.members.send(node_id, waiting.popleft())
        if waiting:
            self.api.call_later(PAUSE, self._send_some, node_id)
        else:
            del self._waiting[node_id]

    # who comes and goes -----------------------------------------------------------------------------------

    def view_changed(self, before: View) -> None:
        """Other nodes are alive than before."""
        view = self.members.view
        for node_id in before.cluster_members.values():
            if node_id not in view.cluster_members.values():
                self._forget_home(node_id)
        for node_id in before.secondary.values():
            if node_id not in view.secondary.values():
                self.sessions.forget(node_id)
        for node_id in view.primary.values():
            if node_id not in before.primary.values():
                self.members.greet(node_id)
        self.sessions.answer_all()

    def restarted(self, node_id: str) -> None:
        """A node has begun a new incarnation."""
        if node_id in self._copies:
            self._forget_home(node_id)
        self.sessions.forget(node_id)

    def _forget_home(self, node_id: str) -> None:
        self._copies.pop(node_id, None)
        self.sessions.tell(self.clt.changed(self.prt.drop(node_id)))


def _split(entries: Iterable[SubscriptionEntry]) -> tuple[dict[ContentFilter, int], list[ContentFilter]]:
    """The last word on each filter: what is added, and what is withdrawn."""
    last = dict(entries)
    added = {content: qos for content, qos in last.items() if qos != GONE}
    if any(qos > GONE for qos in last.values()):
        raise OverlayError("a subscription with a QoS that is none")
    return added, [content for content, qos in last.items() if qos == GONE]

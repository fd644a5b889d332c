"""Which keys this node has in the graph, and which it ought to have.

A node takes part in a segment with one key. It is a subscriber while a local filter leads there, else a
publisher while a topic of local clients does. A node that is both is a subscriber (thesis 3.2.1). When the
role changes, the node first enters with the new key and then leaves with the old one. So nothing is missed in
between. Keys enter and leave in turns (:mod:`ildm_algorithms.exchange.pacing`).

Where the graph has no room for all, subscribers' keys come first: a publisher can send without a key, a
subscriber gets nothing. So keys of publishers leave for them, those of aggregates last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ildm.mqtt import IldmError
from ildm_algorithms.exchange.pacing import Pace
from ildm_algorithms.tbps.keys.encoding import Role, Segment
from ildm_algorithms.tbps.publishers.publisher import Publisher, PublisherState

if TYPE_CHECKING:
    from ildm.api import NodeApi
    from ildm_algorithms.tbps.config import TbpsConfig

__all__ = ["Graph", "KeyState", "Member", "Progress", "Segments"]

REFUSED_AGAIN = 60.0
"""Seconds between two log lines about keys the graph has no room for."""
_LANES = {Role.SUBSCRIBER: 0, Role.PUBLISHER: 1}
_LEAVING = 2
LOGGED = 10
"""Filters named in one line of the log."""


class Graph(Protocol):
    """What is needed of the Skip Graph here."""

    def insert(self, key: bytes) -> None: ...

    def remove(self, key: bytes) -> None: ...


class KeyState(Enum):
    """State of one key of this node, as far as the graph has reported."""

    OUT = "out"
    QUEUED = "queued"
    """To enter in its turn, or when another key has made room."""
    JOINING = "joining"
    IN = "in"
    LEAVING = "leaving"


class Progress(Enum):
    """Of the search for the retained messages a filter matches."""

    NONE = "none"
    ASKED = "asked"
    DONE = "done"


class Member:
    """This node in one segment."""

    __slots__ = (
        "filters",
        "fresh",
        "keys",
        "last_sent",
        "prepared",
        "publisher",
        "segment",
        "skipped",
        "states",
        "subscribers",
        "topics",
        "waiters",
    )

    def __init__(self, segment: Segment, node_id: str, locality: Sequence[str]) -> None:
        self.segment = segment
        self.subscribers = segment.subscribers
        self.filters: dict[str, Progress] = {}
        """Local filters that lead here, and how far the search for retained messages is."""
        self.fresh: list[str] = []
        """Those for which it has not begun; some may be gone."""
        self.topics: set[str] = set()
        """Topics of local publishers that lead here."""
        self.waiters: set[str] = set()
        """Those of them that wait until a key is in the graph."""
        self.keys = {
            Role.SUBSCRIBER: segment.subscriber_key(node_id, locality),
            Role.PUBLISHER: segment.publisher_key(node_id, locality),
        }
        self.states = {Role.SUBSCRIBER: KeyState.OUT, Role.PUBLISHER: KeyState.OUT}
        self.publisher = Publisher(node_id)
        self.prepared = False
        """It is known how to send messages into the segment."""
        self.last_sent: float | None = None
        """When a message was last sent into the segment."""
        self.skipped: float | None = None
        """When the first was published that was not sent since, as nobody seemed to be there."""

    def skip(self, published: float) -> None:
        """A message is not sent. It may have waited, and be older than those that were skipped before."""
        self.skipped = published if self.skipped is None else min(published, self.skipped)

    @property
    def intended(self) -> Role | None:
        """The role this node ought to have."""
        return Role.SUBSCRIBER if self.filters else Role.PUBLISHER if self.topics else None

    @property
    def subscribed(self) -> bool:
        """The subscriber key is in the graph."""
        return self.states[Role.SUBSCRIBER] is KeyState.IN

    @property
    def inside(self) -> bool:
        """A key is in the graph."""
        return self.subscribed or self.publisher.state is not PublisherState.JOINING

    @property
    def ready(self) -> bool:
        """Messages can be sent into the segment, or it is known that nobody wants them."""
        return self.prepared and self.inside

    @property
    def active(self) -> bool:
        """There may be subscribers. One that is subscriber itself is exempt from suspension."""
        return self.subscribed or self.publisher.state is PublisherState.ACTIVE

    @property
    def sends(self) -> bool | None:
        """:attr:`active` of one that is :attr:`ready`; None for another. Each message asks."""
        if not self.prepared:
            return None
        if self.states[Role.SUBSCRIBER] is KeyState.IN:
            return True
        state = self.publisher.state
        return None if state is PublisherState.JOINING else state is PublisherState.ACTIVE

    @property
    def suspended(self) -> bool | None:
        """Whether this publisher is suspended; None for a subscriber and while joining."""
        if self.subscribed or self.publisher.state is PublisherState.JOINING:
            return None
        return self.publisher.suspended


class Segments:
    """The segments this node is in, kept in step with the graph."""

    def __init__(self, graph: Graph, api: NodeApi, config: TbpsConfig, count: Callable[[str], None]) -> None:
        self.graph = graph
        self.api = api
        self.count = count
        self.node_id = api.node_id
        self.locality = tuple(config.locality)
        self.members: dict[bytes, Member] = {}
        """By the code of the segment."""
        self._by_key: dict[bytes, tuple[Member, Role]] = {}
        self._enabled = False
        self._pace = Pace(api, config.join_rate, config.joins, lanes=3)
        self._to_leave: set[bytes] = set()
        """Keys whose turn to leave has yet to come."""
        self._refused: dict[Role, dict[bytes, Member]] = {Role.SUBSCRIBER: {}, Role.PUBLISHER: {}}
        """Keys the graph has no room for, the longest refused first."""
        self._spare: dict[bool, dict[bytes, Member]] = {False: {}, True: {}}
        """Keys of publishers in the graph that can make room; True: of aggregates."""
        self._ceding: dict[bytes, Member] = {}
        """Those that are about to do so."""
        self._logged_refused = -REFUSED_AGAIN

    def enable(self) -> None:
        """The graph is there: enter it with all roles that are due by now."""
        self._enabled = True
        for member in list(self.members.values()):
            self._reconcile(member)

    def disable(self) -> None:
        """The node leaves the graph; keys that are out stay out."""
        self._enabled = False

    def find(self, key: bytes) -> tuple[Member, Role] | None:
        """Segment and role of an own key; None for the default key and for keys given up."""
        return self._by_key.get(key)

    def get(self, segment: Segment) -> Member | None:
        return self.members.get(segment.code)

    def publisher(self, segment: Segment) -> Publisher | None:
        """The publisher of a segment, if this node is one or is becoming one."""
        member = self.members.get(segment.code)
        if member is None or member.states[Role.PUBLISHER] is KeyState.OUT:
            return None
        return member.publisher

    def subscribe(self, segment: Segment, topic_filter: str) -> Member:
        def want(member: Member) -> None:
            if topic_filter not in member.filters:
                member.filters[topic_filter] = Progress.NONE
                member.fresh.append(topic_filter)

        return self._change(segment, want)

    def unsubscribe(self, segment: Segment, topic_filter: str) -> None:
        self._change(segment, lambda member: member.filters.pop(topic_filter, None))

    def advertise(self, segment: Segment, topic: str) -> Member:
        """Local clients publish to ``topic``, which leads into the segment."""
        return self._change(segment, lambda member: member.topics.add(topic))

    def withdraw(self, segment: Segment, topic: str) -> None:
        def forget(member: Member) -> None:
            member.topics.discard(topic)
            member.waiters.discard(topic)

        self._change(segment, forget)

    def joined(self, key: bytes) -> tuple[Member, Role] | None:
        """The graph has taken in an own key; None if it is none of a segment."""
        found = self._by_key.get(key)
        if found is not None:
            member, role = found
            member.states[role] = KeyState.IN
            if role is Role.PUBLISHER:
                self._spare[member.segment.is_aggregate][key] = member
            self._pace.ended()
        return found

    def settled(self, member: Member) -> None:
        """To be called when all that follows from :meth:`joined` is done: what is superfluous leaves."""
        self._reconcile(member)
        self._make_room()

    def left(self, key: bytes) -> None:
        """The graph has let go of an own key."""
        found = self._by_key.get(key)
        if found is None:
            return
        member, role = found
        member.states[role] = KeyState.OUT
        self._pace.ended()
        if role is Role.PUBLISHER:
            member.publisher = Publisher(self.node_id)
            self._spare[member.segment.is_aggregate].pop(key, None)
            if self._ceding.pop(key, None) is not None and member.intended is role:
                member.states[role] = KeyState.QUEUED
                self._refused[role][key] = member
        if not {KeyState.IN, KeyState.LEAVING} & set(member.states.values()):
            member.prepared = False
        self._reconcile(member)
        self._try_refused()

    def _change(self, segment: Segment, change: Callable[[Member], object]) -> Member:
        member = self.members.get(segment.code)
        if member is None:
            member = self.members[segment.code] = Member(segment, self.node_id, self.locality)
        change(member)
        self._reconcile(member)
        return member

    def _reconcile(self, member: Member) -> None:
        """Take the next step from the keys there are to the key there ought to be."""
        if not self._enabled:
            return
        intended = member.intended
        for role, state in list(member.states.items()):
            key = member.keys[role]
            if role is intended and state is KeyState.OUT:
                member.states[role] = KeyState.QUEUED
                self._by_key[key] = member, role
                self._pace.add(partial(self._enter, member, role), _LANES[role])
            elif role is not intended and state is KeyState.QUEUED:
                member.states[role] = KeyState.OUT
                if self._refused[role].pop(key, None) is not None and role is Role.SUBSCRIBER:
                    self._try_refused()  # what publishers had to wait for is perhaps over
            elif self._superfluous(member, role) and key not in self._to_leave:
                self._to_leave.add(key)
                self._pace.add(partial(self._leave, member, role), _LEAVING)
        # the graph may have called back from within, so look at the states as they are now
        for role, state in member.states.items():
            if state is KeyState.OUT:
                self._by_key.pop(member.keys[role], None)
        if member.intended is None and set(member.states.values()) == {KeyState.OUT}:
            self.members.pop(member.segment.code, None)

    def _superfluous(self, member: Member, role: Role) -> bool:
        """A key is in the graph that ought not to be, and the other one is there if that is due."""
        intended = member.intended
        if intended is role or member.states[role] is not KeyState.IN:
            return False
        return intended is None or member.states[intended] is KeyState.IN

    def _enter(self, member: Member, role: Role) -> bool:
        """The turn of a key to enter the graph."""
        if not self._enabled or member.states[role] is not KeyState.QUEUED or member.intended is not role:
            self._try_refused()
            return False
        if role is Role.PUBLISHER and self._refused[Role.SUBSCRIBER]:
            self._refuse(member, role, "subscriptions wait for room")
            return False
        member.states[role] = KeyState.JOINING
        try:
            self.graph.insert(member.keys[role])
        except IldmError as error:  # too many keys
            member.states[role] = KeyState.QUEUED
            self._refuse(member, role, str(error))
            return False
        return True

    def _leave(self, member: Member, role: Role) -> bool:
        """The turn of a key to leave it."""
        self._to_leave.discard(member.keys[role])
        if not self._enabled or not self._superfluous(member, role):
            return False
        member.states[role] = KeyState.LEAVING
        self.graph.remove(member.keys[role])
        return True

    def _refuse(self, member: Member, role: Role, reason: str) -> None:
        self.count("keys_refused")
        self._refused[role][member.keys[role]] = member
        self._make_room()
        if role is Role.SUBSCRIBER and len(self._refused[role]) > len(self._ceding):
            self.count("subscribers_refused")
            self.api.log(
                "no room for the key of a subscription: what others publish does not come",
                filters=", ".join(sorted(member.filters)[:LOGGED]),
                number=len(member.filters),
                reason=reason,
            )
        now = self.api.now()
        if now >= self._logged_refused + REFUSED_AGAIN:
            self._logged_refused = now
            self.api.log(
                "no room for a key in the overlay",
                segment=member.segment.text,
                role=role.value,
                reason=reason,
                refused=sum(map(len, self._refused.values())),
            )

    def refused(self, role: Role) -> list[Member]:
        """Those whose key of that role has no room in the graph."""
        return list(self._refused[role].values())

    def _try_refused(self) -> None:
        """Another key has made room, or does not need it any more."""
        for role, refused in self._refused.items():  # subscribers first
            if refused:
                key = next(iter(refused))
                self._pace.add(partial(self._enter, refused.pop(key), role), _LANES[role])
                return

    def _make_room(self) -> None:
        """Keys of publishers leave, as many as subscribers have found no room."""
        for spare in self._spare.values():
            while spare and len(self._ceding) < len(self._refused[Role.SUBSCRIBER]):
                key = next(iter(spare))
                member = self._ceding[key] = spare.pop(key)
                self._pace.add(partial(self._cede, member), _LEAVING)

    def _cede(self, member: Member) -> bool:
        """The turn of a publisher's key to make room."""
        key = member.keys[Role.PUBLISHER]
        if member.states[Role.PUBLISHER] is not KeyState.IN:
            return False  # it has left by itself, or is about to
        if not self._enabled or not self._refused[Role.SUBSCRIBER]:
            del self._ceding[key]
            self._spare[member.segment.is_aggregate][key] = member
            return False
        self.count("keys_ceded")
        member.states[Role.PUBLISHER] = KeyState.LEAVING
        self.graph.remove(key)
        return True

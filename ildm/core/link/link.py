"""A link: everything this node shares with one neighbour, across the lives of its TCP connections."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from ildm.api import Peer
from ildm.core.link.clocks import NeighborClock
from ildm.core.link.compression import Totals
from ildm.core.link.features import NONE
from ildm.core.link.interest import Announcer, ReceivedInterest
from ildm.core.link.round_trip import RoundTrip
from ildm.core.link.state import Stateful
from ildm.core.link.subtree import Subtree
from ildm.core.link.translation import Translation
from ildm.core.link.versions import FIRST, PROTOCOLS
from ildm.core.plugin.arguments import new_filters, old_filters
from ildm.core.transfer.back_pressure import limits_of
from ildm.core.transfer.batch import Batch, single
from ildm.core.transfer.inbound import Inbound
from ildm.core.transfer.queue import Entry
from ildm.core.transfer.sender import Sender, total
from ildm.core.transfer.sender_state import EXPIRED, FORGOTTEN, PASSED_BY, RETURNED
from ildm.core.transfer.share import Share
from ildm.core.transfer.skipped import Skipped
from ildm.mqtt import EncodeError, Publish

if TYPE_CHECKING:
    from ildm.config import LinkConfig
    from ildm.core.counters import Counters
    from ildm.core.declared import Left
    from ildm.core.driver import Driver
    from ildm.core.link.budgets import Limit
    from ildm.core.link.hello import Hello
    from ildm.core.link.ports import Connection
    from ildm.core.link.scope import Scope
    from ildm.core.transfer.budget import Budget
    from ildm.core.transfer.classes import LinkClasses
    from ildm.core.transfer.custody import Custody
    from ildm.core.transfer.rules import LinkRules


class NeighborLink(Stateful):
    """See :class:`ildm.api.Link`; its states are those of :mod:`ildm.core.link.state`."""

    kept: bool
    """What is to be transferred outlives this node; else only what has come does."""
    rules: LinkRules | None
    """What may cross; None: everything."""
    classes: LinkClasses | None
    """How messages wait; None: all alike."""
    skipped: Skipped
    """Numbers of messages that were let go, and of which the neighbour is to hear."""
    scope: Scope | None
    """What the neighbour has said that may cross; None: everything."""
    peer: Peer
    """The neighbour and the address it has told."""
    features: frozenset[str]
    """Those that are on: what both ends have named when the first session was made."""
    protocol: int
    """The highest that both ends have."""
    hello: Hello | None
    """What the neighbour has last said of itself; None: nothing since this node has started."""
    dialed: bool
    """This node has made the connection."""
    introducer: bool
    """This node's configuration or administrator has named the neighbour."""
    on_demand: bool
    """Made for the algorithm's data, by either side; nobody's configuration asks for it."""
    closing: bool
    """One side has said BYE."""
    used_at: float
    """When the algorithm has last sent or got data."""
    disputes: int
    """How often others have spoken in the neighbour's name and it has objected."""
    rival: tuple[int, float] | None
    """Who has last come in the neighbour's name, in another life than the neighbour's, and when."""
    budget: Budget | None
    """How many bytes a second it carries from here; None: as many as the connections take."""
    wish: Limit | None
    """What the neighbour wants to get at most."""
    wish_is_new: bool
    """It was said on the present connection."""
    told_wish: Limit | None
    """What it was told that this node wants to get."""
    totals: Totals
    """Bytes that were compressed, and what became of them."""
    answering: bool
    """It is to be said that what was received is known behind this node, too."""
    lost: Callable[[str], None] | None
    """Told of the topic of each retained message that a queue has thrown away for want of room."""
    joined_at: float
    """When it has last begun to carry messages (monotonic time)."""
    held_at: float
    """When it has last ceased to carry messages (monotonic time)."""
    ready_sent: int
    """Number of this node's last word on readiness."""
    ready_received: int
    """Number of the neighbour's last word on readiness."""
    announcer: Announcer
    """What this node wants from the neighbour."""
    received_interest: ReceivedInterest
    """What the neighbour wants."""

    def __init__(
        self,
        driver: Driver,
        config: LinkConfig,
        counters: Counters,
        node_id: str,
        sessions: int,
        *,
        levels: int = 128,
        synchronized: Callable[[NeighborLink], None] = lambda link: None,
        progressed: Callable[[NeighborLink], None] = lambda link: None,
        writable: Callable[[NeighborLink], None] = lambda link: None,
        custody: Custody | None = None,
        kept: bool = False,
        rules: LinkRules | None = None,
        classes: LinkClasses | None = None,
    ) -> None:
        super().__init__()
        self.driver = driver
        self.custody = custody
        self.kept = kept
        self.rules = rules
        self.classes = classes
        self.skipped = Skipped(counters)
        if classes is not None:
            classes.skip, classes.tell = self.skipped.add, self.skipped.tell
        self.scope = None
        self.config = config
        self.counters = counters
        self.node_id = node_id
        self.boot = 0
        self.age = 0
        self.peer = Peer(node_id, "")
        self.protocol = PROTOCOLS.low
        self.features = NONE
        self.hello = None
        self.dialed = False
        self.found = False
        """It is dialed at an address that DNS has named, which may be another node's tomorrow."""
        self.introducer = False
        self.on_demand = False
        self.closing = False
        self.used_at = 0.0
        self.address: str | None = None
        self.since = driver.wall()
        self.joined_at = 0.0
        self.held_at = 0.0
        self.reason: str | None = None
        self.token = ""
        self.disputes = 0
        self.rival = None
        self.subtree = Subtree()
        self.clock = NeighborClock(driver)
        self.round_trip = RoundTrip()
        self.control: Connection | None = None
        self.open_sessions: list[Connection] = []
        self.ready_sent = 0
        self.ready_received = 0
        self.announcer = Announcer(
            counters,
            lambda: self.senders[0],
            partial(synchronized, self),
            partial(progressed, self),
            self._full,
        )
        received = None if rules is None else Translation(rules.received)
        self.received_interest = ReceivedInterest(config, counters, levels, self._filter_refused, received)
        self._own_interest = None if rules is None else Translation(rules.interest)
        self._said: set[str] = set()
        self.answering = False
        self.budget = None
        self.totals = Totals()
        self.wish = self.told_wish = None
        self.wish_is_new = False
        self.transferred_in = 0
        self.limits = limits_of(config, sessions, config.delay)
        self._writable = writable
        self.lost = None
        self.senders: list[Sender] = []
        self.inbounds: list[Inbound] = []
        self.set_sessions(sessions)

    def set_sessions(self, count: int) -> None:
        """The number of sessions agreed with the neighbour; senders with something to send are kept."""
        while len(self.senders) < count:
            index = len(self.senders)
            queue = (
                self.custody.queue(self.consumer(index)) if self.custody is not None and self.kept else None
            )
            sender = Sender(self.driver, self.limits, self.counters, "link", index, queue, self.custody)
            sender.pressure.lost = self._lost
            sender.wire.rules = self.rules
            sender.wire.limit(self.budget)
            sender.follow_classes(self.classes)
            sender.allowance.writable_again = self._writable_again
            self.senders.append(sender)
            self.inbounds.append(
                Inbound(
                    self.config.inflight, self._inbound_bytes, sender.wire.write, sender.wire.write_durable
                )
            )
        if len(self.senders) > count:
            for sender in self.senders[count:]:
                heir = self.senders[sender.index % count]
                heir.adopt(sender.leave_all() if sender.kept else sender.take_all())
                if self.custody is not None and self.kept:
                    self.custody.adopt(self.consumer(sender.index), heir.spooled)
                    heir.drain()
            for inbound in self.inbounds[count:]:
                inbound.reset()
            del self.senders[count:], self.inbounds[count:]

    def consumer(self, index: int) -> str:
        """Name of the spool's consumer for a session."""
        return f"link/{self.node_id}/{index}"

    def _lost(self, topic: str) -> None:
        if self.lost is not None:
            self.lost(topic)

    @property
    def sessions(self) -> Sequence[Connection]:
        return tuple(self.open_sessions)

    def connect(self, session: Connection, hello: Hello) -> None:
        """Use a new control session, made on the terms of the neighbour's ``hello``; it is to be bound."""
        for sender in self.senders:
            sender.step(RETURNED)
        self.set_sessions(hello.sessions)
        self.boot, self.age, self.token = hello.boot, hello.age, hello.token
        self.protocol, self.features = session.protocol, session.features
        self.hello = hello
        self.dialed = session.neighbor is not None
        self.found = session.neighbor is not None and session.neighbor.found
        self.address = session.peer if session.neighbor is None else str(session.neighbor.address)
        self.peer = Peer(hello.node, hello.address)
        self.skipped.connected(session.features)
        self.clock.connected()
        self.round_trip.connected()
        if hello.time:
            self.clock.shows(hello.time)
        self.since, self.reason = self.driver.wall(), None
        self.ready_received = 0
        self.rival = None
        self.announcer.connected()
        self.received_interest.packets = 0
        self.scope = None
        self.answering = False
        self.control = session
        self.open_sessions = [session]

    @property
    def epoch(self) -> int:
        """Of the claim by which the neighbour owned its site when it was linked last; 0: it was in no pair,
        or that is not remembered."""
        return 0 if self.hello is None else self.hello.epoch

    def disconnect(self, reason: str) -> None:
        """Let go of all sessions; what is routed to the link meanwhile waits."""
        self.control = None
        self.clock.lost()
        self.hold_down()
        self.since, self.reason = self.driver.wall(), reason
        sessions, self.open_sessions = self.open_sessions, []
        for session in sessions:
            session.unbind()
            session.abort()
        for sender in self.senders:
            sender.detach()

    # inter-subscribing ------------------------------------------------------------------------

    @property
    def interest(self) -> Mapping[str, int]:
        return MappingProxyType(self.received_interest.local)

    @property
    def announced(self) -> Mapping[str, int]:
        own = self._own_interest
        return MappingProxyType(self.announcer.interest if own is None else own.given)

    def inter_subscribe(self, filters: Mapping[str, int]) -> None:
        if self._own_interest is None:
            self.announcer.subscribe(filters)
            return
        for topic_filter, qos in new_filters(filters, self._own_interest.given).items():
            self._own_interest.put(topic_filter, qos)
        self._announce(self._own_interest.take_changes())

    def inter_unsubscribe(self, filters: Iterable[str]) -> None:
        if self._own_interest is None:
            self.announcer.unsubscribe(filters)
            return
        for topic_filter in old_filters(filters, self._own_interest.given):
            self._own_interest.remove(topic_filter)
        self._announce(self._own_interest.take_changes())

    def follow_rules(self, rules: LinkRules | None) -> dict[str, int | None]:
        """Other rules hold from now on; answers what that changes of the neighbour's interest (local names).

        What the neighbour is asked for changes with them. A bound of bytes that they make smaller holds at
        once, a larger one from the next connection on.
        """
        given = dict(self.announced)
        self.rules = rules
        for sender, inbound in zip(self.senders, self.inbounds, strict=True):
            sender.wire.rules = rules
            inbound.byte_limit = max(inbound.byte_limit, self._inbound_bytes)
        for session in self.open_sessions:
            session.follow_rules()
        self._own_interest = None if rules is None else Translation(rules.interest)
        interest = given
        if self._own_interest is not None:
            for topic_filter, qos in given.items():
                self._own_interest.put(topic_filter, qos)
            self._own_interest.take_changes()
            interest = self._own_interest.made
        self.announcer.subscribe(interest)
        self.announcer.unsubscribe(self.announcer.interest.keys() - interest.keys())
        return self.received_interest.translate(None if rules is None else Translation(rules.received))

    def follow_classes(self, classes: LinkClasses | None) -> None:
        """Other classes hold from now on; what waits already keeps its priority."""
        self.classes = classes
        if classes is not None:
            classes.skip, classes.tell = self.skipped.add, self.skipped.tell
        for sender in self.senders:
            sender.follow_classes(classes)

    @property
    def _inbound_bytes(self) -> int:
        """What the neighbour may have under way on a session, which counts wire names."""
        grown = 0 if self.rules is None else self.config.inflight * self.rules.incoming.growth
        return self.config.inflight_bytes + grown

    def _announce(self, changes: Mapping[str, int | None]) -> None:
        """Inter-subscribe to what was made of the filters wanted, by their wire names."""
        self.announcer.subscribe({f: qos for f, qos in changes.items() if qos is not None})
        self.announcer.unsubscribe([f for f, qos in changes.items() if qos is None])

    @property
    def wire(self) -> tuple[int, int]:
        return FIRST if self.hello is None else self.hello.wire

    def wire_name(self, topic: str) -> str | None:
        """What a topic is called on the link if messages on it cross in one direction at least."""
        wire = topic if self.rules is None else self.rules.wire(topic)
        return None if wire is None or (self.scope is not None and not self.scope.crosses(wire)) else wire

    def most_qos(self, topic: str) -> int | None:
        """With which QoS at most messages on a topic may cross to the neighbour; None: not at all."""
        qos: int = self.config.qos
        wire = topic
        if self.rules is not None:
            way = self.rules.outgoing.find(topic.encode())
            if way is None:
                return None
            qos, wire = min(qos, way.qos), way.name
        return None if self.scope is not None and not self.scope.takes(wire) else qos

    def _full(self) -> None:
        self.counters["interest_widened"] += 1
        self._say_once("neighbor has no room for all filters, it is asked for everything")

    def _filter_refused(self, topic_filter: str) -> None:
        self._say_once("neighbor wants more filters than this node keeps", filter=topic_filter[:200])

    def _say_once(self, event: str, **fields: object) -> None:
        """It may come to the same again with each filter."""
        if event not in self._said:
            self._said.add(event)
            self.driver.log("warning", event, neighbor=self.node_id, **fields)

    # messages ---------------------------------------------------------------------------------

    def offer(self, message: Publish, turn: int, expires_at: float | None, priority: int) -> bool:
        """Transfer one message of the algorithm's, unless there is no room: it hears of that later."""
        sender = self.senders[turn % len(self.senders)]
        batch = self._encoded(message, expires_at, sender)
        if batch is None:
            return True
        if not sender.allowance.admit(batch.size):
            return False
        qos = batch.qos
        if qos and self.custody is not None and self.kept:
            if self.custody.full:
                sender.allowance.refused()
                return False
            self.custody.take(batch, [(sender, qos, priority)], turn)
        else:
            sender.send(batch, None, None, priority)
        return True

    def repeat(self, message: Publish, expires_at: float | None) -> None:
        """Send a retained message that the neighbour may have missed."""
        batch = self._encoded(message, expires_at, self.senders[0])
        if batch is not None:
            self.senders[0].send(batch)

    def _encoded(self, message: Publish, expires_at: float | None, sender: Sender) -> Batch | None:
        most = self.config.qos if self.rules is None else self.most_qos(message.topic) or 0
        try:
            return single(message, min(message.qos, most), expires_at)
        except EncodeError:
            sender.wire.drop(1, "not_encodable")
            return None

    def offer_data(self, frame: bytes, turn: int) -> bool:
        """The same for data of the algorithm's, a PUBLISH of QoS 0.

        It may pass on, number or acknowledge what the node has just taken: so it goes after that is durable.
        """
        sender = self.senders[turn % len(self.senders)]
        if not sender.allowance.admit(len(frame)):
            return False
        sender.wire.after_what_is_kept()
        sender.send(Batch(frame, 1, len(frame)))
        return True

    def refused(self, turn: int) -> None:
        """Something of the algorithm's was refused before there was the link: it hears of room later."""
        self.senders[turn % len(self.senders)].allowance.refused()

    def _writable_again(self) -> None:
        if self.in_cooperation:
            self._writable(self)

    def give_up(self) -> int:
        """The node stops: what it still had for the neighbour is counted; answers how much that is."""
        return sum(sender.give_up() for sender in self.senders)

    def take_all(self) -> dict[int, list[Entry]]:
        """Give up all that the neighbour has not got, by the index of the session it was for, but for
        what the spool keeps."""
        return {
            sender.index: sender.leave_all() if sender.kept else sender.take_all() for sender in self.senders
        }

    def resume(self, index: int | None = None) -> None:
        """Transfer from now on, or on the session of that index: first what waits, unless that has to go
        another way, too."""
        if not self.subtree.reroute_pending:
            for sender in self.senders if index is None else (self.senders[index],):
                sender.resume()

    def hold_for_reroute(self) -> None:
        """What is in the consumers may have to go another way: nothing is sent for now."""
        self.subtree.reroute_pending = True
        for sender in self.senders:
            sender.suspend()

    def hold_down(self) -> None:
        """Stop transferring; what is routed to the link meanwhile waits."""
        self.held_at = self.driver.now()
        for sender in self.senders:
            sender.suspend()

    def pass_by(self) -> dict[int, list[Entry]]:
        """The neighbour is reached on another path while the spool still keeps what is for it: what is not
        kept waits no longer. Answers what of that has waited, by the index of the session."""
        loose = {}
        for sender in self.senders:
            sender.step(PASSED_BY)
            loose[sender.index] = sender.spooled.take_loose()
        return loose

    def expire(self) -> None:
        """The neighbour has been away for too long: what waits is dropped, and what is routed to the link
        until it is back. Its interest stays, so that each message is counted."""
        self.boot = 0  # what was under way is dropped, too: both ends begin anew
        self.reason = "away for longer than link.expiry: what is for it is dropped"
        self.subtree.rerouted()
        for sender in self.senders:
            sender.step(EXPIRED)
            self._clear(sender, "neighbor_expired")

    def forget(self, reason: Left, stranded: bool = False) -> None:
        """Leave the cooperation: neither side's interest nor anything queued holds any longer. What is
        ``stranded`` stays in the spool."""
        self.subtree.clear()
        for sender in self.senders:
            sender.suspend()
            sender.step(FORGOTTEN)
            if not (stranded and sender.kept):
                self._clear(sender, reason)
        for inbound in self.inbounds:  # the neighbour takes back what it has no answer to
            inbound.reset()
        self.announcer.clear()
        if self._own_interest is not None:
            self._own_interest.clear()
        self.received_interest.clear()

    def _clear(self, sender: Sender, reason: Left) -> None:
        waiting = sender.clear(reason)
        if waiting.messages:
            self.driver.log(
                "warning",
                "what was kept for a neighbour is dropped",
                neighbor=self.node_id,
                reason=reason,
                messages=waiting.messages,
                bytes=waiting.bytes,
                since=waiting.oldest,
            )

    # figures ----------------------------------------------------------------------------------

    @property
    def transferred_out(self) -> int:
        return total(self.senders, "sent")

    @property
    def queued(self) -> int:
        return total(self.senders, "queued_messages")

    @property
    def queued_bytes(self) -> int:
        return total(self.senders, "queued_bytes")

    @property
    def oldest(self) -> float:
        """LSN of the oldest message under way; infinite: none is."""
        entries = (entry for sender in self.senders for entry in sender.under_way())
        return min((e.receipt.lsn for e in entries if isinstance(e.receipt, Share)), default=math.inf)

    @property
    def dropped(self) -> int:
        return total(self.senders, "dropped")

    @property
    def idle(self) -> bool:
        return all(sender.idle for sender in self.senders)

    @property
    def at_rest(self) -> bool:
        return all(sender.at_rest for sender in self.senders)

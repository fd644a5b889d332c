"""What it means for a link to join the cooperation and to leave it, and what neighbours say to each other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ildm.api import Source
from ildm.core.link import scope
from ildm.core.link.budgets import FEATURE, Budgets
from ildm.core.link.clocks import Clocks
from ildm.core.link.control import (
    ALGORITHM,
    BUCKETS,
    BUDGET,
    CLOCK,
    DIGEST,
    READY,
    SCOPE,
    SEEN,
    SYNCED,
    TOLD,
    TRACE,
    TRACED,
    WATCH,
    WATCHING,
    send_control,
)
from ildm.core.link.retained_sync import RetainedSync
from ildm.core.link.state import LinkEvent, LinkState
from ildm.core.link.telling import Telling
from ildm.core.link.tracing import Tracing
from ildm.core.link.watching import Watching
from ildm.core.transfer import skipped
from ildm.core.transfer.batch import single
from ildm.core.transfer.message_ids import FROM
from ildm.core.transfer.rerouting import REST, Rerouting
from ildm.core.transfer.skipped import SKIPPED
from ildm.mqtt import MalformedPacket, PacketType, Property, Publish, Subscribe, Version, decode

if TYPE_CHECKING:
    from ildm.core.declared import Left
    from ildm.core.link.link import NeighborLink
    from ildm.core.link.membership import Membership
    from ildm.core.link.parts import LinkParts
    from ildm.core.link.ports import Connection
    from ildm.core.link.slices import Slices
    from ildm.core.link.start_gate import StartGate
    from ildm.core.transfer.batch import Batch
    from ildm.core.transfer.identity import Origin
    from ildm.core.transfer.inbound import Inbound
    from ildm.core.transfer.rules import LinkRules

ELSEWHERE = frozenset(("blocked", "other_path"))
"""Reasons why a link leaves whose neighbour is still part of the cooperation."""
TAKEN_BACK = frozenset((LinkEvent.WITHDRAWN, LinkEvent.DECLINED))


class Cooperation:
    """Carries out what the states of the links demand; which ones are to join, the membership says."""

    def __init__(self, parts: LinkParts) -> None:
        self.parts = parts
        self.driver = parts.driver
        self.membership: Membership
        self.start_gate: StartGate
        self.active: list[NeighborLink] = []
        """Links in the cooperation, connected or in an outage."""
        config = parts.config
        self.rerouting: Rerouting[NeighborLink] = Rerouting(
            parts.driver,
            parts.counters,
            parts.router,
            lambda node: self.membership.path(node),  # noqa: PLW0108 - it is not there yet
            lambda link: self.membership.at_rest(link),  # noqa: PLW0108
            self._settled,
            messages=config.queue_messages,
            size=config.queue_bytes,
            pause=REST * config.settle,
            expiry=config.expiry,
            custody=parts.custody,
        )
        self.clocks = Clocks(parts.driver, parts.counters)
        self.budgets = Budgets(parts)
        self.telling = Telling(parts, self.active)
        self.tracing = Tracing(parts)
        self.watching = Watching(parts, self.active)
        self.retained_sync = RetainedSync(
            parts.driver, parts.retained, parts.counters, parts.config.sync_interval
        )

    # states -----------------------------------------------------------------------------------

    def happened(self, link: NeighborLink, event: LinkEvent, reason: Left = "lost") -> None:
        """Move a link to its next state, and do what that demands.

        Args:
            reason: why it leaves, if it does.
        """
        before, after = link.step(event)
        if before is LinkState.ACTIVE and after is not LinkState.ACTIVE:
            link.announcer.stop()
            self.telling.progressed(link)
        if before.cooperating and not after.cooperating:
            self._leave(link, reason)
            return
        if after.cooperating and not before.cooperating:
            self._enter(link, restored=event is LinkEvent.RESTORED)
        if after is LinkState.ACTIVE and before is not LinkState.ACTIVE:
            self._join(link, again=before.cooperating)
        if event in TAKEN_BACK and after.cooperating:
            if before is LinkState.ACTIVE:
                link.hold_down()
            if link.kept:
                self.membership.lingers(link)
            else:
                self.happened(link, LinkEvent.LEFT, reason)

    def offer(self, link: NeighborLink) -> None:
        """Take a link for part of the cooperation: it joins when the neighbour does the same."""
        link.ready_sent += 1
        for session in link.open_sessions:
            self.say_ready(link, session.index)
        self.happened(link, LinkEvent.OFFERED)

    def say_ready(self, link: NeighborLink, session: int) -> None:
        """Said on every session, so that on none of them anything is transferred before."""
        send_control(link, READY, b"1 %d" % link.ready_sent, session)

    def pass_by(self, link: NeighborLink) -> None:
        """The neighbour is reached on another path: what is not kept for it goes there, or nowhere."""
        self.rerouting.take(link.node_id, link.held_at, link.pass_by())

    def expire(self, link: NeighborLink) -> None:
        """The neighbour has been away for too long: nothing is kept for it any longer."""
        self.rerouting.left(link)
        link.expire()
        if self.parts.memory is not None:
            self.parts.memory.joined(link)

    def leave(self, link: NeighborLink) -> None:
        """A connected link that was taken back has to keep nothing any more: another path is there."""
        self.happened(link, LinkEvent.LEFT, "blocked")
        link.reason = "it would close a cycle"

    def withdraw(self, link: NeighborLink) -> None:
        """Take a link for no part of the cooperation: it would close a cycle."""
        if link.ready_here:
            link.ready_sent += 1
            send_control(link, READY, b"0 %d" % link.ready_sent)
        self.happened(link, LinkEvent.WITHDRAWN, "blocked")
        link.reason = "it would close a cycle"
        self.start_gate.look()

    def _ready(self, link: NeighborLink, payload: bytes) -> None:
        word, _, number = payload.partition(b" ")
        if word not in (b"0", b"1") or not number.isdigit() or len(number) > 9:
            raise MalformedPacket("malformed message about readiness", clause="MQTT-4.13")
        if int(number) < link.ready_received:
            return  # on another session there is newer word
        link.ready_received = int(number)
        if word == b"1":
            self.budgets.ready(link)
            self.happened(link, LinkEvent.INVITED)
        else:
            self.happened(link, LinkEvent.DECLINED, "blocked")

    def _enter(self, link: NeighborLink, restored: bool) -> None:
        link.joined_at = link.held_at = self.driver.now()
        if not restored:
            link.received_interest.clear()
        self.active.append(link)
        self.parts.router.routes.invalidate()
        self.parts.dispatch.call("on_link_up", link)
        if link.interest:
            link.received_interest.local_changes({})  # this is all of them
            self.parts.dispatch.interest_changed(link, link.interest)

    def _join(self, link: NeighborLink, again: bool) -> None:
        link.reason = None
        said = "link active again" if again else "link active"
        self.driver.log("debug" if link.on_demand else "info", said, neighbor=link.node_id)
        if self.parts.memory is not None:
            self.parts.memory.joined(link)
        link.received_interest.begin_synchronization()
        if link.rules is not None:
            send_control(link, SCOPE, scope.advertised(link.rules))
        link.announcer.start()
        self.rerouting.joined(link)
        link.resume()
        if not self.parts.router.has_overlay:
            link.lost = partial(self.retained_sync.lost, link)
            self.retained_sync.joined(link)
        self.membership.joined(link)

    def _settled(self, link: NeighborLink) -> None:
        """What was for nodes that are elsewhere now has gone there, too."""
        link.subtree.rerouted()
        if self.parts.memory is not None:
            self.parts.memory.joined(link)
        if link.active:
            link.resume()

    def synchronized(self, link: NeighborLink) -> None:
        """All interest has been repeated to a neighbour."""
        send_control(link, SYNCED, self.retained_sync.view(link).digest)

    def _leave(self, link: NeighborLink, reason: Left) -> None:
        self.active.remove(link)
        if self.parts.memory is not None:
            self.parts.memory.left(link)
        elsewhere = reason in ELSEWHERE
        if elsewhere:
            kept = [link.consumer(sender.index) for sender in link.senders] if link.kept else []
            self.rerouting.take(link.node_id, link.held_at, link.take_all(), kept)
        self.rerouting.left(link)
        self.retained_sync.left(link)
        link.forget(reason, stranded=elsewhere)
        self.parts.router.routes.forget(link)
        self.parts.router.routes.invalidate()
        self.parts.dispatch.call("on_link_down", link)
        level = "debug" if link.on_demand else "info"
        self.driver.log(level, "link left the cooperation", neighbor=link.node_id, reason=reason)

    # messages between the nodes themselves --------------------------------------------------------

    def control_message(self, link: NeighborLink, topic: str, payload: bytes, session: int) -> None:
        """``session``: the index of the one it has come over."""
        if topic == ALGORITHM:
            self.algorithm_data(link, payload, session)
        elif topic == READY:
            self._ready(link, payload)
        elif topic == SYNCED:
            self.interest_changed(link, link.received_interest.end_synchronization())
            self.start_gate.look()
            self.retained_sync.digest_came(link, payload)
        elif topic == TOLD:
            if not payload.isdigit() or len(payload) > 9:
                raise MalformedPacket("malformed message about interest", clause="MQTT-4.13")
            link.announcer.advertised_on(int(payload))
        elif topic == FROM:
            link.inbounds[session].received_ids.told(payload)
        elif topic == SCOPE:
            link.scope = scope.received(payload)
            self.parts.router.routes.invalidate()
            self.retained_sync.scope_changed(link)
            if not link.received_interest.synchronizing:  # it has other rules than when the link began
                self.retained_sync.compare(link)
        elif topic == TRACE:
            self.tracing.came(link, payload)
        elif topic == TRACED:
            self.tracing.answered(link, payload)
        elif topic == WATCH:
            self.watching.came(link, payload)
        elif topic == WATCHING:
            self.watching.answered(link, payload)
        elif topic == SEEN:
            self.watching.seen(link, payload)
        elif topic == DIGEST:
            self.retained_sync.digest_came(link, payload)
        elif topic == BUCKETS:
            self.retained_sync.buckets_came(link, payload)
        elif topic == BUDGET and FEATURE in link.features:
            self.budgets.came(link, payload)
        elif topic == SKIPPED and skipped.FEATURE in link.features:
            self._skipped(payload)
        elif topic == CLOCK:
            self.clocks.heard(link, payload)
        elif not self.membership.control_message(link, topic, payload):
            self.parts.counters["link_unknown_control"] += 1

    def _skipped(self, payload: bytes) -> None:
        """A neighbour has let messages go."""
        origin, stretches = skipped.decoded(payload)
        if self.parts.custody is not None:
            self.parts.custody.skipped(origin, stretches)

    def algorithm_data(self, link: NeighborLink, data: bytes, turn: int) -> None:
        """Data of the algorithm at the neighbour; ``turn``: the index of the session."""
        if not link.state.takes:
            self.parts.counters["link_blocked_messages"] += 1
            return
        link.used_at = self.driver.now()
        link.transferred_in += 1
        self.parts.counters["algorithm_in"] += 1
        self.parts.dispatch.call("on_message", link.peer, data, turn)

    def interest_changed(self, link: NeighborLink, changes: dict[str, int | None]) -> None:
        """A neighbour has inter-subscribed or withdrawn."""
        if link.in_cooperation and changes:
            if self.parts.memory is not None:
                self.parts.memory.interest_changed(link, changes)
            self.parts.router.routes.invalidate()
            self.parts.dispatch.interest_changed(link, link.received_interest.local_changes(changes))

    def rules_changed(self, link: NeighborLink, rules: LinkRules | None) -> None:
        """Other rules hold on a link: the neighbour is told, and what depends on them is worked out anew."""
        active = link.state is LinkState.ACTIVE
        if active:
            send_control(link, SCOPE, scope.advertised(rules))
        before = list(link.interest)
        changes = link.follow_rules(rules)
        crowded = link.received_interest.over_limit
        if crowded:
            self._forget_interest(link)
            changes = dict.fromkeys(before)
        self.parts.router.routes.invalidate()
        if link.in_cooperation:
            self.parts.dispatch.interest_changed(link, changes)
        self.retained_sync.scope_changed(link)
        if crowded and link.control is not None:
            link.control.give_up("rules", "they make more of its interest than is kept: it is told anew")
        elif active:
            self.retained_sync.compare(link)

    def _forget_interest(self, link: NeighborLink) -> None:
        """The neighbour has to tell its interest again, and hears what finds no room."""
        if link.in_cooperation and self.parts.memory is not None:
            self.parts.memory.interest_changed(link, dict.fromkeys(link.received_interest.filters))
        link.received_interest.clear()

    def inter_subscribed(self, link: NeighborLink, slices: Slices) -> bytes:
        """Take some filters that a neighbour wants, or does not any more; answers the acknowledgement, empty
        while filters are left. Raises: MqttError."""
        packet, interest = slices.take(), link.received_interest
        if isinstance(packet, Subscribe):
            changes, codes = interest.subscribed(packet)
        else:
            changes, codes = interest.unsubscribed(packet)
        slices.answered(codes)
        self.interest_changed(link, changes)
        if not slices.is_taken:
            return b""
        interest.packets += 1
        self.telling.answer(link)
        return slices.acknowledgement()

    # transferred messages -----------------------------------------------------------------------

    def message_arrived(
        self,
        session: Connection,
        link: NeighborLink,
        packet: Publish,
        batch: Batch,
        inbound: Inbound | None,
        origin: Origin,
    ) -> None:
        """A transferred message that is new and was taken; ``origin``: who it is."""
        parts = self.parts
        if packet.topic.startswith("$"):
            parts.counters["link_blocked_messages"] += 1
            if inbound is not None:
                inbound.settle(batch)
            return
        link.transferred_in += 1
        parts.counters["transferred_in"] += 1
        chain = parts.dispatch.chain
        if chain.filters(Source.LINK):
            passed = chain.message(Source.LINK, session, batch.frames)
            if not isinstance(passed, bytes):
                parts.counters["filtered"] += 1
                if inbound is not None:
                    inbound.settle(batch)
                return
            if passed is not batch.frames:
                changed = decode(passed, Version.V5)
                assert isinstance(changed, Publish)
                changed.packet_id = packet.packet_id
                packet, before = changed, batch
                batch = single(packet, packet.qos, parts.router.expiry(packet))
                if inbound is not None:
                    inbound.receipt.changed(before, batch)
        if Property.MESSAGE_EXPIRY_INTERVAL in packet.properties:
            batch.since = parts.driver.now()
        parts.router.arrived(link, batch, session.index, inbound, origin, None, packet)
        parts.dispatch.arrived(Source.LINK, session, PacketType.PUBLISH, batch.frames)

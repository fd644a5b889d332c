"""Which links take part in the cooperation: the tree, joining and leaving, news between neighbours."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ildm.api import Source
from ildm.core.link.link import ADVERTISEMENT, ALGORITHM, BYE, READY, SYNCED, NeighborLink
from ildm.core.link.topology import Advertisement, Topology
from ildm.mqtt import PacketType, Publish, Version, decode

if TYPE_CHECKING:
    from ildm.core.link.session import LinkSession
    from ildm.core.node import Node

RETAINED_BATCH = 100
CLAIM_PAUSE = 1.0
CLAIMS_OF_A_RESTART = 5
"""More claims to this node's id than a restart explains: another node has it, too."""
UNREST = 20
"""A link joins after this many settling times even if the topology never comes to rest."""


class Cooperation:
    """Moves the links, which the link manager makes, in and out of the cooperation.

    Args:
        links: the manager's links by node id, connected or not.
        discard: forgets a link for good, for a reason.
        joined: told of a link that carries messages now.
    """

    def __init__(
        self,
        node: Node,
        links: Mapping[str, NeighborLink],
        discard: Callable[[NeighborLink, str], None],
        joined: Callable[[NeighborLink], None],
    ) -> None:
        self.node = node
        self.driver = node.driver
        self.config = node.config.link
        self.links = links
        self.discard = discard
        self.joined = joined
        self.any_topology = node.topology == "any"
        self.topology = Topology(node.node_id, node.boot, self.config.max_nodes)
        self.active: list[NeighborLink] = []
        self._settling: dict[NeighborLink, tuple[Any, float]] = {}
        self._considering = False
        self._claim_timer: Any = None
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True

    def introduce(self, link: NeighborLink) -> None:
        """Tell a neighbour that has just been connected everything known of the topology.

        With topology ``any`` there is nothing to tell or to wait for: the link joins at once.
        """
        if self.any_topology:
            self._settled(link)
            return
        for advertisement in self.topology.advertisements():
            send_control(link, ADVERTISEMENT, advertisement.encode())

    def links_changed(self) -> None:
        """A link was connected or lost."""
        if self.any_topology:
            return
        ages = {link.node_id: link.age for link in self.links.values() if link.connected}
        advertisement = self.topology.set_links(ages)
        if advertisement is not None:
            self._flood(advertisement, None)
        self._consider()

    def _flood(self, advertisement: Advertisement, source: NeighborLink | None) -> None:
        data = advertisement.encode()
        for link in self.links.values():
            if link is not source and link.connected:
                send_control(link, ADVERTISEMENT, data)

    def _claim_own(self) -> None:
        """Answer an advertisement in this node's name, of an earlier life or of a node with the same id.

        Not at once: two nodes with one id would outbid each other as fast as the network carries it.
        """
        if self._claim_timer is None:
            self.node.counters["own_id_advertised"] += 1
            if self.node.counters["own_id_advertised"] == CLAIMS_OF_A_RESTART + 1:
                self.driver.log(
                    "error", "another node seems to have this node's id", node_id=self.node.node_id
                )
            self._claim_timer = self.driver.call_later(CLAIM_PAUSE, self._claim)

    def _claim(self) -> None:
        self._claim_timer = None
        if not self._stopped:
            self._flood(self.topology.own, None)
            self._consider()

    def _consider(self) -> None:
        """Let links join or leave so that the cooperating ones form the tree."""
        self._considering = False
        tree = self.topology.tree()
        for link in list(self.links.values()):
            if not link.connected:
                if link.in_cooperation and self.topology.reaches(link.node_id):
                    # perhaps only because news of the neighbour's end is still under way
                    self.driver.call_later(2 * self.config.settle, self._check_other_path, link, link.since)
            elif link.node_id in tree:
                if not link.ready_here:
                    self._settle(link, self.config.settle)
            elif self.topology.agreed(link.node_id):  # until then nothing is decided
                self.cancel_settling(link)
                if link.ready_here:
                    send_control(link, READY, b"0")
                    link.hold_down()
                link.reason = "it would close a cycle"
                self.leave(link, "blocked")

    def _check_other_path(self, link: NeighborLink, since: float) -> None:
        current = self.links.get(link.node_id) is link and not link.connected and link.since == since
        if current and link.in_cooperation and self.topology.reaches(link.node_id):
            self.discard(link, "other_path")

    def _settle(self, link: NeighborLink, pause: float) -> None:
        """Let a link join after a while without news of the topology."""
        timer, since = self._settling.get(link, (None, self.driver.now()))
        if timer is not None:
            if self.driver.now() - since > UNREST * pause:
                return
            timer.cancel()
        self._settling[link] = self.driver.call_later(pause, self._settled, link), since

    def cancel_settling(self, link: NeighborLink) -> None:
        """A link is not to join for the time being."""
        timer, _ = self._settling.pop(link, (None, 0.0))
        if timer is not None:
            timer.cancel()

    def _settled(self, link: NeighborLink) -> None:
        self._settling.pop(link, None)
        if link.connected and self.links.get(link.node_id) is link:
            link.ready_here = True
            send_control(link, READY, b"1")
            if link.ready_there:
                self._join(link)

    def peer_ready(self, link: NeighborLink) -> None:
        """The neighbour takes the link for part of the tree."""
        if not link.ready_there:
            link.ready_there = True
            if link.ready_here:
                self._join(link)

    def may_transfer(self, link: NeighborLink) -> bool:
        """Whether messages from a neighbour are taken."""
        if link.ready_here and not link.ready_there:
            self.peer_ready(link)  # it sends only when it is; its word comes on another session
        return link.in_cooperation and link.ready_here

    def _join(self, link: NeighborLink) -> None:
        link.reason = None
        if not link.in_cooperation:
            link.interest.clear()
            link.in_cooperation = True
            link.muted = True
            self.active.append(link)
            self.node.router.invalidate()
            self.node.dispatch.call("on_link_up", link)
            link.muted = False
            level = "debug" if link.on_demand else "info"
            self.driver.log(level, "link active", neighbor=link.node_id)
        link.begin_synchronization()
        link.synchronize(self.node.retained.digest)
        for lane in link.lanes:
            lane.resume()
        self.joined(link)

    def leave(self, link: NeighborLink, reason: str) -> None:
        """Take a link out of the cooperation, if it is part of it."""
        if link.in_cooperation:
            link.in_cooperation = False
            self.active.remove(link)
            link.forget(reason)
            self.node.router.forget(link)
            self.node.router.invalidate()
            self.node.dispatch.call("on_link_down", link)
            level = "debug" if link.on_demand else "info"
            self.driver.log(level, "link left the cooperation", neighbor=link.node_id, reason=reason)

    def control_message(self, link: NeighborLink, topic: str, payload: bytes) -> None:
        """A message between neighbours themselves."""
        if topic == ALGORITHM:
            self._algorithm_data(link, payload)
        elif topic == ADVERTISEMENT:
            news = self.topology.receive(Advertisement.decode(payload))
            if news is not None and news.node == self.node.node_id:
                self._claim_own()
            elif news is not None:
                self._flood(news, link)
                if not self._considering:  # once for all news that have come together
                    self._considering = True
                    self.driver.call_soon(self._consider)
        elif topic == READY:
            if payload == b"1":
                self.peer_ready(link)
            else:
                link.ready_there = False
                for lane in link.lanes:
                    lane.suspend()
                self.leave(link, "blocked")
        elif topic == SYNCED:
            self.interest_changed(link, link.end_synchronization())
            if payload != self.node.retained.digest and not self.node.router.routes_messages:
                self._repeat_retained(link, link.token, self.node.retained.everything())
        elif topic == BYE and self.any_topology:
            self.node.links.on_demand.bye(link)
        else:
            self.node.counters["link_unknown_control"] += 1

    def _algorithm_data(self, link: NeighborLink, data: bytes) -> None:
        if not self.may_transfer(link):
            self.node.counters["link_blocked_messages"] += 1
            return
        link.used_at = self.driver.now()
        link.transferred_in += 1
        self.node.counters["algorithm_in"] += 1
        self.node.dispatch.call("on_message", link.node_id, data)

    def interest_changed(self, link: NeighborLink, changes: Mapping[str, int | None]) -> None:
        """A neighbour has inter-subscribed or withdrawn."""
        if link.in_cooperation and changes:
            self.node.router.invalidate()
            self.node.dispatch.interest_changed(link, changes)

    def message_arrived(
        self, session: LinkSession, link: NeighborLink, packet: Publish, frame: bytes
    ) -> None:
        """A transferred message that is new."""
        node = self.node
        if not self.may_transfer(link) or packet.topic.startswith("$"):
            node.counters["link_blocked_messages"] += 1
            return
        link.transferred_in += 1
        node.counters["transferred_in"] += 1
        if node.dispatch.filters_links:
            passed = node.dispatch.filter(Source.LINK, session, frame)
            if passed is None:
                node.counters["filtered"] += 1
                return
            if passed is not frame:
                changed = decode(passed, Version.V5)
                assert isinstance(changed, Publish)
                packet, frame = changed, passed
        node.router.publish(packet, link, session.index, session, node.injector.publish)
        node.dispatch.arrived(Source.LINK, session, PacketType.PUBLISH, frame)

    def _repeat_retained(
        self, link: NeighborLink, token: str, messages: Iterator[tuple[Publish, float | None]]
    ) -> None:
        """Tell a neighbour the retained messages remembered here, no faster than it takes them."""
        if not (link.in_cooperation and link.connected and link.token == token):
            return  # it will be asked for again when the link is back
        if link.lanes[0].queued_messages == 0:
            batch = list(itertools.islice(messages, RETAINED_BATCH))
            for message, expires_at in batch:
                link.send(message, message.qos, 0, expires_at, None)
            self.node.counters["retained_repeated"] += len(batch)
            if len(batch) < RETAINED_BATCH:
                return
        self.driver.call_later(0.01, self._repeat_retained, link, token, messages)


def send_control(link: NeighborLink, topic: str, payload: bytes) -> None:
    """Send a message between neighbours themselves."""
    link.lanes[0].write(Publish(topic=topic, payload=payload).encode(Version.V5))

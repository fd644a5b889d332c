"""Which links take part in the cooperation: what is asked of a membership, and the one that takes all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ildm.api import Unreachable
from ildm.config import Address, advertised_address
from ildm.core.link.hello import Hello, Refusal
from ildm.core.link.judging import SAME_BROKER
from ildm.mqtt import ReasonCode

if TYPE_CHECKING:
    from ildm.core.declared import Left
    from ildm.core.link.cooperation import Cooperation
    from ildm.core.link.dialer import Neighbor
    from ildm.core.link.link import NeighborLink
    from ildm.core.link.on_demand import OnDemand
    from ildm.core.link.parts import LinkParts


class Membership:
    """What the link manager asks and tells; it makes the links and connects them.

    Args:
        links: the manager's links by node id, connected or not.
        cooperation: takes links in, when told to.
        discard: forgets a link for good, for a reason.
    """

    keeps_absent = True
    """A link that is connected again goes on where it was; else it begins anew."""

    def __init__(
        self,
        parts: LinkParts,
        links: Mapping[str, NeighborLink],
        cooperation: Cooperation,
        discard: Callable[[NeighborLink, Left], None],
    ) -> None:
        self.parts = parts
        self.driver = parts.driver
        self.config = parts.config
        self.links = links
        self.cooperation = cooperation
        self.discard = discard
        self.stopped = False

    @property
    def address(self) -> Address | None:
        """Where other nodes reach this one; None if they cannot."""
        return advertised_address(self.config)

    @property
    def on_demand(self) -> OnDemand | None:
        """What makes links for the algorithm's data, where links are made so."""
        return None

    @property
    def idle(self) -> bool:
        """Nothing waits for a link that is not there."""
        return True

    @property
    def most_links(self) -> int:
        """So many links may there be."""
        return self.config.max_neighbors

    @property
    def path_seconds(self) -> float | None:
        """How long the longest path in the tree takes; None: there is no tree, or nobody knows."""
        return None

    def start(self) -> None:
        """Links come from now on."""

    def stop(self) -> None:
        self.stopped = True

    def refusal(self, hello: Hello) -> Refusal | None:
        """Whether there is no place for one more link."""
        if sum(not link.on_demand for link in self.links.values()) < self.config.max_neighbors:
            return None
        return Refusal("limit", "too many neighbours (link.max_neighbors)", ReasonCode.QUOTA_EXCEEDED)

    def age(self) -> int:
        """The age of a link that is made now."""
        return 0

    def is_dialing(self, node_id: str | None, token: str) -> bool:
        """Whether the dial with this token is one for a link made on demand."""
        return False

    def classify(self, link: NeighborLink, neighbor: Neighbor | None, hello: Hello) -> None:
        """A link is connected: by whose wish."""

    def named(self, link: NeighborLink) -> None:
        """A link that is there already turns out to be that of a neighbour the administrator has named."""

    def connected(self, link: NeighborLink) -> None:
        """A link has a control session."""
        raise NotImplementedError

    def lost(self, link: NeighborLink, reason: str, kind: str) -> None:
        """A link's control session has gone; ``kind`` says how, if the neighbour has said."""
        raise NotImplementedError

    def absent(self, link: NeighborLink) -> None:
        """A link is part of the cooperation without being connected."""

    def forgotten(self, link: NeighborLink) -> None:
        """A link is about to be discarded."""

    def hop(self, node: str) -> NeighborLink | None:
        """The link that leads to a node and carries messages; None if there is none, or nobody can say."""
        return None

    def path(self, node: str) -> NeighborLink | None:
        """The same, but None until the node itself has said that it is reached so."""
        return self.hop(node)

    def at_rest(self, link: NeighborLink) -> bool:
        """For a while nothing has changed about which links carry messages, all that should do, and nodes
        that were behind a link are reached where they are now."""
        return True

    def lingers(self, link: NeighborLink) -> None:
        """One side takes a link for no part of the cooperation any more; it is to leave when its neighbour is
        reached on another path (:meth:`Cooperation.leave`)."""

    def changed(self) -> None:
        """A link was connected or lost."""

    def joined(self, link: NeighborLink) -> None:
        """A link carries messages now."""

    def measured(self, link: NeighborLink) -> None:
        """There may be another round-trip time of a link."""

    def control_message(self, link: NeighborLink, topic: str, payload: bytes) -> bool:
        """A message between the nodes themselves; False if it means nothing here."""
        return False


class OpenMembership(Membership):
    """All links take part at once (topology ``any``); what a lost one had not sent is lost."""

    keeps_absent = False

    def __init__(
        self,
        parts: LinkParts,
        links: Mapping[str, NeighborLink],
        cooperation: Cooperation,
        discard: Callable[[NeighborLink, Left], None],
        on_demand: OnDemand,
        address: Address,
    ) -> None:
        super().__init__(parts, links, cooperation, discard)
        self._on_demand = on_demand
        self._address = address

    @property
    def address(self) -> Address:
        return self._address

    @property
    def on_demand(self) -> OnDemand:
        return self._on_demand

    @property
    def idle(self) -> bool:
        return self._on_demand.idle

    @property
    def most_links(self) -> int:
        return self.config.max_neighbors + self.config.max_links

    def start(self) -> None:
        self._on_demand.start()

    def stop(self) -> None:
        super().stop()
        self._on_demand.stop()

    def refusal(self, hello: Hello) -> Refusal | None:
        if not hello.on_demand:
            return super().refusal(hello)
        if self._on_demand.make_room():
            return None
        return Refusal("limit", "too many links (link.max_links)", ReasonCode.QUOTA_EXCEEDED)

    def is_dialing(self, node_id: str | None, token: str) -> bool:
        return self._on_demand.is_dialing(node_id, token)

    def classify(self, link: NeighborLink, neighbor: Neighbor | None, hello: Hello) -> None:
        if neighbor is not None:
            demanded = neighbor.expected is not None
        else:
            demanded = hello.on_demand
            if hello.address:
                link.address = hello.address
        link.on_demand = demanded and not link.introducer

    def named(self, link: NeighborLink) -> None:
        if link.in_cooperation:
            self.parts.dispatch.call("on_link_up", link)

    def connected(self, link: NeighborLink) -> None:
        self.cooperation.offer(link)

    def lost(self, link: NeighborLink, reason: str, kind: str) -> None:
        broken = link.in_cooperation and not link.closing and kind not in ("duplicate", "removed")
        self.driver.log("warning" if broken else "debug", "link down", neighbor=link.node_id, reason=reason)
        self.discard(link, "lost")
        if self.stopped:
            return
        if broken:
            self.parts.counters["links_lost"] += 1
            self._on_demand.link_broke(link)
            why = {"timeout": Unreachable.NO_ANSWER, SAME_BROKER: Unreachable.REJECTED}.get(
                kind, Unreachable.LOST
            )
            self.parts.dispatch.call("on_unreachable", link.node_id, why)
        self._on_demand.link_lost(link)

    def joined(self, link: NeighborLink) -> None:
        self._on_demand.joined(link)

    def control_message(self, link: NeighborLink, topic: str, payload: bytes) -> bool:
        return self._on_demand.control_message(link, topic)

"""The membership of algorithms that suppose a tree (thesis 5.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ildm.core.link import swapping
from ildm.core.link.control import ADVERTISEMENT, PATH, SWAP, WEIGHT, send_control
from ildm.core.link.membership import Membership
from ildm.core.link.paths import Paths
from ildm.core.link.state import LinkState
from ildm.core.link.subtree import UNMARKED
from ildm.core.link.swapping import Swaps
from ildm.core.link.topology import Advertisement, Topology
from ildm.core.link.weights import FEATURE, Weights, seconds
from ildm.core.transfer.rerouting import REST

if TYPE_CHECKING:
    from ildm.core.declared import Left
    from ildm.core.link.cooperation import Cooperation
    from ildm.core.link.hello import Hello, Refusal
    from ildm.core.link.link import NeighborLink
    from ildm.core.link.parts import LinkParts

CLAIM_PAUSE = 1.0
CLAIMS_OF_A_RESTART = 5
"""More claims to this node's id than a restart explains: another node has it, too."""
BELIEVED_AFTER = 2 * CLAIM_PAUSE
"""Seconds within which a living neighbour answers what others say in its name."""
LONGEST_LINGERING = 300.0
"""Seconds that a link stays whose neighbour is reached on another path, if the tree never comes to rest."""
UNREST = 20
"""A link joins after this many settling times even if the topology never comes to rest."""


class TreeMembership(Membership):
    """The links in use form a tree (see :mod:`ildm.core.link.topology`); absent ones are waited for."""

    def __init__(
        self,
        parts: LinkParts,
        links: Mapping[str, NeighborLink],
        cooperation: Cooperation,
        discard: Callable[[NeighborLink, Left], None],
    ) -> None:
        super().__init__(parts, links, cooperation, discard)
        self.topology = Topology(parts.node_id, parts.boot, self.config.max_nodes)
        self.weights = Weights(parts, links, self.topology, self._weighed)
        self.paths = Paths(parts.driver, parts.node_id, self.hop, self.config.max_nodes, self._reached)
        valid = swapping.VALID * self.config.settle
        most = self.config.max_nodes
        self.swaps = Swaps(parts.driver, parts.node_id, self.hop, self._swapped, most, valid)
        self._swapping = False
        """The tree is as the last swap has made it."""
        self._looking: Any = None
        self._settling: dict[NeighborLink, tuple[Any, float]] = {}
        self._absent: dict[NeighborLink, Any] = {}
        """When they are given up."""
        self._given_up: dict[NeighborLink, None] = {}
        """Away for too long: only their interest is kept. At ``max_neighbors`` they give way."""
        self._lingering: dict[NeighborLink, Any] = {}
        """Links of the cooperation that are no part of the tree: when it is looked whether they may leave."""
        self._changed_at = 0.0
        self._considering = False
        self._claim_timer: Any = None
        self._held: dict[str, tuple[Advertisement, Any]] = {}
        """News of neighbours that others have told, until they say themselves what is so."""

    @property
    def path_seconds(self) -> float | None:
        return self.topology.longest(seconds)

    def start(self) -> None:
        self.weights.start()

    def stop(self) -> None:
        super().stop()
        self.weights.stop()

    def age(self) -> int:
        return self.topology.next_age()

    def connected(self, link: NeighborLink) -> None:
        """Tell the neighbour everything known of the topology."""
        self._cancel_expiry(link)
        if len(self.links) > self.config.max_neighbors and self._given_up:
            self.discard(next(iter(self._given_up)), "neighbor_expired")
        for advertisement in self.topology.advertisements():
            send_control(link, ADVERTISEMENT, advertisement.encode())
        self.weights.connected(link)

    def refusal(self, hello: Hello) -> Refusal | None:
        return None if self._given_up else super().refusal(hello)

    def lost(self, link: NeighborLink, reason: str, kind: str) -> None:
        self.driver.log("warning", "link down", neighbor=link.node_id, reason=reason)
        self._cancel_settling(link)
        if kind == "removed" or not link.in_cooperation:
            self.discard(link, "removed" if kind == "removed" else "lost")
        else:
            self.absent(link)

    def absent(self, link: NeighborLink) -> None:
        self._cancel_expiry(link)
        self._absent[link] = self.driver.call_later(self.config.expiry, self._expire, link, link.since)

    def _cancel_expiry(self, link: NeighborLink) -> None:
        if (timer := self._absent.pop(link, None)) is not None:
            timer.cancel()
        self._given_up.pop(link, None)

    def _expire(self, link: NeighborLink, since: float) -> None:
        self._absent.pop(link, None)
        if self._still_absent(link, since):
            self.parts.counters["links_expired"] += 1
            self.driver.log(
                "warning",
                "neighbour given up",
                neighbor=link.node_id,
                away=self.config.expiry,
                messages=link.queued,
                bytes=link.queued_bytes,
                filters=len(link.interest),
            )
            self._given_up[link] = None
            self.cooperation.expire(link)

    def _still_absent(self, link: NeighborLink, since: float) -> bool:
        return self.links.get(link.node_id) is link and not link.connected and link.since == since

    def forgotten(self, link: NeighborLink) -> None:
        self._cancel_settling(link)
        self._cancel_expiry(link)
        self._cancel_lingering(link)
        self.paths.forget(link.node_id)
        self.weights.forgotten(link)

    # the graph --------------------------------------------------------------------------------

    def hop(self, node: str) -> NeighborLink | None:
        link = self.links.get(self.topology.hop(node) or "")
        return link if link is not None and link.state is LinkState.ACTIVE else None

    def path(self, node: str) -> NeighborLink | None:
        hop = self.hop(node)
        return hop if self.parts.custody is None or self.paths.known(node, self._changed_at) else None

    def at_rest(self, link: NeighborLink) -> bool:
        tree = self.topology.tree()
        unknown = {node for node in link.subtree.moved if not self._is_reached(node)}
        return (
            not unknown
            and self.driver.now() - self._changed_at >= REST * self.config.settle
            and all(node in self.links and self.links[node].state is LinkState.ACTIVE for node in tree)
        )

    def _is_reached(self, node: str, asks: bool = True) -> bool:
        # of one that is gone, those that were linked with it keep what comes
        known = self.paths.known if asks else self.paths.answered
        return not self.topology.reaches(node) or known(node, self._changed_at)

    def _reached(self, node: str) -> None:
        self._move(self.topology.behind(), asks=False)
        link = self.links.get(node)
        if link is not None and link in self._lingering:
            self._cancel_lingering(link)
            self._lingered(link)

    def joined(self, link: NeighborLink) -> None:
        self._changed_at = self.driver.now()
        self._cancel_lingering(link)
        self._move(self.topology.behind())
        for other in self._lingering:
            self._pass_by(other)

    def measured(self, link: NeighborLink) -> None:
        self.weights.measured(link)

    def changed(self) -> None:
        ages = {link.node_id: link.age for link in self.links.values() if link.connected}
        advertisement = self.topology.set_links(ages)
        if advertisement is not None:
            self._flood(advertisement, None)
            self.weights.unrest()
        self._consider()

    def control_message(self, link: NeighborLink, topic: str, payload: bytes) -> bool:
        if topic == PATH:
            self.paths.came(link, payload)
            return True
        if topic == SWAP and swapping.FEATURE in link.features:
            self.swaps.came(link, payload)
            return True
        if topic == WEIGHT and FEATURE in link.features:
            self.weights.came(link, payload)
            return True
        if topic != ADVERTISEMENT:
            return False
        advertisement = Advertisement.decode(payload)
        about = self.links.get(advertisement.node)
        if about is not None and about is not link and about.connected:
            self._hearsay(about, advertisement)
        else:
            if about is link:
                self._settled_by(link, advertisement)
            self._news(link, advertisement)
        return True

    def _news(self, link: NeighborLink | None, advertisement: Advertisement) -> None:
        news = self.topology.receive(advertisement)
        if news is not None and news.node == self.parts.node_id:
            self._claim_own()
        elif news is not None:
            self._flood(news, link)
            self.weights.unrest()
            if not self._considering:  # once for all news that have come together
                self._considering = True
                self.driver.call_soon(self._consider)

    def _hearsay(self, about: NeighborLink, advertisement: Advertisement) -> None:
        """Somebody tells news of a neighbour with which there is a link.

        It is asked, and believed if it says nothing: then it has begun another life, and the link is dead
        without anybody having noticed. So nobody can speak in the name of a node against what that says.
        """
        if not self.topology.is_news(advertisement):
            return
        self.parts.counters["advertisements_second_hand"] += 1
        send_control(about, ADVERTISEMENT, advertisement.encode())
        held = self._held.pop(about.node_id, None)
        if held is not None:
            held[1].cancel()
        timer = self.driver.call_later(BELIEVED_AFTER, self._believed, about.node_id)
        self._held[about.node_id] = advertisement, timer

    def _believed(self, node_id: str) -> None:
        advertisement, _ = self._held.pop(node_id)
        if not self.stopped:
            self._news(None, advertisement)

    def _settled_by(self, link: NeighborLink, advertisement: Advertisement) -> None:
        """A neighbour speaks for itself: what others have said in its name until then was not its word."""
        held = self._held.get(link.node_id)
        if held is None or held[0].order > advertisement.order:
            return
        held[1].cancel()
        del self._held[link.node_id]
        if held[0] == advertisement:
            return  # it was only slower on this way
        link.disputes += 1
        self.parts.counters["advertisements_disputed"] += 1
        if link.disputes == CLAIMS_OF_A_RESTART + 1:
            self.parts.counters["node_ids_copied"] += 1
            self.driver.log("error", "two nodes seem to have the same id", node_id=link.node_id)

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
            counters = self.parts.counters
            counters["own_id_advertised"] += 1
            if counters["own_id_advertised"] == CLAIMS_OF_A_RESTART + 1:
                self.driver.log(
                    "error", "another node seems to have this node's id", node_id=self.parts.node_id
                )
            self._claim_timer = self.driver.call_later(CLAIM_PAUSE, self._claim)

    def _claim(self) -> None:
        self._claim_timer = None
        if not self.stopped:
            self._flood(self.topology.own, None)
            self._consider()

    # joining and leaving ------------------------------------------------------------------------

    def _weighed(self, before: frozenset[tuple[str, str]]) -> None:
        """Weights are other ones; ``before``: the forest until then."""
        after = self.topology.forest()
        self.swaps.end()
        self._swapping = swapping.swap_of(before, after) is not None
        self._reconsider()

        def has_left(node: str) -> bool:
            return node in self.links and not self.links[node].state.takes

        self.swaps.begin(before, after, has_left)

    def _swapped(self, node: str) -> None:
        """The link that another one was let go for may join."""
        link = self.links.get(node)
        if link is not None and link in self._settling:
            self._cancel_settling(link)
            self._settled(link)

    def _consider(self) -> None:
        """The graph has changed."""
        self._swapping = False
        self._give_up_swap()
        self._reconsider()

    def _reconsider(self) -> None:
        """Let links join or leave so that the cooperating ones form the tree."""
        self._considering = False
        self._changed_at = self.driver.now()
        for advertisement in self.topology.returned():
            self._flood(advertisement, None)
        behind = self.topology.behind()
        self._move(behind)
        for link in list(self.links.values()):
            if not link.connected:
                self.lingers(link)
            elif link.node_id in behind:
                if not link.ready_here:
                    self._settle(link, self.config.settle)
            elif self.topology.agreed(link.node_id):  # until then nothing is decided
                self._cancel_settling(link)
                self.cooperation.withdraw(link)

    def _move(self, behind: Mapping[str, set[str]], asks: bool = True) -> None:
        """Nodes are behind other links than before: the messages that wait for them there are rerouted."""
        for link in self.links.values():
            here = behind.get(link.node_id)
            if not link.kept or not link.in_cooperation:
                continue
            if here is None:
                if link.connected or self.topology.reaches(link.node_id):
                    continue  # it keeps all until it is part of the tree again, or leaves
                here = set()  # the neighbour has ended, and nobody knows for how long
            others = (nodes for first, nodes in behind.items() if first != link.node_id)
            moved = link.subtree.nodes & set().union(*others)
            takes = link.state is LinkState.ACTIVE and (link.idle or self._swapping)
            if takes and not link.subtree.reroute_pending:
                # Until a node has told what it wants on its new path, what is for it still comes here.
                moved = {node for node in moved if self._is_reached(node, asks)}
                if moved and not link.idle and not self._is_past(link, moved):
                    moved = set()
            elif moved:
                self.cooperation.rerouting.suspend(link)
            if link.subtree.replace(here, moved) and self.parts.memory is not None:
                self.parts.memory.joined(link)

    def _is_past(self, link: NeighborLink, moved: set[str]) -> bool:
        """Whether the neighbour has taken upon itself all that was for nodes which are elsewhere since a
        swap: the end of the old link keeps it, as that is up. If not, it is looked at again."""
        assert self.parts.custody is not None
        mark, nodes = link.subtree.mark
        if not moved <= nodes:
            link.subtree.mark = self.parts.custody.last, moved
        elif not link.queued and link.oldest > mark:
            link.subtree.mark = UNMARKED
            return True
        if self._looking is None:
            self._looking = self.driver.call_later(self.config.settle, self._look)
        return False

    def _look(self) -> None:
        self._looking = None
        if not self.stopped:
            self._move(self.topology.behind(), asks=False)

    def lingers(self, link: NeighborLink) -> None:
        """Look in a while whether a link may leave: perhaps only news of the neighbour's end is under way,
        and nodes on the other path have to hear from each other what they want."""
        if link.in_cooperation:
            self._cancel_lingering(link)
            pause = (REST if link.kept else 2) * self.config.settle
            self._lingering[link] = self.driver.call_later(pause, self._lingered, link)

    def _lingered(self, link: NeighborLink) -> None:
        self._lingering.pop(link, None)
        known = self.links.get(link.node_id) is link and link.in_cooperation and not self.stopped
        if not known or link.node_id in self.topology.tree() or not self.topology.reaches(link.node_id):
            return  # it is told when that changes
        if link.kept:
            late = self.driver.now() - link.held_at >= LONGEST_LINGERING
            self._pass_by(link)
            if not late and not (self.at_rest(link) and self.path(link.node_id) is not None):
                self.lingers(link)
                return
        if link.connected:
            self.cooperation.leave(link)
        else:
            self.discard(link, "other_path")

    def _pass_by(self, link: NeighborLink) -> None:
        if link.kept and self.hop(link.node_id) is not None:
            self.cooperation.pass_by(link)

    def _cancel_lingering(self, link: NeighborLink) -> None:
        timer = self._lingering.pop(link, None)
        if timer is not None:
            timer.cancel()

    def _settle(self, link: NeighborLink, pause: float) -> None:
        """Let a link join after a while without news of the topology."""
        timer, since = self._settling.get(link, (None, self.driver.now()))
        if timer is not None:
            if self.driver.now() - since > UNREST * pause:
                return
            timer.cancel()
        self._settling[link] = self.driver.call_later(pause, self._settled, link), since

    def _give_up_swap(self) -> None:
        if self.swaps.end():
            self.parts.counters["tree_swaps_given_up"] += 1

    def _settled(self, link: NeighborLink) -> None:
        self._settling.pop(link, None)
        self._give_up_swap()  # else the word has come
        if link.connected and self.links.get(link.node_id) is link:
            self.cooperation.offer(link)

    def _cancel_settling(self, link: NeighborLink) -> None:
        timer, _ = self._settling.pop(link, (None, 0.0))
        if timer is not None:
            timer.cancel()

"""What outlives a restart of the cooperation: which neighbours took part in it, and what they wanted.

So messages for them wait in queues from the first one on, before any link is up again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ildm.core.tables import COOPERATION, INTEREST

if TYPE_CHECKING:
    from ildm.core.driver import Store
    from ildm.core.link.link import NeighborLink


class Remembered(NamedTuple):
    """A link of an earlier life of this node."""

    node_id: str
    age: int
    sessions: int
    dialed: str
    """The address dialed; empty where the neighbour has dialed, or DNS has named it."""
    interest: Mapping[str, int]
    behind: frozenset[str]
    reroute_pending: bool
    """See :class:`ildm.core.link.subtree.Subtree`."""


class LinkStore:
    """Saves what changes as it changes.

    Args:
        algorithm: links of another algorithm mean nothing to this one.
    """

    def __init__(self, store: Store, algorithm: str) -> None:
        self.store = store
        self.algorithm = algorithm

    def joined(self, link: NeighborLink) -> None:
        """Also to be told when what is behind it changes."""
        # at an address that DNS has named another node may answer by then
        dialed = link.address or "" if link.dialed and not link.found else ""
        behind = "\n".join(sorted(link.subtree.nodes))
        row = (link.age, len(link.senders), self.algorithm, dialed, behind, int(link.subtree.reroute_pending))
        self.store.put(COOPERATION, (link.node_id,), row)

    def interest_changed(self, link: NeighborLink, changes: Mapping[str, int | None]) -> None:
        for topic_filter, qos in changes.items():
            row = None if qos is None else (qos,)
            self.store.put(INTEREST, (link.node_id, topic_filter), row)

    def left(self, link: NeighborLink) -> None:
        """To be told while the link still knows the neighbour's interest."""
        self.store.put(COOPERATION, (link.node_id,), None)
        self.interest_changed(link, dict.fromkeys(link.received_interest.filters))

    def load(self) -> list[Remembered]:
        """What an earlier life has saved; what makes no sense, or is another algorithm's, is forgotten."""
        interest: dict[str, dict[str, int]] = {}
        nodes: list[Remembered] = []
        for key, (age, sessions, algorithm, dialed, behind, reroute_pending) in list(
            self.store.load(COOPERATION)
        ):
            (node_id,) = key
            assert isinstance(node_id, str)
            if algorithm != self.algorithm:
                self.store.put(COOPERATION, key, None)
            elif isinstance(age, int) and isinstance(sessions, int) and 1 <= sessions <= 64:
                interest[node_id] = {}
                address = dialed if isinstance(dialed, str) else ""
                nodes_behind = frozenset(behind.splitlines() if isinstance(behind, str) else ())
                nodes.append(
                    Remembered(
                        node_id,
                        age,
                        sessions,
                        address,
                        interest[node_id],
                        nodes_behind,
                        bool(reroute_pending),
                    )
                )
            else:
                self.store.set_aside(COOPERATION, key, "no link can be so")
        for key, (qos,) in list(self.store.load(INTEREST)):
            node_id, topic_filter = key
            assert isinstance(node_id, str)
            assert isinstance(topic_filter, str)
            if node_id not in interest:
                self.store.put(INTEREST, key, None)
            elif isinstance(qos, int) and 0 <= qos <= 2:
                interest[node_id][topic_filter] = qos
            else:
                self.store.set_aside(INTEREST, key, f"QoS {qos!r}")
        return nodes

    def forget(self, remembered: Remembered) -> None:
        self.store.put(COOPERATION, (remembered.node_id,), None)
        for topic_filter in remembered.interest:
            self.store.put(INTEREST, (remembered.node_id, topic_filter), None)

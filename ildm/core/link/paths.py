"""Whether a node is really reached: asked of the node itself, along the tree.

The topology says which links there are; not that those of other nodes carry messages by now, nor that a node
which stands still has a say. A question goes from node to node as messages do, over links in the cooperation
alone, and its answer comes back in the same way. What was announced or sent before on the same path has come
by then as far as the first node that keeps it, but for what is still under way on a link: it may be on
another session than the answer. Who has sent it knows, as no answer passes a node that counts who has given
it to what is behind the link that it would take: so the messages under way there are rerouted
(:mod:`ildm.core.transfer.rerouting`).

Questions and answers are ``[answer, number, to, from, hops]`` in JSON; ``hops`` counts down, as nodes that
see the tree differently could send one round and round.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from ildm.core.link.control import PATH, send_control
from ildm.core.link.state import LinkState
from ildm.core.link.topology import MAX_NODE_ID, MAX_NUMBER
from ildm.mqtt import MalformedPacket

if TYPE_CHECKING:
    from ildm.core.driver import Driver
    from ildm.core.link.link import NeighborLink

LARGEST = 1024
"""Bytes of a question or answer."""
PAUSE = 1.0
"""Seconds before a node is asked again that others have asked as well: that makes an answer under way
worthless."""


class Paths:
    """What one node has asked, and what it passes on.

    Args:
        hop: the link in the cooperation that leads to a node now, if there is one.
        hops: so many links a path may have, and nodes there may be; of more nothing is remembered, as many
            of them are gone: they are asked anew.
        reached: a node has answered.
    """

    def __init__(
        self,
        driver: Driver,
        node_id: str,
        hop: Callable[[str], NeighborLink | None],
        hops: int,
        reached: Callable[[str], None],
    ) -> None:
        self.driver = driver
        self.node_id = node_id
        self.hop = hop
        self.hops = hops
        self.reached = reached
        self._number = 0
        self._asked: dict[str, tuple[int, float]] = {}
        """Number and time of the last question."""
        self._answered: dict[str, float] = {}

    @property
    def remembered(self) -> int:
        """Questions without an answer, and nodes that have answered."""
        return len(self._asked) + len(self._answered)

    def known(self, node: str, since: float) -> bool:
        """Whether a node has been reached since a time (monotonic); else it is asked now, if it can be."""
        if self.answered(node, since):
            return True
        self._ask(node)
        return False

    def _ask(self, node: str) -> None:
        link = self.hop(node)
        if link is not None:
            self._number += 1
            if len(self._asked) > self.hops:
                self._asked.clear()
            self._asked[node] = self._number, self.driver.now()
            self._send(link, False, self._number, node, self.node_id, self.hops)

    def answered(self, node: str, since: float) -> bool:
        """The same without a question, which would make the answer to the last one worthless."""
        return self._answered.get(node, -1.0) >= since

    def forget(self, node: str) -> None:
        """Nothing is wanted of a node any more."""
        self._asked.pop(node, None)
        self._answered.pop(node, None)

    def came(self, source: NeighborLink, payload: bytes) -> None:
        """A question or an answer of a neighbour's, perhaps for others. Raises: MalformedPacket."""
        answer, number, to, sender, hops = _decoded(payload)
        if source.state is not LinkState.ACTIVE:
            return
        if to != self.node_id:
            link = self.hop(to)
            if link is None or link is source or hops == 0:
                return
            if answer and sender in link.subtree.nodes:
                if self.driver.now() - self._asked.get(sender, (0, -PAUSE))[1] >= PAUSE:
                    self._ask(sender)
                return
            self._send(link, answer, number, to, sender, hops - 1)
        elif not answer:
            self._send(source, True, number, sender, to, self.hops)
        elif self._asked.get(sender, (0, 0.0))[0] == number:
            del self._asked[sender]
            if len(self._answered) > self.hops:
                self._answered.clear()
            self._answered[sender] = self.driver.now()
            self.reached(sender)

    def _send(self, link: NeighborLink, answer: bool, number: int, to: str, sender: str, hops: int) -> None:
        if any(each.wire.stalled for each in link.senders):
            return  # it would overtake messages that wait for the disk; it is asked for again
        send_control(link, PATH, json.dumps([answer, number, to, sender, hops]).encode())


def _decoded(payload: bytes) -> tuple[bool, int, str, str, int]:
    try:
        if len(payload) > LARGEST:
            raise ValueError(f"{len(payload)} bytes")
        answer, number, to, sender, hops = json.loads(payload)
        names = all(isinstance(name, str) and 0 < len(name) <= MAX_NODE_ID for name in (to, sender))
        numbers = all(type(each) is int and 0 <= each < MAX_NUMBER for each in (number, hops))
        if not (isinstance(answer, bool) and names and numbers):
            raise TypeError("wrong types")
    except (ValueError, TypeError, RecursionError) as error:
        raise MalformedPacket(f"malformed question for a path: {error}", clause="MQTT-4.13") from None
    return answer, number, to, sender, hops

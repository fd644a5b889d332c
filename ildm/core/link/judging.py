"""Why a neighbour is not accepted, from what it says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.core.link.clocks import milliseconds
from ildm.core.link.features import offered
from ildm.core.link.hello import Hello, Refusal
from ildm.core.link.versions import Range
from ildm.mqtt import ReasonCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ildm.api import Peer
    from ildm.core.link.link import NeighborLink
    from ildm.core.link.membership import Membership
    from ildm.core.link.parts import LinkParts

SAME_BROKER = "same-broker"
"""Kind of refusal."""
STALE = Refusal("stale", "no such link", ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)
DUPLICATE = Refusal(
    "duplicate", "there is a link between these nodes", ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
)

DEPOSED = "deposed"
"""Kind of refusal."""


def own_protocols(parts: LinkParts) -> Range:
    """Versions of the link protocol that this node takes."""
    return parts.protocols._replace(low=parts.config.protocol.lowest)


def mismatch(parts: LinkParts, hello: Hello) -> Refusal | None:
    """Whether two nodes cannot cooperate at all, as either side sees it."""
    if hello.node == parts.node_id:
        text = f"the neighbour has this node's own id {hello.node!r}"
        itself = parts.node_id if hello.boot == parts.boot else ""  # else there are two with one id
        return Refusal("own-id", text, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, itself)
    if hello.to not in ("", parts.node_id):
        return _wrong_node(parts.node_id, hello.to)
    if hello.algorithm != parts.algorithm:
        # the text is read at the other end, so it does not say "this" or "that" node
        text = f"{parts.node_id} runs algorithm {parts.algorithm!r}, {hello.node} runs {hello.algorithm!r}"
        return Refusal("algorithm", text, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)
    own = Range(*parts.wire)
    if own.agreed(hello.wire) is None:
        text = (
            f"{parts.node_id} reads {own.words} of the messages of {parts.algorithm!r}, "
            f"{hello.node} reads {hello.wire.words}"
        )
        return Refusal("version", text, ReasonCode.UNSUPPORTED_PROTOCOL_VERSION)
    return None


def copied(node_id: str, by: str) -> Refusal:
    """There are two nodes with one id; said to the one that is not linked."""
    text = f"{by} has a link with another node that has the id {node_id!r}: one of the two needs another id"
    return Refusal("copied-id", text, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)


def same_broker(one: str, other: str) -> Refusal:
    """Two nodes before one broker; said at both ends alike."""
    first, second = sorted((one, other))
    text = (
        f"{first} and {second} have the same broker (broker.address), so each message would come twice: "
        "linked nodes need a broker each"
    )
    return Refusal("same-broker", text, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)


def deposed(node_id: str) -> Refusal:
    """Another member of the same site has claimed it later."""
    text = f"another member of {node_id} owns the site by now"
    return Refusal("deposed", text, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)


def follows(link: NeighborLink, hello: Hello) -> bool:
    """Whether a later owner of the neighbour's site says hello: the one that is linked is its owner no more,
    although its connection may seem to live."""
    return 0 < link.epoch < hello.epoch


def wrong_answer(hello: Hello, expected: str | None) -> Refusal | None:
    """Whether another node than the one expected has accepted a dial."""
    return None if expected in (None, hello.node) else _wrong_node(hello.node, expected or "")


def _wrong_node(answers: str, expected: str) -> Refusal:
    text = f"{answers} answers at this address, not {expected}"
    return Refusal("wrong-node", text, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, answers)


class HelloJudge:
    """Decides about neighbours in the handshake, and says what this node answers.

    Args:
        links: the manager's links by node id.
        peer: this node as others reach it.
        replace_session: ends the session of a link which another one with its index is about to follow.
    """

    def __init__(
        self,
        parts: LinkParts,
        links: Mapping[str, NeighborLink],
        membership: Membership,
        peer: Callable[[], Peer],
        replace_session: Callable[[NeighborLink, int], None],
    ) -> None:
        self.parts = parts
        self.links = links
        self.membership = membership
        self.peer = peer
        self.replace_session = replace_session

    def hello(
        self, far: str | None, index: int, token: str, age: int = 0, sessions: int | None = None
    ) -> Hello:
        """What this node says to ``far`` (None while unknown) of itself and of a session."""
        link = self.links.get(far or "")
        on_demand = self.membership.is_dialing(far, token)
        config, first = self.parts.config, link if index > 0 else None
        return Hello(
            node=self.parts.node_id,
            boot=self.parts.boot,
            algorithm=self.parts.algorithm,
            sessions=config.sessions if sessions is None else sessions,
            index=index,
            token=token,
            age=age,
            fresh=self.begins(link),
            address=self.peer().address,
            on_demand=on_demand,
            to=far or "" if on_demand else "",
            inflight_bytes=config.inflight_bytes,
            time=milliseconds(self.parts.driver.wall()),
            broker=self.parts.injector.same_broker.number,
            protocols=own_protocols(self.parts),
            features=offered(config.features.disabled) if first is None else first.features,
            wire=Range(*self.parts.wire),
            release=self.parts.release,
            epoch=self.parts.epoch,
        )

    def begins(self, link: NeighborLink | None) -> bool:
        """Whether nothing goes on that was under way with a neighbour."""
        return link is None or not link.in_cooperation or not link.boot

    def dialer(self, hello: Hello) -> Hello | Refusal:
        """The acceptor's decision about a neighbour that has proven who it is."""
        refusal = mismatch(self.parts, hello)
        if refusal is not None:
            return refusal
        link = self.links.get(hello.node)
        if hello.index > 0:
            if (
                link is None
                or not link.connected
                or link.token != hello.token
                or hello.index >= len(link.senders)
                or self._differs(link, hello)
            ):
                return STALE
            self.replace_session(link, hello.index)
            return self.hello(hello.node, hello.index, hello.token, link.age, len(link.senders))
        if self._has_same_broker(hello):
            return same_broker(self.parts.node_id, hello.node)._replace(node=self.parts.node_id)
        if link is not None and 0 < hello.epoch < link.epoch:
            return deposed(hello.node)._replace(node=self.parts.node_id)
        if link is not None and link.control is not None and not follows(link, hello):
            # also when the neighbour seems to have restarted: two nodes might have the same id
            heard = self.parts.driver.now() - link.control.last_heard
            if not hello.on_demand:
                link.on_demand = False  # from now on a configuration asks for it
            rival = self._rival(link, hello)
            if link.dialed or heard <= 1.2 * self.parts.config.keep_alive:
                return rival or DUPLICATE._replace(node=self.parts.node_id)
        if link is None:
            refusal = self.membership.refusal(hello)
            if refusal is not None:
                return refusal
        age = link.age if link is not None and link.in_cooperation else self.membership.age()
        return self.hello(hello.node, 0, hello.token, age, hello.sessions)

    def acceptor(self, hello: Hello, expected: str | None) -> Refusal | None:
        """The dialer's decision about a neighbour that has accepted it."""
        refusal = wrong_answer(hello, expected) or mismatch(self.parts, hello)
        link = self.links.get(hello.node)
        if refusal is None and hello.index > 0:
            if link is not None and self._differs(link, hello):
                refusal = STALE
        elif refusal is None:
            if link is not None and 0 < hello.epoch < link.epoch:
                refusal = deposed(hello.node)
            elif link is not None and link.control is not None and not follows(link, hello):
                refusal = self._rival(link, hello)
            if refusal is None and self._has_same_broker(hello):
                refusal = same_broker(self.parts.node_id, hello.node)
        return refusal

    def _differs(self, link: NeighborLink, hello: Hello) -> bool:
        """Whether a further session would not have the protocol and the features of the first."""
        protocol = own_protocols(self.parts).agreed(hello.protocols)
        return protocol != link.protocol or hello.features & link.features != link.features

    def outdated(self, link: NeighborLink) -> bool:
        """Whether both ends would agree on something else by the configuration of now."""
        if link.hello is None:
            return False
        config = self.parts.config
        protocol = own_protocols(self.parts).agreed(link.hello.protocols)
        encrypted = link.control is not None and link.control.encrypted
        own = offered(config.features.disabled) - self.parts.compression.unnamed(encrypted)
        features = own & link.hello.features
        return (protocol, features) != (link.protocol, link.features)

    def _has_same_broker(self, hello: Hello) -> bool:
        return self.parts.injector.same_broker.refuses(hello.node, hello.boot, hello.broker)

    def _rival(self, link: NeighborLink, hello: Hello) -> Refusal | None:
        """Whether a node that says it is this link's neighbour is another one, or may be.

        One that has begun another life has either restarted, and the link is dead without anybody having
        noticed; or its id was copied, and the link answers.
        """
        assert link.control is not None
        if hello.boot == link.boot:
            return None
        tried, link.rival = link.rival, (hello.boot, self.parts.driver.now())
        link.control.ping()
        if tried is None or tried[0] != hello.boot:
            return DUPLICATE._replace(node=self.parts.node_id)  # it will try again
        if link.control.last_heard <= tried[1]:
            return None
        self.parts.counters["node_ids_copied"] += 1
        return copied(hello.node, self.parts.node_id)

"""What two nodes say of themselves when they meet, and how they prove that they share the link secret."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ildm.api import Unreachable
from ildm.core.link.features import NONE, decoded, encoded
from ildm.core.link.versions import FIRST, PROTOCOLS, RANGES, Range
from ildm.mqtt import (
    ConnAck,
    Properties,
    Property,
    ProtocolViolation,
    ReasonCode,
    Version,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

METHOD = "ILDM-HMAC-SHA256"
STRETCH = 100_000
"""Rounds of PBKDF2: what a guess of the secret costs somebody who has collected a proof."""
NONCE = 16
PROOF = 32
"""Bytes of a proof."""
LATEST = 253_402_300_799_000
"""9999-12-31 in milliseconds: no clock is told to show more."""
HIGHEST_EPOCH = (1 << 32) - 1
MAX_ADDRESS = 300
"""Characters: a host name of 253 and a port, and something to spare."""
RELEASE = re.compile(r"[0-9A-Za-z.+-]{1,32}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Hello:
    """What a node tells about itself and the session that is being made."""

    node: str
    boot: int
    """When this life of the node began, in ms of Unix time: tells a restart."""
    algorithm: str
    sessions: int
    """TCP connections of the link."""
    index: int
    """Which of them this is; 0 is the control session."""
    token: str
    """Names the link which the sessions belong to."""
    age: int = 0
    """Age of the link for the spanning tree; said by the acceptor."""
    fresh: bool = True
    """Nothing is left here of an earlier life of the link: packet identifiers begin anew."""
    address: str = ""
    """Where other nodes reach this one; empty if they cannot."""
    on_demand: bool = False
    """The dialer needs the link for data of the algorithm; it is not configured."""
    to: str = ""
    """The only node the dialer wants to talk to; empty for whichever is there."""
    inflight_bytes: int = 0
    """Bytes of QoS 1 and 2 that this node takes unacknowledged; 0: as many as the other one does."""
    time: int = 0
    """What the clock of the node shows, in ms of Unix time; 0: not told."""
    broker: int = 0
    """Which connection of this node with its broker is in use; see :mod:`ildm.core.broker.same_broker`."""
    protocols: Range = PROTOCOLS
    """Versions of the link protocol that this node takes."""
    features: frozenset[str] = NONE
    """What this node can do on the link beyond the protocol."""
    wire: Range = FIRST
    """Versions of the algorithm's own messages that this node reads."""
    release: str = ""
    """Of the node's software, for people: nothing is decided by it."""
    epoch: int = 0
    """Of the claim by which this member of a pair owns its site; 0: the node is in no pair."""

    def properties(self) -> list[tuple[str, str]]:
        return [
            ("ildm", str(self.protocols.low)),
            ("node", self.node),
            ("boot", str(self.boot)),
            ("algorithm", self.algorithm),
            ("sessions", str(self.sessions)),
            ("index", str(self.index)),
            ("link", self.token),
            ("age", str(self.age)),
            ("fresh", str(int(self.fresh))),
            ("address", self.address),
            ("on-demand", str(int(self.on_demand))),
            ("to", self.to),
            ("inflight-bytes", str(self.inflight_bytes)),
            ("time", str(self.time)),
            ("broker", str(self.broker)),
            ("protocol", str(self.protocols)),
            ("features", encoded(self.features)),
            ("algorithm-wire", str(self.wire)),
            ("release", self.release),
            ("epoch", str(self.epoch)),
        ]

    @classmethod
    def parse(cls, properties: Properties, protocol: int = PROTOCOLS.high) -> Hello:
        """``protocol``: the one that both ends have, see :func:`agreed`. What came with a later one is as if
        it had not been said.

        Raises:
            ProtocolViolation: it is not the hello of a node of this protocol.
        """
        said = said_in(properties)
        if protocol < RANGES:
            said = {name: value for name, value in said.items() if name not in SINCE_RANGES}
        release = said.get("release", "")
        try:
            hello = cls(
                node=said["node"],
                boot=int(said["boot"]),
                algorithm=said["algorithm"],
                sessions=int(said["sessions"]),
                index=int(said["index"]),
                token=said["link"],
                age=int(said["age"]),
                fresh=said["fresh"] == "1",
                address=said.get("address", ""),
                on_demand=said.get("on-demand") == "1",
                to=said.get("to", ""),
                inflight_bytes=int(said.get("inflight-bytes", "0")),
                time=int(said.get("time", "0")),
                broker=int(said.get("broker", "0")),
                protocols=protocols_of(said),
                features=decoded(said.get("features", "")),
                wire=_wire(said.get("algorithm-wire")),
                release=release if RELEASE.fullmatch(release) else "",
                epoch=int(said.get("epoch", "0")),
            )
        except (KeyError, ValueError) as error:
            raise ProtocolViolation(f"incomplete hello: {error}", clause="MQTT-4.13") from None
        if not (
            1 <= hello.sessions <= 64
            and 0 <= hello.index < hello.sessions
            and 1 <= len(hello.node) <= 64
            and len(hello.address) <= MAX_ADDRESS
            and hello.inflight_bytes >= 0
            and 0 <= hello.time <= LATEST
            and 0 <= hello.epoch <= HIGHEST_EPOCH
        ):
            raise ProtocolViolation("hello out of range", clause="MQTT-4.13")
        return hello


def _wire(said: str | None) -> Range:
    try:
        return FIRST if said is None else Range.parse(said)
    except ValueError as error:
        raise ValueError(f"algorithm-wire: {error}") from None


SINCE_RANGES = ("protocol", "features", "algorithm-wire", "release", "epoch")
"""Properties that no node of an earlier protocol knows."""
WHY = {
    "timeout": Unreachable.NO_ANSWER,
    **dict.fromkeys(("wrong-node", "own-id", "malformed"), Unreachable.OTHER_NODE),
    **dict.fromkeys(("", "disconnected", "internal", "outdated"), Unreachable.LOST),
}
"""What it means for the algorithm, by the kind of refusal; any other kind: the node is there and rejects."""


class Refusal(NamedTuple):
    """Why a neighbour is not accepted: ``kind`` for programs, ``text`` for people."""

    kind: str
    text: str
    reason: ReasonCode
    node: str = ""
    """Who refuses, where that matters."""

    @property
    def why(self) -> Unreachable:
        """The same for the algorithm."""
        return WHY.get(self.kind, Unreachable.REJECTED)

    def connack(self) -> bytes:
        properties: Properties = {
            Property.REASON_STRING: self.text,
            Property.USER_PROPERTY: [("refusal", self.kind), ("node", self.node)],
        }
        return ConnAck(session_present=False, reason_code=int(self.reason), properties=properties).encode(
            Version.V5
        )

    @classmethod
    def parse(cls, packet: ConnAck) -> Refusal:
        said = dict(packet.properties.get(Property.USER_PROPERTY, ()))
        text = packet.properties.get(Property.REASON_STRING, f"reason code 0x{packet.reason_code:02X}")
        return cls(
            said.get("refusal", "unknown"), str(text), ReasonCode.UNSPECIFIED_ERROR, said.get("node", "")
        )


def said_in(properties: Properties) -> dict[str, str]:
    """What a node says in a packet. Raises: ProtocolViolation when it is no node at all."""
    said = dict(properties.get(Property.USER_PROPERTY, ()))
    if "ildm" not in said:
        raise ProtocolViolation("not a node of ILDM", clause="MQTT-4.13")
    return said


def protocols_of(said: Mapping[str, str]) -> Range:
    """Versions that the sender of a hello takes. Raises: ValueError when nobody can say."""
    if "protocol" in said:
        return Range.parse(said["protocol"])
    return Range.parse(f"{said['ildm']}-{said['ildm']}")  # of a node that has but one


def agreed(said: Mapping[str, str], own: Range, node_id: str) -> int | Refusal:
    """The protocol that a node which has said this and this node have in common, or why there is none."""
    far = said.get("node", "?")[:64]
    try:
        versions = protocols_of(said)
    except ValueError as error:
        text = f"{far} does not say its versions of the link protocol: {error}"
    else:
        protocol = own.agreed(versions)
        if protocol is not None:
            return protocol
        text = f"{node_id} speaks {own.words} of the link protocol, {far} speaks {versions.words}"
    return Refusal("version", text, ReasonCode.UNSUPPORTED_PROTOCOL_VERSION)


@lru_cache(maxsize=16)
def link_key(secret: str) -> bytes:
    """The key that proofs are made with. Takes some ten milliseconds, once."""
    return hashlib.pbkdf2_hmac("sha256", secret.encode(), b"ILDM link", STRETCH)


def proof(key: bytes, role: str, covered: bytes, dialer: str, acceptor: str) -> bytes:
    """What only somebody with the key can say about this very connection, in protocol 2.

    ``covered``: the nonces of both sides and, over TLS, both certificates' digests.
    """
    text = b"\0".join([role.encode(), dialer.encode(), acceptor.encode()])
    return hmac.digest(key, covered + text, "sha256")


def transcript_proof(key: bytes, role: str, covered: bytes) -> bytes:
    """The same from protocol 3 on. The first bytes tell it apart from that of protocol 2, which begins with
    the dialer's nonce.

    ``covered``: over TLS both certificates' digests, and the digest of every byte of the handshake so far.
    """
    return hmac.digest(key, b"ILDM 3\0" + role.encode() + b"\0" + covered, "sha256")


def marked(key: bytes, nonce: bytes) -> bytes:
    """A dialer's nonce that tells whoever has the key that the dialer has protocol 3; to others it is random.

    Only the dialer marks its nonce. An acceptor's goes to whoever connects, who is to learn nothing to try
    guesses of the secret on.
    """
    half = nonce[: NONCE // 2]
    return half + hmac.digest(key, b"nonce 3" + half, "sha256")[: NONCE // 2]


def proof_holds(given: bytes, expected: bytes) -> bool:
    return hmac.compare_digest(given, expected)

"""How two nodes meet: MQTT 5 CONNECT, AUTH and CONNACK with the facts of both sides.

The dialer's CONNECT carries its *hello* and a nonce (enhanced authentication, MQTT 5 section 4.12).
With a link secret the acceptor answers AUTH with its own nonce, the dialer AUTH with its proof, and the
acceptor CONNACK with its own. The secret itself never travels, and whoever merely connects to a node learns
nothing to try guesses on. Who makes a node connect to it does get a proof; that a guess on it costs much
work, and that secrets are long, is what then protects the link.

A proof is an HMAC-SHA-256 over the role and every byte of the handshake before it. These bytes hold both
nonces, so a recorded proof is worth nothing. They hold all facts of the hellos, so nobody can change one. The
proof of the acceptor stands at the end of CONNACK and covers the bytes of CONNACK before it.

A proof of protocol 2 covers the role, both nonces and both identifiers alone. Somebody between two nodes may
take away what protocol 3 has brought, so that they talk protocol 2. The nonce of a dialer that has protocol 3
bears a mark (:func:`~ildm.core.link.hello.marked`). An acceptor that finds the mark without the range of
versions refuses the handshake as a ``downgrade``. Both ends also refuse an agreement that differs from the
one before the proofs.

Both halves are machines without a socket: packets go in, bytes to send and at last an outcome come out.

=================== ==================================================== ===============================
phase               dialer                                               acceptor
=================== ==================================================== ===============================
DIALING             no connection yet
AWAITING_CONNECT                                                         nothing has come
AWAITING_AUTH       CONNECT sent; a challenge is due (with a secret)     AUTH sent; the proof is due
AWAITING_CONNACK    the proof (or, without a secret, CONNECT) sent
ESTABLISHED         accepted                                             accepted
ENDED               refused                                              refused
=================== ==================================================== ===============================
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from ildm.core.link.features import NONE
from ildm.core.link.hello import (
    METHOD,
    NONCE,
    PROOF,
    Hello,
    Refusal,
    agreed,
    marked,
    proof,
    proof_holds,
    said_in,
    transcript_proof,
)
from ildm.core.link.versions import PROTOCOLS, RANGES, Range
from ildm.mqtt import (
    Auth,
    ConnAck,
    Connect,
    Packet,
    Properties,
    Property,
    ProtocolViolation,
    ReasonCode,
    Version,
)

DOWNGRADE = Refusal(
    "downgrade",
    "both nodes have a later link protocol than the handshake says: somebody alters it on its way",
    ReasonCode.NOT_AUTHORIZED,
)


class Phase(Enum):
    """See the module."""

    DIALING = "dialing"
    AWAITING_CONNECT = "awaiting CONNECT"
    AWAITING_AUTH = "awaiting AUTH"
    AWAITING_CONNACK = "awaiting CONNACK"
    ESTABLISHED = "established"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Terms:
    """What this node brings to every handshake."""

    node_id: str
    key: bytes | None
    """Made of the link secret; None where there is none."""
    keep_alive: int
    """Seconds."""
    inflight: int
    """Messages of QoS 1 and 2 that may be under way to this node (receive maximum)."""
    packet_size: int
    """Bytes of the largest packet this node takes."""
    former: bytes | None = None
    """The key before this one, for as long as neighbours may not have the new one yet: it is taken from who
    dials, and answered with the same."""
    protocols: Range = PROTOCOLS
    """Versions of the link protocol that are taken."""

    @property
    def keys(self) -> list[bytes]:
        """The one of now first."""
        return [key for key in (self.key, self.former) if key is not None]

    def dialing(self, *, former: bool) -> Terms:
        """Those for a dial with the key before this one, if there still is one, or with this one."""
        return replace(self, key=self.former) if former and self.former is not None else self

    def properties(self) -> Properties:
        return {Property.RECEIVE_MAXIMUM: self.inflight, Property.MAXIMUM_PACKET_SIZE: self.packet_size}


class Accepted(NamedTuple):
    """Both sides agree."""

    hello: Hello
    """The neighbour's, with the age on which the acceptor has decided."""
    window: int
    """Messages that may be under way to the neighbour."""
    packet_size: int
    """Bytes of the largest packet the neighbour takes."""
    protocol: int = PROTOCOLS.high
    """The highest that both ends have."""
    features: frozenset[str] = NONE
    """Those that both ends have named."""


class Handshake(ABC):
    """What both halves have in common.

    ``outcome`` is None until the handshake has ended; then nothing more is to be handed in.
    """

    def __init__(self, terms: Terms, phase: Phase, binding: bytes) -> None:
        self.terms = terms
        self.phase = phase
        self.outcome: Accepted | Refusal | None = None
        self.far = ""
        """What the other side calls itself; proven only once the handshake is established."""
        self.protocol = PROTOCOLS.low
        """The one that both ends have, as far as this end knows by now."""
        self._nonces = b""
        self._binding = binding
        self._transcript = hashlib.sha256()
        """Of the bytes in both directions, as far as proofs cover them."""

    @abstractmethod
    def receive(self, packet: Packet, frame: bytes) -> bytes:
        """Take a packet, which was decoded from ``frame``; answers what is to be sent.

        Raises:
            ProtocolViolation: it cannot come now, or is incomplete.
        """

    def _establish(self, hello: Hello, own: Hello, properties: Properties) -> None:
        self.phase = Phase.ESTABLISHED
        self.outcome = Accepted(
            hello,
            int(properties.get(Property.RECEIVE_MAXIMUM, 65535)),
            int(properties.get(Property.MAXIMUM_PACKET_SIZE, 1 << 28)),
            self.protocol,
            hello.features & own.features,
        )

    def _proof(self, key: bytes, role: str, dialer: str, acceptor: str, protocol: int) -> bytes:
        if protocol < RANGES:
            return proof(key, role, self._nonces + self._binding, dialer, acceptor)
        return transcript_proof(key, role, self._binding + self._transcript.digest())

    def _refuse(self, refusal: Refusal) -> None:
        self.phase = Phase.ENDED
        self.outcome = refusal


class DialerHandshake(Handshake):
    """The half of the node that has made the connection.

    Args:
        hello: what this node says of itself and the session.
        judge: why the neighbour is not the one wanted, or None.
        nonce: ``NONCE`` bytes nobody can guess.
        binding: both ends' certificates, for the proofs to cover them; empty without TLS.
    """

    def __init__(
        self,
        terms: Terms,
        hello: Hello,
        nonce: bytes,
        judge: Callable[[Hello], Refusal | None],
        binding: bytes = b"",
    ) -> None:
        super().__init__(terms, Phase.DIALING, binding)
        self.hello = hello
        self._nonces = nonce
        self._judge = judge

    def start(self) -> bytes:
        """The connection is made."""
        terms = self.terms
        if terms.key is not None and self.hello.protocols.high >= RANGES:
            self._nonces = marked(terms.key, self._nonces)
        self.phase = Phase.AWAITING_AUTH if terms.key is not None else Phase.AWAITING_CONNACK
        properties = terms.properties()
        properties[Property.USER_PROPERTY] = self.hello.properties()
        if terms.key is not None:
            properties[Property.AUTHENTICATION_METHOD] = METHOD
            properties[Property.AUTHENTICATION_DATA] = self._nonces
        connect = Connect(
            client_id=f"{self.hello.node}/{self.hello.index}",
            version=Version.V5,
            clean_start=True,
            keep_alive=terms.keep_alive,
            properties=properties,
        ).encode(Version.V5)
        self._transcript.update(connect)
        return connect

    def receive(self, packet: Packet, frame: bytes) -> bytes:
        if isinstance(packet, Auth) and self.phase is Phase.AWAITING_AUTH:
            return self._challenged(packet, frame)
        if not isinstance(packet, ConnAck):
            raise _unexpected(packet)
        self._answered(packet, frame)
        return b""

    def _challenged(self, packet: Auth, frame: bytes) -> bytes:
        key = self.terms.key
        assert key is not None
        given = packet.properties.get(Property.AUTHENTICATION_DATA)
        said = dict(packet.properties.get(Property.USER_PROPERTY, ()))
        if not isinstance(given, bytes) or len(given) != NONCE:
            raise ProtocolViolation("AUTH without a nonce", clause="MQTT-4.12.0-1")
        self._nonces += given
        self._transcript.update(frame)
        self.far = said.get("node", "")
        # a node of an earlier protocol does not say which it has
        common = agreed({"ildm": str(RANGES - 1), **said}, self.hello.protocols, self.terms.node_id)
        if isinstance(common, Refusal):
            self._refuse(common)
            return b""
        self.protocol = common
        self.phase = Phase.AWAITING_CONNACK
        answer = _auth(self._proof(key, "dialer", self.terms.node_id, self.far, common))
        self._transcript.update(answer)
        return answer

    def _answered(self, packet: ConnAck, frame: bytes) -> None:
        if packet.reason_code != 0:
            self._refuse(Refusal.parse(packet))
            return
        common = agreed(said_in(packet.properties), self.hello.protocols, self.terms.node_id)
        if isinstance(common, Refusal):
            self._refuse(common)
            return
        if self.phase is Phase.AWAITING_CONNACK and self.terms.key is not None and common != self.protocol:
            self._refuse(DOWNGRADE)
            return
        self.protocol = common
        hello = Hello.parse(packet.properties, common)
        if not self._proves_secret(packet, frame, hello):
            text = "the neighbour did not prove the link secret"
            self._refuse(Refusal("secret", text, ReasonCode.NOT_AUTHORIZED))
            return
        refusal = self._judge(hello)
        if refusal is not None:
            self._refuse(refusal)
            return
        self.far = hello.node
        self._establish(hello, self.hello, packet.properties)

    def _proves_secret(self, packet: ConnAck, frame: bytes, hello: Hello) -> bool:
        key = self.terms.key
        if key is None:
            return True
        given = packet.properties.get(Property.AUTHENTICATION_DATA)
        self._transcript.update(frame[:-PROOF])
        expected = self._proof(key, "acceptor", self.terms.node_id, hello.node, self.protocol)
        return (
            self.phase is Phase.AWAITING_CONNACK
            and hello.node == self.far
            and isinstance(given, bytes)
            and (self.protocol < RANGES or frame.endswith(given))
            and proof_holds(given, expected)
        )


class AcceptorHandshake(Handshake):
    """The half of the node that was connected to.

    Args:
        judge: decides about a neighbour that has proven who it is: what this node answers, or why not.
        nonce: ``NONCE`` bytes nobody can guess.
        binding: both ends' certificates, for the proofs to cover them; empty without TLS.
    """

    def __init__(
        self, terms: Terms, nonce: bytes, judge: Callable[[Hello], Hello | Refusal], binding: bytes = b""
    ) -> None:
        super().__init__(terms, Phase.AWAITING_CONNECT, binding)
        self.hello: Hello | None = None
        """The dialer's."""
        self._own = nonce
        self._judge = judge
        self._key = terms.key
        self._allowed: Properties = {}

    def receive(self, packet: Packet, frame: bytes) -> bytes:
        if self.phase is Phase.AWAITING_CONNECT:
            if not isinstance(packet, Connect):
                raise ProtocolViolation("the first packet is not CONNECT", clause="MQTT-3.1.0-1")
            return self._introduced(packet, frame)
        if not isinstance(packet, Auth) or self.phase is not Phase.AWAITING_AUTH:
            raise _unexpected(packet)
        return self._proven(packet, frame)

    def _introduced(self, packet: Connect, frame: bytes) -> bytes:
        self.far = dict(packet.properties.get(Property.USER_PROPERTY, ())).get("node", "")[:64]
        common = agreed(said_in(packet.properties), self.terms.protocols, self.terms.node_id)
        if isinstance(common, Refusal):
            return self._turn_away(common)
        self.protocol = common
        self._transcript.update(frame)
        hello = self.hello = Hello.parse(packet.properties, common)
        self._allowed = packet.properties
        if self.terms.key is None:
            return self._decide(hello)
        nonce = packet.properties.get(Property.AUTHENTICATION_DATA)
        if packet.properties.get(Property.AUTHENTICATION_METHOD) != METHOD or not isinstance(nonce, bytes):
            text = "a link secret is required"
            return self._turn_away(Refusal("secret", text, ReasonCode.BAD_AUTHENTICATION_METHOD))
        if len(nonce) != NONCE:
            raise ProtocolViolation("nonce of a wrong size", clause="MQTT-4.12.0-1")
        ranges = self.terms.protocols.high >= RANGES
        if ranges and common < RANGES and any(proof_holds(nonce, marked(key, nonce)) for key in self._keys):
            return self._turn_away(DOWNGRADE)
        self._nonces = nonce + self._own
        self.phase = Phase.AWAITING_AUTH
        said = [("node", self.terms.node_id), ("protocol", str(self.terms.protocols))]
        challenge = _auth(self._own, said)
        self._transcript.update(challenge)
        return challenge

    @property
    def _keys(self) -> list[bytes]:
        """Those that a dialer may have."""
        return [key for key in (self.terms.key, self.terms.former) if key is not None]

    def _proven(self, packet: Auth, frame: bytes) -> bytes:
        hello = self.hello
        assert hello is not None
        given = packet.properties.get(Property.AUTHENTICATION_DATA)
        names = hello.node, self.terms.node_id
        for key in self._keys:
            if not isinstance(given, bytes):
                break
            if proof_holds(given, self._proof(key, "dialer", *names, self.protocol)):
                self._key = key
                self._transcript.update(frame)
                return self._decide(hello)
            if self.protocol >= RANGES and proof_holds(given, self._proof(key, "dialer", *names, RANGES - 1)):
                return self._turn_away(DOWNGRADE)
        return self._turn_away(Refusal("secret", "wrong link secret", ReasonCode.NOT_AUTHORIZED))

    def _decide(self, hello: Hello) -> bytes:
        answer = self._judge(hello)
        if isinstance(answer, Refusal):
            return self._turn_away(answer)
        if answer.protocols != self.terms.protocols:  # a reload has come in between
            answer = replace(answer, protocols=self.terms.protocols)
        properties = self.terms.properties()
        properties[Property.USER_PROPERTY] = answer.properties()
        key = self._key
        if key is not None:
            properties[Property.AUTHENTICATION_METHOD] = METHOD
            properties[Property.AUTHENTICATION_DATA] = bytes(PROOF)
        self._establish(replace(hello, age=answer.age), answer, self._allowed)
        answered = ConnAck(session_present=False, reason_code=0, properties=properties).encode(Version.V5)
        if key is None:
            return answered
        covered = answered[:-PROOF]
        self._transcript.update(covered)
        return covered + self._proof(key, "acceptor", hello.node, self.terms.node_id, self.protocol)

    def _turn_away(self, refusal: Refusal) -> bytes:
        self._refuse(refusal)
        return refusal.connack()


def _auth(data: bytes, said: list[tuple[str, str]] | None = None) -> bytes:
    properties: Properties = {
        Property.AUTHENTICATION_METHOD: METHOD,
        Property.AUTHENTICATION_DATA: data,
    }
    if said:
        properties[Property.USER_PROPERTY] = said
    return Auth(reason_code=int(ReasonCode.CONTINUE_AUTHENTICATION), properties=properties).encode(Version.V5)


def _unexpected(packet: Packet) -> ProtocolViolation:
    return ProtocolViolation(f"{type(packet).__name__} in the handshake", clause="MQTT-4.12.0-1")

"""How two nodes meet: MQTT 5 CONNECT, AUTH and CONNACK with the facts of both sides.

The dialer's CONNECT carries its *hello* and a nonce (enhanced authentication, MQTT 5 section 4.12).
With a link secret the acceptor answers AUTH with its own nonce, the dialer AUTH with its proof, and the
acceptor CONNACK with its own: HMAC-SHA-256 over both nonces, both identifiers and the role, so neither a
recorded proof nor one's own is worth anything. The secret itself never travels, and whoever merely
connects to a node learns nothing to try guesses on. Who makes a node connect to it does get a proof; that a
guess on it costs much work, and that secrets are long, is what then protects the link.

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

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from ildm.core.link.features import NONE
from ildm.core.link.hello import METHOD, NONCE, Hello, Refusal, other_protocol, proof, proof_holds
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
        self._nonces = b""
        self._binding = binding

    @abstractmethod
    def receive(self, packet: Packet) -> bytes:
        """Take a packet; answers what is to be sent.

        Raises:
            ProtocolViolation: it cannot come now, or is incomplete.
        """

    def _establish(self, hello: Hello, own: Hello, properties: Properties) -> None:
        self.phase = Phase.ESTABLISHED
        self.outcome = Accepted(
            hello,
            int(properties.get(Property.RECEIVE_MAXIMUM, 65535)),
            int(properties.get(Property.MAXIMUM_PACKET_SIZE, 1 << 28)),
            hello.features & own.features,
        )

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
        )
        return connect.encode(Version.V5)

    def receive(self, packet: Packet) -> bytes:
        if isinstance(packet, Auth) and self.phase is Phase.AWAITING_AUTH:
            return self._challenged(packet)
        if not isinstance(packet, ConnAck):
            raise _unexpected(packet)
        self._answered(packet)
        return b""

    def _challenged(self, packet: Auth) -> bytes:
        key = self.terms.key
        assert key is not None
        given = packet.properties.get(Property.AUTHENTICATION_DATA)
        said = dict(packet.properties.get(Property.USER_PROPERTY, ()))
        if not isinstance(given, bytes) or len(given) != NONCE:
            raise ProtocolViolation("AUTH without a nonce", clause="MQTT-4.12.0-1")
        self._nonces += given
        self.far = said.get("node", "")
        self.phase = Phase.AWAITING_CONNACK
        return _auth(proof(key, "dialer", self._nonces + self._binding, self.terms.node_id, self.far))

    def _answered(self, packet: ConnAck) -> None:
        if packet.reason_code != 0:
            self._refuse(Refusal.parse(packet))
            return
        refusal = other_protocol(packet.properties, self.terms.node_id)
        if refusal is not None:
            self._refuse(refusal)
            return
        hello = Hello.parse(packet.properties)
        if not self._proves_secret(packet, hello):
            text = "the neighbour did not prove the link secret"
            self._refuse(Refusal("secret", text, ReasonCode.NOT_AUTHORIZED))
            return
        refusal = self._judge(hello)
        if refusal is not None:
            self._refuse(refusal)
            return
        self.far = hello.node
        self._establish(hello, self.hello, packet.properties)

    def _proves_secret(self, packet: ConnAck, hello: Hello) -> bool:
        key = self.terms.key
        if key is None:
            return True
        given = packet.properties.get(Property.AUTHENTICATION_DATA)
        expected = proof(key, "acceptor", self._nonces + self._binding, self.terms.node_id, hello.node)
        return (
            self.phase is Phase.AWAITING_CONNACK
            and hello.node == self.far
            and isinstance(given, bytes)
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

    def receive(self, packet: Packet) -> bytes:
        if self.phase is Phase.AWAITING_CONNECT:
            if not isinstance(packet, Connect):
                raise ProtocolViolation("the first packet is not CONNECT", clause="MQTT-3.1.0-1")
            return self._introduced(packet)
        if not isinstance(packet, Auth) or self.phase is not Phase.AWAITING_AUTH:
            raise _unexpected(packet)
        return self._proven(packet)

    def _introduced(self, packet: Connect) -> bytes:
        self.far = dict(packet.properties.get(Property.USER_PROPERTY, ())).get("node", "")[:64]
        refusal = other_protocol(packet.properties, self.terms.node_id)
        if refusal is not None:
            return self._turn_away(refusal)
        hello = self.hello = Hello.parse(packet.properties)
        self._allowed = packet.properties
        if self.terms.key is None:
            return self._decide(hello)
        nonce = packet.properties.get(Property.AUTHENTICATION_DATA)
        if packet.properties.get(Property.AUTHENTICATION_METHOD) != METHOD or not isinstance(nonce, bytes):
            text = "a link secret is required"
            return self._turn_away(Refusal("secret", text, ReasonCode.BAD_AUTHENTICATION_METHOD))
        if len(nonce) != NONCE:
            raise ProtocolViolation("nonce of a wrong size", clause="MQTT-4.12.0-1")
        self._nonces = nonce + self._own
        self.phase = Phase.AWAITING_AUTH
        return _auth(self._own, [("node", self.terms.node_id)])

    def _proven(self, packet: Auth) -> bytes:
        hello = self.hello
        assert hello is not None
        given = packet.properties.get(Property.AUTHENTICATION_DATA)
        for key in (self.terms.key, self.terms.former):
            if key is None or not isinstance(given, bytes):
                continue
            expected = proof(key, "dialer", self._nonces + self._binding, hello.node, self.terms.node_id)
            if proof_holds(given, expected):
                self._key = key
                return self._decide(hello)
        return self._turn_away(Refusal("secret", "wrong link secret", ReasonCode.NOT_AUTHORIZED))

    def _decide(self, hello: Hello) -> bytes:
        answer = self._judge(hello)
        if isinstance(answer, Refusal):
            return self._turn_away(answer)
        properties = self.terms.properties()
        properties[Property.USER_PROPERTY] = answer.properties()
        key = self._key
        if key is not None:
            properties[Property.AUTHENTICATION_METHOD] = METHOD
            properties[Property.AUTHENTICATION_DATA] = proof(
                key, "acceptor", self._nonces + self._binding, hello.node, self.terms.node_id
            )
        self._establish(replace(hello, age=answer.age), answer, self._allowed)
        return ConnAck(session_present=False, reason_code=0, properties=properties).encode(Version.V5)

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

"""What TLS proves about the ends of a link, and how that is bound to node ids."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from ildm.core.link.hello import Refusal
from ildm.mqtt import ReasonCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ildm.config import LinkConfig
    from ildm.core.driver import Transport

PREFIX = "ildm:"
"""Of the alternative name of type URI that holds a node id."""


class Certificates(NamedTuple):
    """Both ends' certificates of one connection, verified by TLS; none where it is by the link secret."""

    own: bytes
    """SHA-256 in DER."""
    far: bytes
    """The same of the neighbour's."""
    nodes: frozenset[str]
    """The node ids which the neighbour's is for."""
    shared: bool | None = None
    """Whether TLS has used the secret that it was to use; None: it was to use certificates."""

    @classmethod
    def of(cls, transport: Transport) -> Certificates | None:
        """None: the connection is without TLS."""
        tls = transport.get_extra_info("ssl_object")
        if tls is None:
            return None
        if tls.context.psk:
            return cls(b"", b"", frozenset(), tls.session_reused)
        names = (tls.getpeercert() or {}).get("subjectAltName", ())
        far = hashlib.sha256(tls.getpeercert(True) or b"").digest()
        return cls(tls.context.own, far, nodes_of(value for kind, value in names if kind == "URI"))

    def binding(self, *, dialed: bool) -> bytes:
        """What a proof of the secret covers, so that it is worth nothing on another connection."""
        return self.own + self.far if dialed else self.far + self.own


def nodes_of(uris: Iterable[str]) -> frozenset[str]:
    """The node ids among a certificate's alternative names of type URI."""
    return frozenset(uri.removeprefix(PREFIX) for uri in uris if uri.startswith(PREFIX))


def not_certified(link: LinkConfig, certificates: Certificates | None, node: str) -> Refusal | None:
    """Why a neighbour may not be called ``node``; None if it may."""
    tls, pin = link.tls, link.pin_of(node)
    if certificates is None:
        # who is known by a certificate has to show it on every connection
        return None if pin is None else _refusal(f"{node} has to prove by its certificate who it is")
    if certificates.shared is not None:  # the handshake proves who it is, as without TLS
        return None if certificates.shared else _refusal("TLS has come about without the link secret")
    if pin is not None:
        if pin != certificates.far.hex():
            return _refusal(f"that is not the certificate known of {node} (link.tls.pins, link.neighbors)")
        return None
    if tls is not None and tls.identity == "pin":
        return _refusal(f"no certificate of {node} is known (link.tls.pins, link.neighbors)")
    if node in certificates.nodes:
        return None
    return _refusal(f"the certificate is for {named(certificates.nodes)}, not for {node}")


def named(nodes: frozenset[str]) -> str:
    """Whom a certificate is for, for people."""
    return ", ".join(sorted(nodes)) or "no node"


def _refusal(text: str) -> Refusal:
    return Refusal("certificate", text, ReasonCode.NOT_AUTHORIZED)

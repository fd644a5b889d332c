"""Keys of TLS that are made of the link secret (``link.tls.psk``)."""

from __future__ import annotations

import hmac
from typing import NamedTuple

INFO, ID_INFO = b"ILDM TLS-PSK 1", b"ILDM TLS-PSK 1 id"
PREFIX = "ildm/1/"
"""Of identities."""
ID = 8
"""Bytes that tell a key from the one before it."""


class Psk(NamedTuple):
    """A key of TLS, and what it is called in the open."""

    identity: str
    key: bytes


def hkdf(secret: bytes, info: bytes, salt: bytes = bytes(32)) -> bytes:
    """The first 32 bytes of HKDF-SHA256 (RFC 5869)."""
    return hmac.digest(hmac.digest(salt, secret, "sha256"), info + b"\1", "sha256")


def psk_of(key: bytes) -> Psk:
    """``key``: that of proofs (:func:`ildm.core.link.hello.link_key`), of which nothing shows here."""
    return Psk(PREFIX + hkdf(key, ID_INFO)[:ID].hex(), hkdf(key, INFO))

"""When a certificate ends: its ``notAfter``, read from the DER of X.509 (RFC 5280, 4.1.2.5).

The standard library tells that of a peer's certificate, not of one's own.
"""

from __future__ import annotations

from datetime import UTC, datetime

SEQUENCE, UTC_TIME, GENERALIZED_TIME, VERSION = 0x30, 0x17, 0x18, 0xA0


def not_after(der: bytes) -> float:
    """Unix time in seconds.

    Raises:
        ValueError: that is no certificate.
    """
    (certificate,) = _within(der, 1)
    (signed,) = _within(certificate[1], 1)
    # version (may be missing), serial number, signature algorithm, issuer, validity
    fields = _within(signed[1], 5)
    kind, validity = fields[4 if fields[0][0] == VERSION else 3]
    if kind != SEQUENCE:
        raise ValueError("no validity where it is to be")
    _, (kind, text) = _within(validity, 2)
    if kind not in (UTC_TIME, GENERALIZED_TIME):
        raise ValueError("no time where it is to be")
    digits = text.decode("ascii")
    if kind == UTC_TIME:  # of two digits, those from 50 on are of the last century
        digits = ("19" if digits >= "50" else "20") + digits
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _within(data: bytes, number: int) -> list[tuple[int, bytes]]:
    """The first elements in there: tag and contents."""
    found = []
    at = 0
    for _ in range(number):
        if len(data) < at + 2:
            raise ValueError("it ends too early")
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[at : at + size])
            at += size
        if len(data) < at + length:
            raise ValueError("it ends too early")
        found.append((tag, data[at : at + length]))
        at += length
    return found

"""What one's own certificate says, read from the DER of X.509 (RFC 5280): when it ends, and whom it is for.

The standard library tells that of a peer's certificate alone.
"""

from __future__ import annotations

from datetime import UTC, datetime

SEQUENCE, UTC_TIME, GENERALIZED_TIME, VERSION = 0x30, 0x17, 0x18, 0xA0
OBJECT_IDENTIFIER, OCTET_STRING, EXTENSIONS, URI = 0x06, 0x04, 0xA3, 0x86
SUBJECT_ALTERNATIVE_NAME = b"\x55\x1d\x11"
"""2.5.29.17"""


def not_after(der: bytes) -> float:
    """Its end (4.1.2.5): Unix time in seconds.

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


def uris(der: bytes) -> list[str]:
    """Its alternative names of type URI (4.2.1.6).

    Raises:
        ValueError: that is no certificate.
    """
    (certificate,) = _within(der, 1)
    (signed,) = _within(certificate[1], 1)
    found = []
    for tag, extensions in _within(signed[1]):
        if tag != EXTENSIONS:
            continue
        for _, extension in _within(_within(extensions, 1)[0][1]):
            (kind, name), *_, (content_kind, content) = _within(extension)
            if (kind, name, content_kind) == (OBJECT_IDENTIFIER, SUBJECT_ALTERNATIVE_NAME, OCTET_STRING):
                names = _within(_within(content, 1)[0][1])
                found += [text.decode("ascii") for name_kind, text in names if name_kind == URI]
    return found


def _within(data: bytes, number: int | None = None) -> list[tuple[int, bytes]]:
    """The first elements in there, or all: tag and contents."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while at < len(data) if number is None else len(found) < number:
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

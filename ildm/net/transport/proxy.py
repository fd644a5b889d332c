"""The PROXY protocol, versions 1 and 2: who a connection comes from, said by whom it comes through.

The format is HAProxy's, doc/proxy-protocol.txt. Bytes in, bytes out; sockets are the caller's.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import NamedTuple

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
LONGEST_V1 = 107
LONGEST_V2 = 4096
"""Bytes of a whole header; more than addresses, names and a certificate's name take."""
LOCAL = SIGNATURE + b"\x20\x00\x00\x00"
"""Version 2: the connection is the sender's own."""
UNKNOWN = b"PROXY UNKNOWN\r\n"
"""The same in version 1."""
TLV_ALPN, TLV_AUTHORITY, TLV_SSL = 0x01, 0x02, 0x20
SSL_VERSION, SSL_CN = 0x21, 0x22
CLIENT_SSL, CLIENT_CERT_CONN, CLIENT_CERT_SESS = 0x01, 0x02, 0x04
PASSED_ON = (TLV_ALPN, TLV_AUTHORITY, TLV_SSL)

Place = tuple[str, int]
"""IP address and port."""


class ProxyError(Exception):
    """That is no header of the PROXY protocol."""


class ProxyHeader(NamedTuple):
    """What was said."""

    size: int
    """Bytes that the header takes of the stream."""
    source: Place | None
    """None: the connection is the proxy's own, or from somewhere without an address."""
    destination: Place | None
    tlvs: bytes = b""
    """Of version 2: those that go on to the broker."""


def parse(data: bytes) -> ProxyHeader | None:
    """The header that ``data`` begins with; None while it is not whole.

    Raises:
        ProxyError: it begins with something else, or the header makes no sense.
    """
    if SIGNATURE.startswith(data[:12]):
        return None if len(data) < 16 else _parse_v2(data)
    if b"PROXY ".startswith(data[:6]):
        return _parse_v1(data)
    raise ProxyError("no header of the PROXY protocol")


def _parse_v1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, LONGEST_V1)
    if end < 0:
        if len(data) >= LONGEST_V1:
            raise ProxyError("the line is too long")
        return None
    try:
        words = data[:end].decode("ascii").split(" ")
        if words[1:2] == ["UNKNOWN"]:
            return ProxyHeader(end + 2, None, None)
        _, family, source, destination, source_port, destination_port = words
        kind = {"TCP4": ipaddress.IPv4Address, "TCP6": ipaddress.IPv6Address}[family]
        places = (str(kind(source)), _port(source_port)), (str(kind(destination)), _port(destination_port))
    except (ValueError, KeyError) as error:
        raise ProxyError("the line makes no sense") from error
    return ProxyHeader(end + 2, *places)


def _port(text: str) -> int:
    if not text.isdecimal() or (text != "0" and text.startswith("0")) or int(text) > 65535:
        raise ValueError(text)
    return int(text)


def _parse_v2(data: bytes) -> ProxyHeader | None:
    command, family, length = struct.unpack_from(">BBH", data, 12)
    size = 16 + length
    if command not in (0x20, 0x21):
        raise ProxyError(f"version or command 0x{command:02X}")
    if size > LONGEST_V2:
        raise ProxyError("the header is too long")
    if len(data) < size:
        return None
    if command == 0x20:
        return ProxyHeader(size, None, None)
    body = data[16:size]
    wide = {0x11: 4, 0x21: 16}.get(family)
    if wide is None:
        if family not in (0x00, 0x31):  # unspecified; a unix socket, whose paths say nothing here
            raise ProxyError(f"address family 0x{family:02X}")
        return ProxyHeader(size, None, None)
    if len(body) < 2 * wide + 4:
        raise ProxyError("the addresses are not whole")
    source, destination = (str(ipaddress.ip_address(body[at : at + wide])) for at in (0, wide))
    source_port, destination_port = struct.unpack_from(">HH", body, 2 * wide)
    tlvs = body[2 * wide + 4 :]
    return ProxyHeader(size, (source, source_port), (destination, destination_port), _passed_on(tlvs))


def _passed_on(tlvs: bytes) -> bytes:
    """Those of the client's TLS; what a proxy says of itself stays behind."""
    kept, at = b"", 0
    while at < len(tlvs):
        if len(tlvs) - at < 3:
            raise ProxyError("a TLV is not whole")
        kind, length = struct.unpack_from(">BH", tlvs, at)
        end = at + 3 + length
        if end > len(tlvs):
            raise ProxyError("a TLV is not whole")
        if kind in PASSED_ON:
            kept += tlvs[at:end]
        at = end
    return kept


def header_v1(source: Place, destination: Place) -> bytes:
    """What tells the peer that the connection stands for one from ``source``."""
    pair = _same_family(source, destination)
    if pair is None:
        return UNKNOWN
    one, other = pair
    return f"PROXY TCP{one.version} {one} {other} {source[1]} {destination[1]}\r\n".encode()


def header_v2(source: Place, destination: Place, tlvs: bytes = b"") -> bytes:
    """The same in version 2."""
    pair = _same_family(source, destination)
    if pair is None:
        return LOCAL
    one, other = pair
    body = one.packed + other.packed + struct.pack(">HH", source[1], destination[1]) + tlvs
    return SIGNATURE + struct.pack(">BBH", 0x21, 0x11 if one.version == 4 else 0x21, len(body)) + body


def _same_family(source: Place, destination: Place) -> tuple[_Ip, _Ip] | None:
    try:
        one, other = (ipaddress.ip_address(place[0].partition("%")[0]) for place in (source, destination))
    except ValueError:
        return None
    if isinstance(one, ipaddress.IPv6Address) is not isinstance(other, ipaddress.IPv6Address):
        # a listener of IPv6 that takes IPv4, too: both in the longer form
        one, other = (_v6(each) for each in (one, other))
    return one, other


_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def _v6(ip: _Ip) -> ipaddress.IPv6Address:
    return ip if isinstance(ip, ipaddress.IPv6Address) else ipaddress.IPv6Address(f"::ffff:{ip}")


def tls_tlvs(version: str, common_name: str | None, alpn: str | None) -> bytes:
    """What is known of a client's TLS, as HAProxy's ``send-proxy-v2-ssl-cn`` says it.

    Args:
        version: such as ``TLSv1.3``.
        common_name: that of its certificate, which was verified; None: it has shown none.
    """
    client = CLIENT_SSL
    if common_name is not None:
        client |= CLIENT_CERT_CONN | CLIENT_CERT_SESS
    # 0: verified; without a certificate there was nothing to verify, which is 1
    inner = struct.pack(">BI", client, int(common_name is None)) + _tlv(SSL_VERSION, version.encode())
    if common_name is not None:
        inner += _tlv(SSL_CN, common_name.encode()[:1024])
    return (_tlv(TLV_ALPN, alpn.encode()) if alpn else b"") + _tlv(TLV_SSL, inner)


def _tlv(kind: int, value: bytes) -> bytes:
    return struct.pack(">BH", kind, len(value)) + value

"""Addresses of neighbours, as DNS names them (``link.discover``). All here blocks, and runs in a thread."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from ildm.address import Address
from ildm.mqtt import IldmError

if TYPE_CHECKING:
    from dns.resolver import Resolver

    from ildm.config import LookupConfig

LIFETIME = 10.0
"""Seconds for one question of SRV records, repetitions included. Others are bounded by ``resolv.conf``."""
UNKNOWN = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
"""What the system says where there is no such name, or no address of it."""


class LookupFailedError(IldmError):
    """There is no answer, so nothing is known."""


def addresses_of(question: LookupConfig) -> list[Address]:
    """What the name servers say now; nothing if there is no such name.

    Raises:
        LookupFailedError: they do not answer, or not so that it makes sense.
    """
    if question.srv is not None:
        return _services(question.srv)
    assert question.host is not None
    return _hosts(question.host, question.port or 0)


def _hosts(name: str, port: int) -> list[Address]:
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in UNKNOWN:
            return []
        raise LookupFailedError(error.strerror or str(error)) from error
    except (OSError, UnicodeError) as error:  # a label that is too long cannot be encoded
        raise LookupFailedError(str(error)) from error
    return [Address(str(place[0]), port) for *_, place in found]


def _services(name: str) -> list[Address]:
    import dns.exception  # noqa: PLC0415 - an extra
    import dns.resolver  # noqa: PLC0415

    try:
        answer = system_resolver().resolve(name, "SRV", lifetime=LIFETIME, search=True)
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
        return []
    except dns.exception.DNSException as error:
        raise LookupFailedError(str(error)) from error
    found = sorted(answer, key=lambda record: (record.priority, str(record.target)))
    targets = ((record.target.to_text(omit_final_dot=True), record.port) for record in found)
    return [Address(host, port) for host, port in targets if port and host not in (".", "")]


def system_resolver() -> Resolver:
    """As ``resolv.conf`` says now."""
    import dns.resolver  # noqa: PLC0415 - an extra

    return dns.resolver.Resolver()

"""Which process of this machine listens at an address (Linux: from /proc/net/tcp and the descriptors)."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

LISTEN = "0A"
"""State of a socket in /proc/net/tcp (proc(5))."""


def listener(host: str, port: int) -> int | None:
    """Id of the process that listens there; of several that share the socket the first.

    None if nobody does, on this machine and in this network namespace, or if it belongs to somebody whose
    descriptors this user may not see.
    """
    wanted = addresses(host)
    inodes = {f"socket:[{inode}]" for at, inode in _listening(port) if at.is_unspecified or at in wanted}
    if not inodes:
        return None
    for pid in sorted(int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        if not inodes.isdisjoint(_descriptors(pid)):
            return pid
    return None


def addresses(host: str) -> set[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """The addresses of a host, IPv4 ones as such; none if its name is not known."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {_plain(ipaddress.ip_address(str(each[4][0]).partition("%")[0])) for each in found}


def _listening(port: int) -> Iterator[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, str]]:
    """Address and inode of each socket that listens at a port."""
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        except OSError:  # no IPv6, or no Linux
            continue
        for line in lines:
            fields = line.split()
            at, _, number = fields[1].partition(":")
            if fields[3] == LISTEN and int(number, 16) == port:
                yield _address(at), fields[9]


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """From words of 32 bits in the machine's order."""
    words = bytes.fromhex(text)
    packed = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
    return _plain(ipaddress.ip_address(packed))


def _plain(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped if mapped is not None else address


def _descriptors(pid: int) -> Iterator[str]:
    try:
        open_files = os.listdir(f"/proc/{pid}/fd")
    except OSError:  # it has ended, or is somebody else's
        return
    for fd in open_files:
        with suppress(OSError):  # closed meanwhile
            yield os.readlink(f"/proc/{pid}/fd/{fd}")

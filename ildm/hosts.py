"""Where addresses lead to: whether two of them are the same place on this machine, by whatever name."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import NamedTuple

from ildm.config import Address
from ildm.text import reason

RESOLVE_TIMEOUT = 3.0
"""Seconds that all host names together may take."""


class _Ip(NamedTuple):
    family: int
    host: str
    wildcard: bool


class Hosts:
    """Host names and what they stand for."""

    def __init__(self, resolve: bool) -> None:
        self._resolve = resolve
        self._known: dict[str, list[_Ip] | str] = {}

    def ask(self, addresses: Iterator[Address]) -> None:
        """Resolve all names at once, in threads that nobody waits for longer than the time-out."""
        asked: dict[str, Future[list[_Ip]]] = {}
        for address in addresses:
            host = address.host
            literal = _literal(host)
            if literal is not None:
                self._known[host] = [literal]
            elif host not in asked and (self._resolve or host == "localhost"):
                asked[host] = Future()
                threading.Thread(target=_look_up, args=(host, asked[host]), daemon=True).start()
        wait_for(asked.values(), RESOLVE_TIMEOUT)
        for host, future in asked.items():
            error = future.exception() if future.done() else TimeoutError()
            if error is None:
                self._known[host] = future.result()
            elif isinstance(error, TimeoutError):
                self._known[host] = f"no answer of the resolver within {RESOLVE_TIMEOUT:g} s"
            else:
                self._known[host] = reason(error) if isinstance(error, OSError) else "that is no host name"

    def of(self, address: Address) -> list[_Ip]:
        """Empty where that is not known."""
        known = self._known.get(address.host, [])
        return [] if isinstance(known, str) else known

    def unknown(self, address: Address) -> str | None:
        """Why it is not known what its host stands for, if somebody was asked."""
        known = self._known.get(address.host)
        return known if isinstance(known, str) else None

    def overlap(self, one: Address, other: Address) -> bool:
        """Whether both cannot be listened on at the same time."""
        return one.port == other.port != 0 and any(
            a.family == b.family and (a.host == b.host or a.wildcard or b.wildcard)
            for a in self.of(one)
            for b in self.of(other)
        )

    def leads_to(self, dialled: Address, listened: Address) -> bool:
        """Whether who dials the one comes to who listens on the other, on this machine."""
        if not dialled.port == listened.port != 0:
            return False
        if dialled.host == listened.host:
            return True
        for a in self.of(dialled):
            # to dial the wildcard address is to dial loopback
            host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(a.host, a.host)  # noqa: S104 - not bound
            for b in self.of(listened):
                if a.family == b.family and (host == b.host or (b.wildcard and _is_own(a.family, host))):
                    return True
        return False


def _literal(host: str) -> _Ip | None:
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return None
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return _Ip(socket.AF_INET6, str(ip), ip.is_unspecified)
        ip = ip.ipv4_mapped
    return _Ip(socket.AF_INET, str(ip), ip.is_unspecified)


def _look_up(host: str, future: Future[list[_Ip]]) -> None:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        ips = [_literal(str(entry[4][0])) for entry in found]
        future.set_result([ip for ip in ips if ip is not None])
    except Exception as error:
        future.set_exception(error)


def _is_own(family: int, host: str) -> bool:
    """Whether an address is one of this machine's: only those can be bound."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True

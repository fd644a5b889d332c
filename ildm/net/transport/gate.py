"""How many connections may come from one address, and how fast: decided before TLS costs anything.

An address of IPv6 counts with all others of its network of 64 bits, as one host may have as many of these as
it likes.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from ildm.net.transport.failures import AuthFailures

if TYPE_CHECKING:
    from ildm.config import LimitsConfig
    from ildm.core.counters import Counters

REMEMBERED = 65_536
"""Addresses without a connection whose rate is remembered; then the one seen longest ago is forgotten."""


class _Seen:
    """What is known of one address."""

    __slots__ = ("at", "connections", "handshakes", "tokens")

    def __init__(self, tokens: float, at: float) -> None:
        self.connections = 0
        self.handshakes = 0
        self.tokens = tokens
        self.at = at


class AddressGate:
    """Counts connections by address.

    Who may have so many connections may make them all at once, and so many a second from then on.

    Args:
        now: monotonic time in seconds.
    """

    def __init__(self, limits: LimitsConfig, now: Callable[[], float], counters: Counters) -> None:
        self._limits = limits
        self._now = now
        self._counters = counters
        self._exempt = [ipaddress.ip_network(network) for network in limits.exempt]
        self._present: dict[str, _Seen] = {}
        self._absent: OrderedDict[str, _Seen] = OrderedDict()
        self.failures = AuthFailures(limits, now)
        """By :meth:`key`."""
        self.key = lru_cache(4096)(self._key)
        """What an address is counted by; None if it is exempt or there is none."""

    def renewed(self) -> AddressGate:
        """One for other networks that are exempt; who is connected counts with this one to the end."""
        made = AddressGate(self._limits, self._now, self._counters)
        made.failures = self.failures
        return made

    def _key(self, host: str) -> str | None:
        try:
            ip = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return None
        if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        if any(ip in network for network in self._exempt):
            return None
        return str(ip) if ip.version == 4 else str(ipaddress.ip_network((int(ip) >> 64 << 64, 64)))

    def enter(self, host: str, handshake: bool = False) -> bool:
        """Whether one more connection may come from there; then :meth:`leave` is to be called at its end.

        Args:
            handshake: it begins with one, whose end is to be told by :meth:`handshake_ended`.
        """
        key = self.key(host)
        if key is None:
            return True
        now, limits = self._now(), self._limits
        seen = self._present.get(key) or self._absent.pop(key, None)
        if seen is None:
            seen = _Seen(float(limits.per_address), now)
        seen.tokens = min(limits.per_address, seen.tokens + (now - seen.at) * limits.connect_rate)
        seen.at = now
        refused = (
            "auth"
            if self.failures.blocks(key)
            else "connections"
            if seen.connections >= limits.per_address
            else "handshakes"
            if handshake and seen.handshakes >= limits.handshakes
            else "rate"
            if seen.tokens < 1
            else None
        )
        if refused is None:
            seen.tokens -= 1
            seen.connections += 1
            seen.handshakes += handshake
        else:
            self._counters[f"connections_refused_address_{refused}"] += 1
        self._put(key, seen)
        return refused is None

    def resume(self, host: str) -> None:
        """As :meth:`enter` for a connection that another process has let in: it is never refused."""
        key = self.key(host)
        if key is not None:
            seen = self._present.get(key) or self._absent.pop(key, None)
            if seen is None:
                seen = _Seen(float(self._limits.per_address), self._now())
            seen.connections += 1
            self._put(key, seen)

    def authentication_failed(self, host: str) -> str | None:
        """A client from there was refused for who it is: what is blocked now, if that was once too often."""
        key = self.key(host)
        return key if key is not None and self.failures.count(key) else None

    def blocks(self, host: str) -> bool:
        """Whether its clients are refused for what they have tried; counted as a refusal."""
        key = self.key(host)
        if key is None or not self.failures.blocks(key):
            return False
        self._counters["connections_refused_address_auth"] += 1
        return True

    def lift(self, host: str) -> bool:
        """Let clients from there try again; whether they could not. ``host`` may be a key, too."""
        key = self.key(host.partition("/")[0])
        return key is not None and self.failures.lift(key)

    def handshake_ended(self, host: str) -> None:
        key = self.key(host)
        if key is not None:
            self._present[key].handshakes -= 1

    def leave(self, host: str) -> None:
        key = self.key(host)
        if key is not None:
            seen = self._present[key]
            seen.connections -= 1
            self._put(key, seen)

    def _put(self, key: str, seen: _Seen) -> None:
        if seen.connections:
            self._present[key] = seen
            return
        self._present.pop(key, None)
        self._absent[key] = seen
        if len(self._absent) > REMEMBERED:
            self._absent.popitem(last=False)

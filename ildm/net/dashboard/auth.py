"""Who may look: a token once, then a cookie; few attempts, and only from pages of this very server."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable

HEADER = "X-ILDM-Dashboard"
"""A header that scripts of other pages cannot send without being asked about it, and nobody answers that."""
SESSIONS = 256
"""Browsers logged in at a time; the one longest away goes."""
IDLE = 12 * 3600.0
"""Seconds without a request after which a browser has to log in again."""
ATTEMPTS = 10
"""Wrong tokens from one address within :data:`WINDOW`."""
WINDOW = 60.0
"""Seconds."""
ADDRESSES = 1024
"""Addresses with wrong tokens that are remembered; without room all others wait, too."""
_LONGEST_COOKIE = 64


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogateescape")).digest()


class Sessions:
    """Browsers that have shown the token. Of token and cookies only the SHA-256 is kept.

    Args:
        now: monotonic time, in seconds.
    """

    def __init__(self, token: str, now: Callable[[], float]) -> None:
        self._token = _digest(token)
        self._now = now
        self._seen: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def is_token(self, given: str) -> bool:
        """Compared in constant time."""
        return hmac.compare_digest(_digest(given), self._token)

    def begin(self) -> str:
        """A new cookie."""
        while len(self._seen) >= SESSIONS:
            self._seen.popitem(last=False)
        cookie = secrets.token_urlsafe(32)
        self._seen[_digest(cookie)] = self._now()
        return cookie

    def knows(self, cookie: str | None, *, used: bool = True) -> bool:
        """Whether it is that of a browser logged in; ``used``: which counts as being there."""
        if cookie is None or len(cookie) > _LONGEST_COOKIE:
            return False
        digest = _digest(cookie)
        at = self._seen.get(digest)
        if at is None:
            return False
        if self._now() - at > IDLE:
            del self._seen[digest]
            return False
        if used:
            self._seen[digest] = self._now()
            self._seen.move_to_end(digest)
        return True

    def end(self, cookie: str | None) -> None:
        if cookie is not None:
            self._seen.pop(_digest(cookie), None)


class Attempts:
    """Wrong tokens, by address; of IPv6 by network of 64 bits, as one host may have all addresses of it."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failed: OrderedDict[str, list[float]] = OrderedDict()
        self.failures = 0
        """Since the start."""

    def wait(self, address: str) -> float:
        """Seconds until this address may try again; 0: now."""
        self._forget()
        found = self._failed.get(_network(address))
        if found is not None and len(found) >= ATTEMPTS:
            return found[0] + WINDOW - self._now()
        if found is None and len(self._failed) >= ADDRESSES:
            return WINDOW
        return 0.0

    def failed(self, address: str) -> None:
        self.failures += 1
        network = _network(address)
        self._failed.setdefault(network, []).append(self._now())
        self._failed.move_to_end(network)

    def _forget(self) -> None:
        """What is older than the window; those that failed last stand last."""
        since = self._now() - WINDOW
        while self._failed:
            address, times = next(iter(self._failed.items()))
            if times[-1] > since:
                break
            del self._failed[address]
        for times in self._failed.values():
            while times and times[0] <= since:
                del times[0]


def _network(address: str) -> str:
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if ip.version == 4 or ip.ipv4_mapped is not None:
        return address
    return str(ipaddress.ip_network((int(ip) >> 64 << 64, 64)))


class Names:
    """What browsers may call this server.

    A page elsewhere can have its own name resolve to this machine and then talk with whoever listens here, as
    if it came from there; the name it says is still its own. An IP address is nobody's name.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {"localhost", *(name.lower() for name in names)}

    def allow(self, host: str) -> bool:
        """``host``: as in the header of that name, with or without a port."""
        name = host.lower()
        if name.startswith("["):
            name, bracket, rest = name[1:].partition("]")
            if not bracket or (rest and not _is_port(rest)):
                return False
        elif ":" in name:
            name, _, port = name.partition(":")
            if not _is_port(f":{port}"):
                return False
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _is_port(text: str) -> bool:
    return text[:1] == ":" and text[1:].isascii() and text[1:].isdecimal()

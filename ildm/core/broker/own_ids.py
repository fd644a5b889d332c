"""Client identifiers of the node's own sessions with the local broker.

Each session has two. The usual one, ``ildm-NODE-0``, names the node in the broker's log. The short one is the
longest that every broker must allow: at most 23 letters and digits (MQTT-3.1.3-5). It is used after the
broker has refused the usual one as not valid.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Callable
from typing import Any

ALPHABET = string.digits + string.ascii_letters
"""What MQTT-3.1.3-5 lists."""
DIGITS = 14
"""Of the node's number in a short identifier: with ``ildm`` before and ``probe`` behind they are 23."""
AUDIT, PROBE, SAME, OLDER = "audit", "probe", "same", "older"
"""Sessions that look at what the broker keeps, try out how it behaves, listen for neighbours at the same
broker, and ask for older sessions; others have numbers."""
NOT_VALID = (0x02, 0x85)
"""Codes of a CONNACK that refuses the client identifier (3.1.1: 3.2.2.3; 5: 3.2.2.2)."""


class OwnIds:
    """Of one node.

    Args:
        sessions: injection sessions.
        log: the driver's.
    """

    def __init__(self, node_id: str, sessions: int, log: Callable[..., Any]) -> None:
        self._usual = f"ildm-{node_id}-"
        self._short = f"ildm{_number(node_id)}"
        self._log = log
        self._told = False
        self.short = False
        """Whether the next session that asks gets a short one."""
        names = [*map(str, range(sessions)), AUDIT, PROBE, SAME, OLDER]
        self.all = frozenset(stem + name for stem in (self._usual, self._short) for name in names)

    def of(self, session: int | str) -> str:
        """The identifier of a session: its number, or one of the names above."""
        return f"{self._short if self.short else self._usual}{session}"

    def is_short(self, client_id: str) -> bool:
        return client_id.startswith(self._short)

    def refused(self, client_id: str, code: int) -> bool:
        """The broker has refused a session with a code; answers whether a short identifier is to be tried.

        If it refuses that as well, the usual one is next, after the pause that follows any refusal.
        """
        if code not in NOT_VALID:
            return False
        was_short = self.is_short(client_id)
        self.short = not was_short
        if self.short and not self._told:
            self._told = True
            self._log(
                "info",
                "the broker refuses the client identifier; the node's own sessions get short ones",
                refused=client_id,
                next=f"{self._short}...",
            )
        return self.short


def _number(node_id: str) -> str:
    """Of the node, in digits that every broker allows; equal for equal names."""
    value = int.from_bytes(hashlib.sha256(node_id.encode()).digest(), "big")
    digits = []
    for _ in range(DIGITS):
        value, digit = divmod(value, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(digits)

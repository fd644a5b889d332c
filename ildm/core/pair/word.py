"""The owner's word in the state directory, and how long a member has not heard a new one."""

from __future__ import annotations

import re
from typing import NamedTuple

SIZE = 256
"""Bytes of a word: it is written over the one before, in one write."""
WORDS = 5
"""Words in ``site.claim_after``."""
LOOKS = 10
"""Looks of a standby in ``site.claim_after``."""
LATE = 4
"""A look that comes so many intervals after the one before does not count: this process stood still, too."""
_WORD = re.compile(r"ildm-owner 1 ([A-Za-z0-9._-]{1,64}) ([0-9]{1,10}) ([0-9]{1,20}) ([A-Za-z0-9-]{1,64})")


class Word(NamedTuple):
    """What an owner says of itself."""

    member: str
    epoch: int
    """Of its claim; 0 until spool and store are open."""
    number: int
    """Another one each time."""
    machine: str
    """Identifier of this start of the machine it runs on."""

    def encode(self) -> bytes:
        text = f"ildm-owner 1 {self.member} {self.epoch} {self.number} {self.machine}"
        return text.ljust(SIZE - 1).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> Word | None:
        """None: it is no word, such as one that was cut off with the power."""
        if len(data) != SIZE or not data.endswith(b"\n"):
            return None
        found = _WORD.fullmatch(data.decode(errors="replace").rstrip())
        if found is None:
            return None
        return cls(found[1], int(found[2]), int(found[3]), found[4])


class SilenceWatch:
    """Tells when an owner has been silent for long enough.

    Time in which this member did not look, because its process or the machine stood still, does not count:
    the owner may have stood still for the same reason.

    Args:
        claim_after: seconds of silence.
        now: of the first look, monotonic.
    """

    def __init__(self, claim_after: float, now: float) -> None:
        self._claim_after = claim_after
        self._late = LATE * claim_after / LOOKS
        self._looked_at = now
        self._silence = 0.0
        self._last: Word | None = None

    def look(self, word: Word | None, now: float) -> bool:
        """Take the word that stands there now; answers whether it is a new one."""
        passed, self._looked_at = now - self._looked_at, now
        if word != self._last:
            self._last = word
            self._silence = 0.0
            return True
        if passed > self._late:
            self._silence = 0.0
        else:
            self._silence += passed
        return False

    @property
    def silent(self) -> bool:
        return self._silence >= self._claim_after

    def begin(self) -> None:
        """Count anew, such as after an attempt to end the owner."""
        self._silence = 0.0

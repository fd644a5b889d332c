"""Noticing that another client has the client identifier of one of the node's own sessions.

Mostly it is a second node that was given a copy of this one's configuration. The broker ends a session when
its identifier comes again, so the two would take it from each other for ever. In MQTT 5 it says so
(DISCONNECT 0x8E, MQTT-3.1.4-3); of one that merely hangs up (in 3.1.1 all do, MQTT-3.1.4-2; Mosquitto 2.0
in both) it is inferred. It also hangs up so on messages that it does not like, and one of QoS 0 leaves
nothing that could be sent again alone. But it does that only after it was sent something: where each
session has sent something, the next one is on trial, and sends nothing until the other client would have come
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.core.backoff import Backoff

if TYPE_CHECKING:
    from random import Random

SHORT_LIVES = 8
"""So many sessions in a row that the broker has accepted, and soon ended: then there is another client."""
MOST_SHORT_LIVES = 64
"""The same once trials were stood, each of which doubles it: messages of QoS 0 are why, and may go on."""
TRIAL = 3
"""Times the longest of those lives: for so long a session on trial is silent."""
LONGEST = 1.5
"""Times ``broker.reconnect_max``: its bound. The other client comes again within that, unless it knows
already; then it says itself that there are two."""
LONGER = 6
"""Times ``broker.reconnect_max``: the longest pause, which leaves the other one in peace."""


class TakeoverContention:
    """Of one session.

    Args:
        longest: seconds, the longest pause between attempts as long as there is no other client.
    """

    __slots__ = (
        "_longest",
        "_lost_at",
        "_needed",
        "_node_id",
        "_pauses",
        "_short",
        "_silent",
        "client_id",
        "suspected",
    )

    def __init__(self, client_id: str, node_id: str, random: Random, longest: float) -> None:
        self.client_id = client_id
        self._node_id = node_id
        self._pauses = Backoff(random, longest, LONGER * longest)
        self._short = 0
        self._needed = SHORT_LIVES
        self._silent = False
        """One of those sessions had sent nothing."""
        self._lost_at: float | None = None
        self._longest = 0.0
        """Of their lives."""
        self.suspected = False
        """The next session is on trial."""

    def has_taken(self, now: float, lived: float, told: bool, sent: bool) -> bool:
        """The broker has ended the session, which it had accepted, after ``lived`` seconds; ``told``: as its
        identifier came again; ``sent``: it was sent messages. Answers whether another client has it."""
        if self.reason(now) is None:
            self._lost_at = None
            self._pauses.reset()
        known = self._lost_at is not None
        # the other one may know already, and pause for that long
        if lived >= self._pauses.maximum:
            self._needed = SHORT_LIVES
            self.explained()
        else:
            self._short += 1
            self._longest = max(self._longest, lived)
            self._silent = self._silent or not sent
        if not (told or known):
            if self._short < (SHORT_LIVES if self._silent else self._needed):
                return False
            if not self._silent:
                self.suspected = True
                return False
        self.suspected = False
        self._needed = SHORT_LIVES
        self._lost_at = now
        return True

    def explained(self) -> None:
        """Sessions have ended for another reason: the broker accepts none now, or a message is why; or one
        has stood its trial."""
        self._short = 0
        self._longest = 0.0
        self._silent = self.suspected = False

    def stood_trial(self) -> None:
        """Nobody has taken the silent session: what was sent before is why."""
        self._needed = min(2 * self._needed, MOST_SHORT_LIVES)
        self.explained()

    @property
    def trial(self) -> float:
        """Seconds that a session on trial is silent."""
        return min(max(1.0, TRIAL * self._longest), LONGEST * self._pauses.minimum)

    def pause(self) -> float:
        """Seconds until the session is tried again."""
        return self._pauses.next()

    def reason(self, now: float) -> str | None:
        """Who has the session now and then, for people; None: nobody, as far as is known."""
        # each loses it once in the pauses of both, which are as long as that at most
        if self._lost_at is None or now - self._lost_at > 2.5 * self._pauses.maximum:
            return None
        return (
            f"another client uses this node's client id {self.client_id!r} at the broker: is a second node "
            f"named {self._node_id!r}?"
        )

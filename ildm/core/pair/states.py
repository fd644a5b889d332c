"""The states of a member of a pair, and the only place that changes them.

=========  ===================================================================================
state      meaning
=========  ===================================================================================
STARTING   the member has not tried the lock of the state directory yet
STANDBY    another member has the lock; this one waits for it and listens for its word
FENCING    the owner is silent: its process is being ended, so that the kernel frees the lock
CLAIMING   the lock is this member's: spool and store are opened, then it serves
OWNER      it serves; its word stands in the state directory
LEFT       it has ended, or gives the site up in order
=========  ===================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from ildm.mqtt import LocalError


class MemberStateError(LocalError):
    """An event that cannot happen in a state."""


class MemberState(Enum):
    """See the module. The value is the number in the gauge ``pair_state``."""

    STARTING = 0
    STANDBY = 1
    FENCING = 2
    CLAIMING = 3
    OWNER = 4
    LEFT = 5

    @property
    def shown(self) -> str:
        return self.name.lower()


class MemberEvent(Enum):
    """What moves a member from one state to another."""

    REFUSED = "another process has the lock"
    LOCKED = "the lock is this member's"
    HEARD = "the owner has said another word than before"
    SILENT = "the owner has said no word for `site.claim_after`"
    SPARED = "the silent owner cannot be ended from here"
    OPENED = "spool and store are open, and the node serves"
    ENDED = "this member stops, or could not start"


_TABLE = """
state    REFUSED LOCKED   HEARD   SILENT  SPARED  OPENED ENDED
STARTING STANDBY CLAIMING -       -       -       -      LEFT
STANDBY  -       CLAIMING STANDBY FENCING -       -      LEFT
FENCING  -       CLAIMING STANDBY FENCING STANDBY -      LEFT
CLAIMING -       -        -       -       -       OWNER  LEFT
OWNER    -       -        -       -       -       -      LEFT
LEFT     -       -        -       -       -       -      LEFT
"""
"""The state after each event; ``-``: it cannot happen."""


def _transitions() -> dict[tuple[MemberState, MemberEvent], MemberState]:
    header, *rows = (line.split() for line in _TABLE.strip().splitlines())
    return {
        (MemberState[state], MemberEvent[event]): MemberState[name]
        for state, *names in rows
        for event, name in zip(header[1:], names, strict=True)
        if name != "-"
    }


TRANSITIONS = _transitions()
"""Whatever is not in it cannot happen."""


class Member:
    """One member, as far as it knows of the pair.

    Args:
        name: one of ``site.members``.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = MemberState.STARTING
        self.owner = ""
        """Name of the member that owns the site, as far as it has said so; empty: unknown."""
        self.epoch = 0
        """Of the owner's claim; 0: unknown."""
        self.spared: str | None = None
        """Why the silent owner cannot be ended from here; None: it is not silent, or was not tried."""
        self.guests: Callable[[], int] = lambda: 0
        """How many clients of other members this owner serves."""
        self.unconfirmed: Callable[[], int] = lambda: 0
        """Bytes that this member has told of its clients and no owner has confirmed."""

    def step(self, event: MemberEvent) -> bool:
        """Answers whether the state is another one now.

        Raises:
            MemberStateError: that cannot happen now; nothing has changed.
        """
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            raise MemberStateError(f"a member that is {self.state.name} cannot be {event.name}")
        changed, self.state = after is not self.state, after
        return changed

    @property
    def waits(self) -> bool:
        """Whether another process has the site."""
        return self.state in (MemberState.STANDBY, MemberState.FENCING)

    def row(self) -> dict[str, str | int | None]:
        """For people and programs."""
        return {
            "member": self.name,
            "state": self.state.shown,
            "owner": self.owner or None,
            "epoch": self.epoch or None,
            "spared": self.spared,
            "guests": self.guests(),
            "unconfirmed_bytes": self.unconfirmed(),
        }

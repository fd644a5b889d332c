"""The states of a sender, and all events that lead from one to another.

The first table is about its connection, the second one about the messages that it takes meanwhile.

===== ======== ======= ========= ========
state attached resumed suspended detached
===== ======== ======= ========= ========
AWAY  HELD     -       -         -
HELD  HELD     OPEN    -         AWAY
OPEN  HELD     -       HELD      AWAY
===== ======== ======= ========= ========

================= ======= ================= ================= ======== =========
takes             resumed passed_by         expired           returned forgotten
================= ======= ================= ================= ======== =========
ALL               -       KEPT              NOTHING           -        -
KEPT              ALL     -                 NOTHING_THEN_KEPT -        ALL
NOTHING           -       NOTHING_THEN_KEPT -                 ALL      ALL
NOTHING_THEN_KEPT -       -                 -                 KEPT     ALL
================= ======= ================= ================= ======== =========

With ``-`` nothing changes. A neighbour returns before its senders are attached, so none that takes nothing is
resumed.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class SenderState(Enum):
    """The connection of a sender."""

    AWAY = "without a connection"
    HELD = "connected; acknowledgements may pass, messages wait"
    OPEN = "messages may be sent: the session is established and, on a link, part of the cooperation"


class Takes(Enum):
    """The messages that a sender takes which cannot be sent at once."""

    ALL = "all messages"
    KEPT = "messages that the spool keeps: the others go another way"
    NOTHING = "no message: the neighbour has been away for too long"
    NOTHING_THEN_KEPT = "no message, and those of the spool alone when the neighbour is back"


class SenderEvent(Enum):
    """The events that change a sender's state, or the messages that it takes."""

    ATTACHED = "it has a connection, perhaps another one than before"
    RESUMED = "it may send"
    SUSPENDED = "it has to wait"
    DETACHED = "its connection is gone"
    PASSED_BY = "its neighbour is reached on another path"
    EXPIRED = "its neighbour has been away for too long"
    RETURNED = "its neighbour is back"
    FORGOTTEN = "its link leaves the cooperation"


AWAY: Final = SenderState.AWAY
HELD: Final = SenderState.HELD
OPEN: Final = SenderState.OPEN

ALL: Final = Takes.ALL
KEPT: Final = Takes.KEPT
NOTHING: Final = Takes.NOTHING
NOTHING_THEN_KEPT: Final = Takes.NOTHING_THEN_KEPT

ATTACHED: Final = SenderEvent.ATTACHED
RESUMED: Final = SenderEvent.RESUMED
SUSPENDED: Final = SenderEvent.SUSPENDED
DETACHED: Final = SenderEvent.DETACHED
PASSED_BY: Final = SenderEvent.PASSED_BY
EXPIRED: Final = SenderEvent.EXPIRED
RETURNED: Final = SenderEvent.RETURNED
FORGOTTEN: Final = SenderEvent.FORGOTTEN
"""See :mod:`ildm.mqtt.members`."""

STATES: Final = {
    AWAY: {ATTACHED: HELD},
    HELD: {ATTACHED: HELD, RESUMED: OPEN, DETACHED: AWAY},
    OPEN: {ATTACHED: HELD, SUSPENDED: HELD, DETACHED: AWAY},
}
TAKES: Final = {
    ALL: {PASSED_BY: KEPT, EXPIRED: NOTHING},
    KEPT: {RESUMED: ALL, EXPIRED: NOTHING_THEN_KEPT, FORGOTTEN: ALL},
    NOTHING: {PASSED_BY: NOTHING_THEN_KEPT, RETURNED: ALL, FORGOTTEN: ALL},
    NOTHING_THEN_KEPT: {RETURNED: KEPT, FORGOTTEN: ALL},
}

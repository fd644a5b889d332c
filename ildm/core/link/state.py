"""The states of a link, and the only place that changes them.

A link is *connected* while it has its control session, and *cooperating* while it carries messages or, in an
outage, keeps them. It joins the cooperation when both sides have said that they take it for part of it
(``READY 1``: ``here``, ``there``). When one of them takes that back it carries no more, but keeps what is for
the neighbour until that is reached on another path; then it leaves, or when it is given up.

================== ========= ========== ==== ===== ==========
state              connected cooperating here there shown as
================== ========= ========== ==== ===== ==========
ABSENT             no        no         no   no    down
SETTLING           yes       no         no   no    connecting
OFFERED            yes       no         yes  no    connecting
INVITED            yes       no         no   yes   connecting
BLOCKED            yes       no         no   no    blocked
BLOCKED_INVITED    yes       no         no   yes   blocked
ACTIVE             yes       yes        yes  yes   active
DOWN               no        yes        no   no    down
RETURNED           yes       yes        no   no    connecting
RETURNED_OFFERED   yes       yes        yes  no    connecting
RETURNED_INVITED   yes       yes        no   yes   connecting
================== ========= ========== ==== ===== ==========
"""

from __future__ import annotations

from enum import Enum

from ildm.mqtt import LocalError


class LinkStateError(LocalError):
    """An event that cannot happen in a state."""


class LinkState(Enum):
    """See the module. ``takes``: what the neighbour transfers is taken."""

    ABSENT = (False, False, False, False, "down")
    SETTLING = (True, False, False, False, "connecting")
    OFFERED = (True, False, True, False, "connecting")
    INVITED = (True, False, False, True, "connecting")
    BLOCKED = (True, False, False, False, "blocked")
    BLOCKED_INVITED = (True, False, False, True, "blocked")
    ACTIVE = (True, True, True, True, "active")
    DOWN = (False, True, False, False, "down")
    RETURNED = (True, True, False, False, "connecting")
    RETURNED_OFFERED = (True, True, True, False, "connecting")
    RETURNED_INVITED = (True, True, False, True, "connecting")

    def __init__(self, connected: bool, cooperating: bool, here: bool, there: bool, shown: str) -> None:
        self.connected = connected
        self.cooperating = cooperating
        self.here = here
        self.there = there
        self.shown = shown
        self.takes = cooperating and here


class LinkEvent(Enum):
    """What moves a link from one state to another."""

    RESTORED = "it cooperated in an earlier life of this node"
    CONNECTED = "it has a control session, perhaps another one than before"
    LOST = "its control session is gone"
    OFFERED = "this node takes it for part of the cooperation"
    INVITED = "the neighbour takes it for part of the cooperation"
    WITHDRAWN = "this node takes that back: the link would close a cycle"
    DECLINED = "the neighbour takes that back"
    LEFT = "the neighbour is reached on another path, after this node or the neighbour has taken that back"
    FORGOTTEN = "removed, given up after an outage, or reached on another path"


_S, _E = LinkState, LinkEvent
_TABLE = """
state            CONNECTED LOST   OFFERED          INVITED          WITHDRAWN        DECLINED         LEFT
SETTLING         SETTLING  ABSENT OFFERED          INVITED          BLOCKED          SETTLING         -
OFFERED          SETTLING  ABSENT OFFERED          ACTIVE           BLOCKED          OFFERED          -
INVITED          SETTLING  ABSENT ACTIVE           INVITED          BLOCKED_INVITED  SETTLING         -
BLOCKED          SETTLING  ABSENT OFFERED          BLOCKED_INVITED  BLOCKED          BLOCKED          -
BLOCKED_INVITED  SETTLING  ABSENT ACTIVE           BLOCKED_INVITED  BLOCKED_INVITED  BLOCKED          -
ACTIVE           RETURNED  DOWN   ACTIVE           ACTIVE           RETURNED_INVITED RETURNED_OFFERED -
RETURNED         RETURNED  DOWN   RETURNED_OFFERED RETURNED_INVITED RETURNED         RETURNED         BLOCKED
RETURNED_OFFERED RETURNED  DOWN   RETURNED_OFFERED ACTIVE           RETURNED         RETURNED_OFFERED OFFERED
RETURNED_INVITED RETURNED  DOWN   ACTIVE           RETURNED_INVITED RETURNED_INVITED RETURNED BLOCKED_INVITED
"""
"""The state after each event; ``-``: it cannot happen. Nothing but a connection, or being forgotten, happens
to a link without one."""


def _transitions() -> dict[tuple[LinkState, LinkEvent], LinkState]:
    header, *rows = (line.split() for line in _TABLE.strip().splitlines())
    table = {
        (LinkState[state], LinkEvent[event]): LinkState[name]
        for state, *names in rows
        for event, name in zip(header[1:], names, strict=True)
        if name != "-"
    }
    table |= {(state, LinkEvent.FORGOTTEN): LinkState.ABSENT for state in LinkState}
    table[LinkState.ABSENT, LinkEvent.CONNECTED] = LinkState.SETTLING
    table[LinkState.ABSENT, LinkEvent.RESTORED] = LinkState.DOWN
    table[LinkState.DOWN, LinkEvent.CONNECTED] = LinkState.RETURNED
    return table


TRANSITIONS = _transitions()
"""Whatever is not in it cannot happen."""


class Stateful:
    """What has the state of a link; nothing but :meth:`step` writes it."""

    def __init__(self) -> None:
        self.state = LinkState.ABSENT

    def step(self, event: LinkEvent) -> tuple[LinkState, LinkState]:
        """Answers the state before and after.

        Raises:
            LinkStateError: that cannot happen now; nothing has changed.
        """
        before = self.state
        after = TRANSITIONS.get((before, event))
        if after is None:
            raise LinkStateError(f"a link that is {before.name} cannot be {event.name}")
        self.state = after
        return before, after

    @property
    def connected(self) -> bool:
        return self.state.connected

    @property
    def active(self) -> bool:
        return self.state is LinkState.ACTIVE

    @property
    def in_cooperation(self) -> bool:
        return self.state.cooperating

    @property
    def ready_here(self) -> bool:
        return self.state.here

    @property
    def ready_there(self) -> bool:
        return self.state.there

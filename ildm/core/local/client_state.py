"""The states of a client's connection, and what leads from one to another.

================== ================= ================== =============== ================ ========
state              asked             waits              dials           connected        accepted
================== ================= ================== =============== ================ ========
AWAITING_CONNECT   AWAITING_DECISION AWAITING_NEIGHBORS AWAITING_BROKER -                -
AWAITING_DECISION  -                 AWAITING_NEIGHBORS AWAITING_BROKER -                -
AWAITING_NEIGHBORS -                 -                  AWAITING_BROKER -                -
AWAITING_BROKER    -                 -                  -               AWAITING_CONNACK -
AWAITING_CONNACK   -                 -                  -               -                RELAYING
RELAYING           -                 -                  -               -                -
ENDED              -                 -                  -               -                -
================== ================= ================== =============== ================ ========

Each of them may end; what has ended stays so.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class ClientState(Enum):
    """Phases of a client's connection."""

    AWAITING_CONNECT = "awaiting CONNECT"
    AWAITING_DECISION = "awaiting the filters' decision"
    AWAITING_NEIGHBORS = "awaiting the neighbours' interest"
    AWAITING_BROKER = "awaiting the broker's connection"
    AWAITING_CONNACK = "awaiting CONNACK"
    RELAYING = "relaying"
    ENDED = "ended"

    __hash__ = object.__hash__  # else Python computes that of the name for each look into a table


AWAITING_CONNECT: Final = ClientState.AWAITING_CONNECT
AWAITING_DECISION: Final = ClientState.AWAITING_DECISION
AWAITING_NEIGHBORS: Final = ClientState.AWAITING_NEIGHBORS
AWAITING_BROKER: Final = ClientState.AWAITING_BROKER
AWAITING_CONNACK: Final = ClientState.AWAITING_CONNACK
RELAYING: Final = ClientState.RELAYING
ENDED: Final = ClientState.ENDED
"""See :mod:`ildm.mqtt.members`."""

NEXT: Final = {
    AWAITING_CONNECT: {
        "asked": AWAITING_DECISION,
        "waits": AWAITING_NEIGHBORS,
        "dials": AWAITING_BROKER,
        "ends": ENDED,
    },
    AWAITING_DECISION: {"waits": AWAITING_NEIGHBORS, "dials": AWAITING_BROKER, "ends": ENDED},
    AWAITING_NEIGHBORS: {"dials": AWAITING_BROKER, "ends": ENDED},
    AWAITING_BROKER: {"connected": AWAITING_CONNACK, "ends": ENDED},
    AWAITING_CONNACK: {"accepted": RELAYING, "ends": ENDED},
    RELAYING: {"ends": ENDED},
    ENDED: {"ends": ENDED},
}
"""By state and event: the filters are ``asked``, the client ``waits`` for neighbours, its broker session
``dials``, is ``connected``, has relayed the CONNACK that ``accepted`` it; the session ``ends``."""

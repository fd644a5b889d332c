"""What a node saves, as tables of rows: one descriptor here is all a new kind of state needs.

To save something new: add a :class:`Table` and name it in :data:`TABLES`; hand each change to
``store.put(TABLE, key, row)`` (``None`` removes the row); at start read ``store.load(TABLE)`` before the
first change, and give what makes no sense to ``store.set_aside(TABLE, key, reason)``. Changes of the same
row coalesce until they are written, all that wait are written in one transaction, and the order of rows
is that of their last change. A column added later is null in rows saved before, so its type has ``None``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType

Value = str | bytes | int | float | None
Key = tuple[Value, ...]
Row = tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Table:
    """Names and types of columns; a type is str, bytes, int or float, or a union of one with None."""

    name: str
    key: Mapping[str, type]
    columns: Mapping[str, type | UnionType]


META = Table("meta", {"key": str}, {"value": str})
"""Identity and version of the file."""
NEIGHBORS = Table("neighbors", {"address": str}, {"wanted": int})
"""Neighbours added (1) or removed (0) at run time."""
SESSIONS = Table("client_sessions", {"client_id": str}, {"expires_at": float | None, "expiry": int})
"""Persistent sessions: Unix time of expiry (null while the client is connected, and for one that does not
expire) and session expiry interval in seconds (MQTT 5, 3.1.2.11.2)."""
SUBSCRIPTIONS = Table("subscriptions", {"client_id": str, "filter": str}, {"qos": int})
"""Granted filters of persistent sessions."""
RETAINED = Table(
    "retained", {"topic": str}, {"frame": bytes, "expires_at": float | None, "repeated": str | None}
)
"""Newest retained message of each topic as a frame of MQTT 5, its expiry as Unix time, and the stamp of the
last of the topic that has come as a repetition before it came itself."""
UNRELEASED = Table("unreleased_messages", {"client_id": str, "packet_id": int}, {"digest": int | None})
"""QoS 2 messages of persistent sessions that were transferred, not released; CRC-32 of topic and payload."""
WILLS = Table("wills", {"client_id": str}, {"frame": bytes, "delay": int, "due": float | None})
"""Wills of clients as PUBLISH of MQTT 5: the seconds each is delayed and, of a client that has gone, the Unix
time it is due."""
COOPERATION = Table(
    "cooperation",
    {"node_id": str},
    {
        "age": int,
        "sessions": int,
        "algorithm": str,
        "dialed": str,
        "behind": str | None,
        "unsure": int | None,
    },
)
"""Neighbours whose links are part of the cooperation: age of the link, TCP sessions, address dialed or "",
ids of the nodes behind it (one a line), and 1 if some of them may be reached elsewhere meanwhile."""
INTEREST = Table("interest", {"node_id": str, "filter": str}, {"qos": int})
"""Filters these neighbours have inter-subscribed to."""
CLOCK = Table("clock", {"of": str}, {"time": int})
"""The latest stamp of retained messages (``of`` is ``retained``), in milliseconds of Unix time."""
CALENDAR = Table("calendar", {"of": str}, {"seconds": float})
"""How far the node's own time had come (``date``, ``cautious``), and how far the machine's clock is ahead of
it (``jumps``); see :mod:`ildm.core.calendar`."""
BROKERS = Table("brokers", {"address": str}, {"delivers": str})
"""What was found out about the local broker: whether it delivers QoS 2 at ``publish`` or at ``release``."""
IN_USE = Table("in_use", {"of": str}, {"address": str})
"""Where the node's own sessions were accepted last (``of`` is ``broker``), of several addresses; and with
``short client identifiers``, where they had such."""
PLUGIN_STATE = Table("plugin_state", {"plugin": str, "entry": str}, {"value": bytes})
"""What plugins want to find again; ``plugin`` is ``algorithm/NAME`` or ``filter/NAME``, with ``/2`` after it
for the second of that name in the chain."""
BANS = Table("bans", {"kind": str, "name": str}, {"until": float | None})
"""Clients kept out: ``client``, ``user`` or ``address``, and until when in Unix time; null: for ever."""
GUESTS = Table("guests", {"member": str}, {"life": str, "taken": int})
"""Members of the site whose clients are guests of the owner: which process, and up to which of its records
all is done (:mod:`ildm.core.guests`)."""

TABLES = (
    META,
    NEIGHBORS,
    SESSIONS,
    SUBSCRIPTIONS,
    RETAINED,
    UNRELEASED,
    WILLS,
    COOPERATION,
    INTEREST,
    CLOCK,
    CALENDAR,
    BROKERS,
    IN_USE,
    PLUGIN_STATE,
    BANS,
    GUESTS,
)

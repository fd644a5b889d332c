"""Times that a node saves for its next incarnation: until when it was surely part of an overlay."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from ildm.api import PluginError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ildm.api import NodeApi

__all__ = ["LOOKBACK", "STAMPS", "absent_since", "save", "save_time", "saved_time"]

LOOKBACK = 5.0
"""What was published in so many seconds before a moment may still have been under way then."""
STAMPS = 10.0
"""Seconds between two times that are saved."""
_TIME = Struct(">d")


def save_time(api: NodeApi, entry: str, at: float) -> None:
    """Save a time of :meth:`ildm.api.NodeApi.now` in an entry of the state, as Unix time."""
    api.state[entry] = _TIME.pack(api.wall() - api.now() + at)


def save(api: NodeApi, entry: str, value: bytes, count: Callable[[str], None], lost: str) -> None:
    """Save an entry of the state; b"" deletes it. ``lost``: for the log if there is no room."""
    try:
        if value:
            api.state[entry] = value
        else:
            api.state.pop(entry, None)
    except PluginError as error:
        count("memory_full")
        api.log(lost, reason=str(error))


def saved_time(api: NodeApi, entry: str) -> float | None:
    """The time that an earlier incarnation has saved; later than now if the clock was set back since."""
    saved = api.state.get(entry, b"")
    return api.now() - api.wall() + float(_TIME.unpack(saved)[0]) if len(saved) == _TIME.size else None


def absent_since(
    api: NodeApi, entry: str, period: float, unknown: float, count: Callable[[str], None]
) -> float:
    """Since when this node may have missed messages; now if nothing is saved.

    Args:
        period: seconds for which publishers keep messages.
        unknown: seconds that count where the clock was set back, so that the time of absence is not known.
    """
    present = saved_time(api, entry)
    if present is None:
        return api.now()
    away = api.now() - present + LOOKBACK
    if away < 0:
        count("clock_set_back")
        api.log("the clock was set back while this node was away", seconds=round(-away))
        away = unknown
    if away > period:
        count("away_too_long")
        api.log("away for longer than publishers keep messages", seconds=round(away))
    return api.now() - away

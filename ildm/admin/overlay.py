"""What a node knows of its overlay, as text. Thousands of keys become that a part at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ildm.api import OverlayView

AT_ONCE = 100
"""Keys in one turn of the event loop, about a millisecond: in between others have theirs."""


async def as_json(shown: OverlayView) -> str:
    """The fields of the view, as one JSON object."""
    keys: list[str] = []
    for start in range(0, len(shown.keys), AT_ONCE):
        keys += [key.model_dump_json() for key in shown.keys[start : start + AT_ONCE]]
        await asyncio.sleep(0)
    rest = shown.model_dump_json(exclude={"keys"})
    return f'{rest[:-1]},"keys":[{",".join(keys)}]}}'

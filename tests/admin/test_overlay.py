"""An overlay of thousands of keys as text, without holding up what else the event loop has to do."""

from __future__ import annotations

import asyncio
import json

import pytest

from ildm.admin.overlay import AT_ONCE, as_json
from ildm.api import OverlayKey, OverlayView


@pytest.mark.parametrize("count", [0, 1, AT_ONCE, 10 * AT_ONCE + 1])
async def test_others_have_their_turn_after_each_part(count: int) -> None:
    keys = [
        OverlayKey(key=f'"{number}" é', status="in", levels=[("a", None)], facts={"n": number})
        for number in range(count)
    ]
    shown = OverlayView(node="a", members=3, keys=keys, facts={"x": 0.5}, tables={"t": [{"n": None}]})
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    text = await as_json(shown)
    task.cancel()
    assert json.loads(text) == shown.model_dump(mode="json")
    assert turns >= count // AT_ONCE

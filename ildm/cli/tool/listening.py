"""What ``ildm sub`` does: print what comes, and connect again when the connection is lost."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence

from paho.mqtt.client import MQTTMessage

from ildm.cli.tool.client import Connection, LostError, Target, ToolError, write_message
from ildm.text import printable

SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds between attempts to connect again."""


def listen(
    target: Target,
    topics: Sequence[str],
    qos: int,
    *,
    count: int | None,
    wait: float | None,
    reconnect: bool,
    form: str,
) -> None:
    """Print ``count`` messages; without a count all until the end.

    Raises:
        ToolError: the connection failed for good, or ``wait`` seconds were over.
    """
    left = count

    def arrived(message: MQTTMessage) -> bool:
        nonlocal left
        if left == 0:
            return False
        write_message(message, form)
        if left is not None:
            left -= 1
        return True

    def connected() -> Connection:
        made = Connection(target, arrived)
        made.subscribe(topics, qos)
        return made

    give_up = math.inf if wait is None else time.monotonic() + wait
    connection: Connection | None = connected()
    pause = SHORTEST_PAUSE
    while left != 0:
        rest = max(0.0, give_up - time.monotonic())
        try:
            if connection is None:
                time.sleep(min(pause, rest))
                pause = min(2 * pause, LONGEST_PAUSE)
                connection = connected()
                print(printable(f"ildm: {target}: connected again"), file=sys.stderr)
                pause = SHORTEST_PAUSE
            else:
                connection.step(min(0.5, rest))
        except LostError as error:
            if not reconnect:
                raise
            if connection is not None:
                print(printable(f"ildm: {error}; trying again"), file=sys.stderr)
            connection = None
        if time.monotonic() >= give_up:
            if connection is not None:
                connection.close()
            got = "" if count is None else f"{count - (left or 0)} of {count} messages within "
            raise ToolError(f"{target}: {got}{'' if got else 'the end after '}{wait:g} s")
    if connection is not None:
        connection.close()

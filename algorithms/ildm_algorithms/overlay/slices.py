"""Long loops in pieces: local clients, and the rest of the node, have their turn in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeVar

from ildm_algorithms.overlay.context import Context

__all__ = ["in_slices"]

Item = TypeVar("Item")


def in_slices(
    context: Context,
    items: Iterator[Item],
    size: int,
    work: Callable[[Item], None],
    done: Callable[[], None] = lambda: None,
    pause: float = 0.0,
) -> None:
    """Do ``work`` for each item, ``size`` of them in one call, the first at once; then ``done``.

    ``items`` sees all changes made in between. ``pause``: seconds between the pieces.
    """
    count = 0
    for item in islice(items, size):
        work(item)
        count += 1
    if count < size:
        done()
    else:
        context.later(pause, in_slices, context, items, size, work, done, pause)

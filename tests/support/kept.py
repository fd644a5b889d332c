"""What a node really keeps: the memory of every object that is reached from it, not what it counts."""

from __future__ import annotations

import gc
import sys
from types import FunctionType, ModuleType
from typing import Any

from pydantic import BaseModel

from ildm.core.node import Node
from ildm.mqtt import Version
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.pipe import Pipe
from ildm.testing.virtual.store import MemoryStore
from ildm.testing.virtual.world import World

_ELSEWHERE = (type, ModuleType, BaseModel, World, WorldDriver, Pipe, MemoryStore, Version)
"""Where a walk does not go on: the program itself, the configuration, the world around, the disk."""
_LEAVES = frozenset((bytes, bytearray, str, int, float, bool, type(None)))
"""What refers to nothing."""


def kept(node: Node) -> int:
    """Bytes of all that a node of a world keeps, its write buffers included.

    Python's own overhead counts: a message of a few bytes takes some hundred.
    """
    driver = node.driver
    assert isinstance(driver, WorldDriver)
    world = driver.world
    pipes = [pipe for pipe in world.pipes if pipe.owner is driver]
    roots: list[Any] = [node, *(pipe.endpoint for pipe in pipes)]
    for _, _, timer, callback, args in world._events:
        if timer.owner is driver and timer.due:
            roots += [callback, args]
    return size_of(roots) + sum(pipe.buffered for pipe in pipes)


def size_of(roots: list[Any]) -> int:
    """Bytes of all objects reached from some, each counted once."""
    seen: set[int] = set()
    kinds: dict[type, bool] = {}
    """Whether what is of a type is counted."""
    total = 0
    border = roots
    while border:
        found: list[Any] = []
        for item in border:
            if id(item) in seen:
                continue
            seen.add(id(item))
            kind = type(item)
            counted = kinds.get(kind)
            if counted is None:
                counted = kinds[kind] = not issubclass(kind, _ELSEWHERE)
            if not counted:
                continue
            total += sys.getsizeof(item)
            if kind is FunctionType:
                found += [item.__closure__, item.__defaults__]  # not the globals of its module
            elif kind not in _LEAVES:
                found += gc.get_referents(item)
        border = found
    return total

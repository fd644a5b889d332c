"""What is in the memory of this process, in numbers: to see what grows and does not go away again."""

from __future__ import annotations

import asyncio
import gc
import re
from collections import Counter, deque
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any

from ildm.admin.view import Row
from ildm.core.timer_queue import QueuedTimer, TimerQueue

FEWEST = 10
"""Instances of a class, fewer of which are not worth a line."""
_CONTAINERS = {dict, list, set, deque, Counter}
_PLAIN = {type(None), bool, int, float, str, bytes, ModuleType, CodeType, FunctionType, BuiltinFunctionType}
"""Without anything inside, or with all modules."""
_CALLBACK = re.compile(r"TimerHandle (?:when=\S+ )?([^\s()>]+)")


def internals(*roots: object) -> Row:
    """See :meth:`ildm.admin.view.NodeView.internals`; of all that can be reached from ``roots``.

    What the garbage collector would tell is less: it knows neither of tables of mere numbers and texts, nor
    of what was there before :func:`gc.freeze`.
    """
    for each in _reachable(roots):
        if isinstance(each, TimerQueue):
            each.sweep()  # cancelled timers are nobody's, though they wait for their time
    objects = _reachable(roots)
    classes = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in objects)
    timers = Counter(name for name in map(_timer_name, gc.get_objects()) if name is not None)
    return {
        "tasks": len(asyncio.all_tasks()),
        "timers": dict(sorted(timers.items())),
        "objects": len(objects),
        "entries": sum(len(each) for each in objects if type(each) in _CONTAINERS),
        "classes": {name: number for name, number in _many(classes) if not name.startswith("builtins.")},
        "tables": dict(_many(_tables(objects))),
    }


def _many(numbers: Counter[str]) -> list[tuple[str, int]]:
    return sorted((name, number) for name, number in numbers.items() if number >= FEWEST)


def _tables(objects: list[Any]) -> Counter[str]:
    """Entries of containers, by class and attribute that has them."""
    found = Counter[str]()
    for each in objects:
        kind = type(each)
        if kind.__module__ == "builtins":
            continue
        for name, value in _attributes(each):
            if type(value) in _CONTAINERS:
                found[f"{kind.__module__}.{kind.__qualname__}.{name}"] += len(value)
    return found


def _attributes(each: object) -> Iterator[tuple[str, Any]]:
    yield from getattr(each, "__dict__", {}).items()
    for kind in type(each).__mro__:
        if kind.__module__ == "builtins":
            continue
        for name, slot in vars(kind).items():
            # a compiled class has its __weakref__ where an heir has an attribute, perhaps a mere number
            if isinstance(slot, MemberDescriptorType) and not name.startswith("__"):
                try:
                    yield name, slot.__get__(each)
                except AttributeError:  # it has no value yet
                    continue


def _reachable(roots: tuple[object, ...]) -> list[Any]:
    """All objects that hold others, the roots among them, each once."""
    found: list[Any] = []
    seen: set[int] = set()
    fresh: list[Any] = list(roots)
    while fresh:
        step = [each for each in fresh if type(each) not in _PLAIN and not isinstance(each, type)]
        fresh = []
        for each in step:
            if id(each) not in seen:
                seen.add(id(each))
                found.append(each)
                fresh += gc.get_referents(each)
    return found


def _timer_name(each: object) -> str | None:
    """Of what a timer calls; None: it is none, or calls nobody any more."""
    if isinstance(each, QueuedTimer):
        callback = each.callback
        return None if callback is None else getattr(callback, "__qualname__", type(callback).__qualname__)
    if type(each).__name__ != "TimerHandle":
        return None
    match = _CALLBACK.search(repr(each))  # uvloop tells it in the text alone
    return match[1] if match else "?"

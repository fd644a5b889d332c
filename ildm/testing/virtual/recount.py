"""Counts again what a node counts as it changes."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any

from ildm.api import Algorithm
from ildm.core.host.plugin_state import PluginState
from ildm.core.node import Node
from ildm.core.transfer.sender import Sender

PACKAGE = "ildm_algorithms"
ITEMS = 16
"""Of each table of an algorithm so many items are looked into."""


def recount(node: Node) -> None:
    """Between two events. Raises: AssertionError, something was counted wrong."""
    for link in node.links.links.values():
        link.received_interest.check()
        for inbound in link.inbounds:
            inbound.check()
    links = [sender for link in node.links.links.values() for sender in link.senders]
    for sender in (*links, *node.injector.senders):
        sender.queue.check()
        sender._window.check()
        check_movement(sender)
    for session in node.sessions:
        if session.publishing._pending is not None:
            session.publishing._pending.check()
        if session.publishing.unanswered is not None:
            session.publishing.unanswered.check()
    node.clients.check()
    node.partials.check()
    node.retained.check()
    if node.custody is not None:
        node.custody.check()
    if node.links.on_demand is not None:
        node.links.on_demand.check()
    algorithm = node.dispatch.algorithm
    if algorithm is not None:
        state = algorithm.api.state
        if isinstance(state, PluginState):
            state.check()
        for part in parts_of(algorithm):
            part.check_sums()


def check_movement(sender: Sender) -> None:
    """What waits for tokens of a budget, or for the disk, is told when it may go. Raises: AssertionError."""
    wire = sender.wire
    pacer, gate = wire.pacer, wire._gate
    if not sender.open or wire.transport is None:
        return
    paced = pacer is not None and pacer.paced
    assert wire.writable or not wire._flowing or wire.stalled or paced, "a wire waits for nothing"
    if pacer is not None and paced:
        withheld = bool(wire._out) or (gate is not None and gate.withholds)
        assert pacer._timer is not None or pacer.asked or withheld, "a pacer waits for nothing"


def parts_of(algorithm: Algorithm) -> list[Any]:
    """The parts of an algorithm that count something as it changes: they have a method ``check_sums``.

    They are reached from the algorithm by attributes of its objects and by the first items of their tables.
    """
    found: list[Any] = []
    known: set[int] = set()
    left: list[Any] = [algorithm]
    while left:
        part = left.pop()
        if id(part) in known:
            continue
        known.add(id(part))
        if isinstance(part, dict):
            left += islice(part.values(), ITEMS)
        elif isinstance(part, list | tuple | deque | set):
            left += islice(part, ITEMS)
        elif type(part).__module__.startswith(PACKAGE):
            left += attributes_of(part)
            if hasattr(part, "check_sums"):
                found.append(part)
    return found


def attributes_of(part: object) -> list[object]:
    """Of an instance, whether it has a dictionary or slots."""
    names = [name for each in type(part).__mro__ for name in getattr(each, "__slots__", ())]
    return [*getattr(part, "__dict__", {}).values(), *(getattr(part, name, None) for name in names)]

"""Counts again what a node counts as it changes."""

from __future__ import annotations

from ildm.core.node import Node


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

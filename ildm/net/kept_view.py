"""Why a message on a topic would not go from this node to others, as far as the node itself knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ildm.net.rules_view import REST

if TYPE_CHECKING:
    from ildm.core.link.link import NeighborLink
    from ildm.core.node import Node
    from ildm.core.transfer.rules import Side


def kept_rows(node: Node, topic: str, client_id: str) -> list[dict[str, Any]]:
    """See :meth:`ildm.admin.view.NodeView.kept`."""
    rows = [{"neighbor": None, "why": why} for why in _here(node, topic, client_id)]
    if not node.router.active or node.has_overlay or topic.startswith("$"):
        return rows
    asked = not node.dispatch.asks_each
    taken = {link for link, _, _ in node.router.routes.route(topic.encode(), False)} if asked else set()
    for link in node.links.links.values():
        why = _full(link) if link in taken else _not_taken(node, link, topic, asked)
        if why:
            rows.append({"neighbor": link.node_id, "why": why})
    return rows


def _here(node: Node, topic: str, client_id: str) -> Iterator[str]:
    """What keeps it at the site, whoever would want it elsewhere."""
    if client_id:
        record = node.clients.records.get(client_id)
        if record is None or record.session is None:
            yield f"client {client_id} is not connected here"
        elif not record.session.may_send(topic):
            yield f"the rules of publish keep here what client {client_id} sends on it"
    if topic.startswith("$"):
        yield "topics that begin with $ stay with their broker"
    elif node.router.site_rules is not None:
        side = node.router.site_rules.outgoing
        if side.find(topic.encode()) is None:
            yield f"{_rule('site.rules', side, topic)} keeps it at this site"


def _not_taken(node: Node, link: NeighborLink, topic: str, asked: bool) -> str:
    if link.state.shown not in ("active", "down"):
        return f"the link is {link.state.shown}"
    if link.rules is not None and link.rules.outgoing.find(topic.encode()) is None:
        key, _ = node.config.link.ruled(link.node_id)
        return f"{_rule(key, link.rules.outgoing, topic)} denies it"
    if link.most_qos(topic) is None:
        return "the neighbour's own rules keep it out"
    return f"algorithm {node.algorithm_name} knows of nobody there who wants it" if asked else ""


def _full(link: NeighborLink) -> str:
    """Messages that find no room in memory: those of the spool wait on disk."""
    config = link.config
    if link.queued < config.queue_messages and link.queued_bytes < config.queue_bytes:
        return ""
    then = "senders wait" if config.overflow == "block" else "the oldest are dropped"
    return f"its queue is full ({link.queued:,} messages): {then}"


def _rule(key: str, side: Side, topic: str) -> str:
    place = side.rule_of(topic.encode())
    return f"{key}.{REST if place < 0 else place}"

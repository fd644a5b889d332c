"""What an administrator does to clients, and looks up in retained messages: the live node as plain data."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from ildm.admin.view import AdminError, UnknownError
from ildm.core.local.bans import Ban, Kind, TooManyBansError
from ildm.mqtt import topic_matches

if TYPE_CHECKING:
    from ildm.core.node import Node
    from ildm.net.transport.gate import AddressGate

SHOWN_PAYLOAD = 256
"""Bytes of a payload that are shown."""


def kick(node: Node, client_id: str) -> dict[str, Any]:
    """See :meth:`ildm.admin.view.NodeView.kick`."""
    found = [s for s in node.sessions if s.record is not None and s.client_id == client_id]
    if not found:
        raise UnknownError(f"no client {client_id!r} is connected")
    for session in found:
        node.driver.log("info", "client kicked", client_id=session.client_id, peer=session.peer)
        session.kick()
    return {"client_id": client_id, "ended": len(found)}


def ban(node: Node, kind: Kind, name: str, seconds: float | None) -> dict[str, Any]:
    """See :meth:`ildm.admin.view.NodeView.ban`."""
    made = Ban(kind, name, None if seconds is None else node.driver.wall() + seconds)
    try:
        node.bans.add(made)
    except TooManyBansError as error:
        raise AdminError(str(error)) from error
    barred = [s for s in node.sessions if s.connect is not None and node.bans.bars(s)]
    for session in barred:
        session.kick()
    node.driver.log("info", "clients banned", kind=kind, name=name, seconds=seconds, ended=len(barred))
    return {**made._asdict(), "ended": len(barred)}


def bans(node: Node, gate: AddressGate | None) -> list[dict[str, Any]]:
    """See :meth:`ildm.admin.view.NodeView.bans`."""
    rows = [{**each._asdict(), "why": "administrator"} for each in node.bans]
    if gate is not None:
        now = node.driver.wall()
        rows += [
            {"kind": "address", "name": key, "until": now + left, "why": "authentication"}
            for key, left in gate.failures.blocked()
        ]
    return rows


def lift(node: Node, gate: AddressGate | None, kind: Kind, name: str) -> dict[str, Any]:
    """See :meth:`ildm.admin.view.NodeView.lift_ban`."""
    lifted = node.bans.lift(kind, name)
    if gate is not None and kind == "address":
        lifted = gate.lift(name) or lifted
    if not lifted:
        raise UnknownError(f"there is no ban of {kind} {name!r}")
    node.driver.log("info", "ban lifted", kind=kind, name=name)
    return {"kind": kind, "name": name}


def retained_page(node: Node, topic_filter: str, limit: int, offset: int) -> dict[str, Any]:
    """See :meth:`ildm.admin.view.NodeView.retained`."""
    values = node.retained.values
    if topic_filter == "#":
        topics = list(values)
    elif "+" in topic_filter or "#" in topic_filter:
        topics = [topic for topic in values if topic_matches(topic_filter, topic)]
    else:
        topics = [topic_filter] if topic_filter in values else []
    return {"total": len(topics), "items": [_row(node, topic) for topic in topics[offset : offset + limit]]}


def _row(node: Node, topic: str) -> dict[str, Any]:
    entry = node.retained.values[topic]
    message = entry.message
    left = None if entry.expires_at is None else max(0.0, entry.expires_at - node.driver.now())
    return {
        "topic": topic,
        "qos": message.qos,
        "size": len(message.payload),
        "payload": base64.b64encode(message.payload[:SHOWN_PAYLOAD]).decode(),
        "since": entry.stamp.time / 1000,
        "origin": entry.stamp.node,
        "expires_in": left,
    }

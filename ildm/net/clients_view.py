"""Clients, their filters, retained messages: the live node as plain data, and what can be done to clients."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from ildm.admin.view import AdminError, UnknownError
from ildm.core.guests.guest import Guest
from ildm.core.local.bans import Ban, Kind, TooManyBansError
from ildm.core.local.client_session import ClientSession
from ildm.core.local.clients import NEVER
from ildm.core.local.record import OLDER, UNKNOWN, ClientRecord
from ildm.core.local.session_import import ImportRefusedError, KnownSession
from ildm.mqtt import Version, topic_matches

if TYPE_CHECKING:
    from ildm.core.link.link import NeighborLink
    from ildm.core.local.session_import import SessionImport
    from ildm.core.node import Node
    from ildm.net.transport.gate import AddressGate

SHOWN_PAYLOAD = 256
"""Bytes of a payload that are shown."""
VERSIONS = {Version.V31: "3.1", Version.V311: "3.1.1", Version.V5: "5"}


def client_rows(node: Node) -> list[dict[str, Any]]:
    """See :meth:`ildm.admin.view.NodeView.clients`."""
    rows = [
        session_row(session, session.publishing.record)
        for session in node.sessions
        if session.publishing.record is not None and session.connect is not None
    ]
    records = node.clients.records.values()
    rows.extend(guest_row(each.session, each) for each in records if isinstance(each.session, Guest))
    rows.extend(away_row(record) for record in records if record.session is None and record.key != OLDER)
    return rows


def record_row(record: ClientRecord) -> dict[str, Any]:
    """One client, connected or not."""
    session = record.session
    if isinstance(session, Guest):
        return guest_row(session, record)
    if not isinstance(session, ClientSession) or session.connect is None:
        return away_row(record)
    return session_row(session, record)


def session_row(session: ClientSession, record: ClientRecord) -> dict[str, Any]:
    """One client that is connected."""
    assert session.connect is not None
    return {
        "client_id": session.client_id,
        "peer": session.peer,
        "version": VERSIONS[session.version],
        "connected": True,
        "since": session.opened_at,
        "clean_start": session.connect.clean_start,
        "subscriptions": len(record.filters) - record.is_unknown,
        "filters_unknown": record.is_unknown,
        "messages_in": session.relay.messages_in,
        "messages_out": session.paired.messages_out if session.paired is not None else 0,
    }


def guest_row(guest: Guest, record: ClientRecord) -> dict[str, Any]:
    """One that is connected at another member of the site; what it has sent is counted there."""
    return {
        **away_row(record),
        "client_id": guest.client_id,
        "peer": f"{guest.peer} at member {guest.member}",
        "version": VERSIONS[guest.version],
        "connected": True,
        "since": guest.opened_at,
        "clean_start": guest.connect is not None and guest.connect.clean_start,
    }


def away_row(record: ClientRecord) -> dict[str, Any]:
    """A persistent session whose client is away."""
    return {
        "client_id": record.key,
        "peer": "",
        "version": "",
        "connected": False,
        "since": None,
        "clean_start": False,
        "subscriptions": len(record.filters) - record.is_unknown,
        "filters_unknown": record.is_unknown,
        "messages_in": 0,
        "messages_out": 0,
    }


def sources(node: Node) -> Iterator[ClientRecord | NeighborLink]:
    """Whoever has filters: clients, then neighbours."""
    return chain(node.clients.records.values(), node.links.links.values())


def filters_of(source: ClientRecord | NeighborLink) -> Mapping[str, int]:
    """With the QoS of each."""
    return source.filters if isinstance(source, ClientRecord) else source.interest


def source_name(source: ClientRecord | NeighborLink) -> str:
    """``client ID``, ``neighbor ID`` or ``older sessions``."""
    if isinstance(source, ClientRecord):
        if source.key == OLDER:
            return "older sessions"
        return f"client {source.key.removeprefix(chr(0))}"
    return f"neighbor {source.node_id}"


def subscription_row(source: ClientRecord | NeighborLink, topic_filter: str, qos: int) -> dict[str, Any]:
    if topic_filter == UNKNOWN:
        return {"filter": "#", "qos": qos, "source": f"{source_name(source)}, filters unknown"}
    return {"filter": topic_filter, "qos": qos, "source": source_name(source)}


def kick(node: Node, client_id: str) -> dict[str, Any]:
    """See :meth:`ildm.admin.view.NodeView.kick`."""
    found = [s for s in node.sessions if s.publishing.record is not None and s.client_id == client_id]
    if not found:
        raise UnknownError(f"no client {client_id!r} is connected")
    for session in found:
        node.driver.log("info", "client kicked", client_id=session.client_id, peer=session.peer)
        session.kick()
    return {"client_id": client_id, "ended": len(found)}


def ban(node: Node, kind: Kind, name: str, seconds: float | None) -> dict[str, Any]:
    """See :meth:`ildm.admin.view.NodeView.ban`."""
    made = Ban(kind, name, None if seconds is None else node.calendar.date() + seconds)
    try:
        node.bans.add(made)
    except TooManyBansError as error:
        raise AdminError(str(error)) from error
    barred = [s for s in node.sessions if s.connect is not None and node.bans.bars(s)]
    for session in barred:
        session.kick()
    node.driver.log("info", "clients banned", kind=kind, name=name, seconds=seconds, ended=len(barred))
    return {**_ban_row(node, made), "ended": len(barred)}


def bans(node: Node, gate: AddressGate | None) -> list[dict[str, Any]]:
    """See :meth:`ildm.admin.view.NodeView.bans`."""
    rows = [{**_ban_row(node, each), "why": "administrator"} for each in node.bans]
    if gate is not None:
        now = node.driver.wall()
        rows += [
            {"kind": "address", "name": key, "until": now + left, "why": "authentication"}
            for key, left in gate.failures.blocked()
        ]
    return rows


def _ban_row(node: Node, ban: Ban) -> dict[str, Any]:
    until = None if ban.until is None else node.calendar.shown(ban.until)
    return {**ban._asdict(), "until": until}


def lift(node: Node, gate: AddressGate | None, kind: Kind, name: str) -> dict[str, Any]:
    """See :meth:`ildm.admin.view.NodeView.lift_ban`."""
    lifted = node.bans.lift(kind, name)
    if gate is not None and kind == "address":
        lifted = gate.lift(name) or lifted
    if not lifted:
        raise UnknownError(f"there is no ban of {kind} {name!r}")
    node.driver.log("info", "ban lifted", kind=kind, name=name)
    return {"kind": kind, "name": name}


def import_sessions(
    node: Node,
    importer: SessionImport,
    rows: list[dict[str, Any]],
    done: Callable[[dict[str, Any]], None],
) -> None:
    """See :meth:`ildm.admin.view.NodeView.import_sessions`."""
    if not node.router.active:
        raise AdminError("this node runs without an algorithm: nothing crosses")
    sessions = [
        KnownSession(row["client_id"], row["filters"], NEVER if row["expiry"] is None else row["expiry"])
        for row in rows
        if row["client_id"] not in node.injector.client_ids
    ]
    answer = {
        "sessions": len(sessions),
        "filters": sum(len(session.filters) for session in sessions),
        "skipped": len(rows) - len(sessions),
    }
    try:
        importer.begin(sessions, lambda: done({**answer, "unknown": node.clients.unknown}))
    except ImportRefusedError as error:
        raise AdminError(str(error)) from error


def retained_page(node: Node, topic_filter: str, limit: int, offset: int) -> dict[str, Any]:
    """See :meth:`ildm.admin.view.NodeView.retained`."""
    values = node.retained.values
    if topic_filter == "#":
        topics = list(values)
    elif "+" in topic_filter or "#" in topic_filter:
        topics = [topic for topic in values if topic_matches(topic_filter, topic)]
    else:
        topics = [topic_filter] if topic_filter in values else []
    shown = topics[offset : offset + limit]
    return {"total": len(topics), "items": [retained_row(node, topic) for topic in shown]}


def retained_row(node: Node, topic: str) -> dict[str, Any]:
    """One retained message that the node remembers."""
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

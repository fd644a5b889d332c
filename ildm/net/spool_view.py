"""What the admin API shows of the spool, and lets an administrator throw away."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from ildm.admin.view import AdminError, UnknownError
from ildm.core.spool import NEVER, Waiting
from ildm.core.transfer.spooled_queue import summed
from ildm.mqtt import Publish, Version, decode
from ildm.state.spool.inspect import read_waiting

if TYPE_CHECKING:
    from ildm.core.link.link import NeighborLink
    from ildm.core.node import Node
    from ildm.core.spool import Spool
    from ildm.core.transfer.custody import Custody
    from ildm.state.spool.inspect import Found

OFF: dict[str, Any] = {
    "mode": "off",
    "messages": 0,
    "bytes": 0,
    "disk_bytes": 0,
    "oldest": None,
    "failure": None,
    "full": False,
}


def receiver_of(consumer: str) -> str:
    """The receiver that a consumer belongs to: one has several where it has several sessions."""
    kind, _, rest = consumer.partition("/")
    if kind == "injection":
        return "broker"
    return f"{kind}/{rest.rpartition('/')[0]}" if kind == "link" else consumer


def consumers_of(spool: Spool, receiver: str) -> list[str]:
    """Names of all consumers of one receiver."""
    return [name for name in spool.consumers() if receiver_of(name) == receiver]


def state_row(node: Node) -> dict[str, Any]:
    """Its line in the status."""
    custody = node.custody
    if custody is None:
        return dict(OFF)
    report = custody.report()
    return {
        "mode": node.config.spool.mode,
        **summed(report.consumers.values())._asdict(),
        "disk_bytes": report.bytes,
        "failure": report.failure,
        "full": report.full,
    }


def spool_row(node: Node) -> dict[str, Any]:
    """See :meth:`ildm.admin.view.NodeView.spool`."""
    row = state_row(node)
    custody = node.custody
    if custody is None:
        return row
    receivers: dict[str, list[str]] = {}
    for name, waiting in sorted(custody.report().consumers.items()):
        if waiting.messages:
            receivers.setdefault(receiver_of(name), []).append(name)
    row["directory"] = str(node.config.spool_directory)
    row["limit"] = node.config.spool.bytes
    row["lost"] = _lost(node, custody)
    row["receivers"] = [
        {
            "receiver": receiver,
            **summed(custody.spool.consumer(name).waiting for name in names)._asdict(),
            "on_disk": sum(custody.spool.consumer(name).beyond_messages for name in names),
        }
        for receiver, names in receivers.items()
    ]
    return row


def _lost(node: Node, custody: Custody) -> dict[str, Any]:
    """What the disk has lost since the node was started, or before."""
    counters = node.counters
    receivers: dict[str, int] = {}
    for name, messages in custody.spool.losses.items():
        receiver = receiver_of(name)
        receivers[receiver] = receivers.get(receiver, 0) + messages
    torn = counters["spool_torn"] - counters["spool_cut_short"] if node.config.spool.mode == "process" else 0
    return {
        "places": counters["spool_damaged"] + torn,
        "ends": torn,  # of which nothing tells how much was there
        "messages": counters["spool_lost"] + counters["spool_unreadable"],
        "entries": custody.spool.lost_entries,
        "receivers": receivers,
    }


def only_here(node: Node, link: NeighborLink | None) -> Waiting:
    """What is for a neighbour and was acknowledged to whoever has sent it."""
    if link is None:
        return Waiting(0, 0, None)
    if node.custody is None:
        return Waiting(link.queued, link.queued_bytes, None)
    spool = node.custody.spool
    return summed(spool.consumer(name).waiting for name in consumers_of(spool, f"link/{link.node_id}"))


def drop_spooled(node: Node, receiver: str) -> dict[str, Any]:
    """See :meth:`ildm.admin.view.NodeView.drop_spooled`."""
    custody = node.custody
    names = [] if custody is None else consumers_of(custody.spool, receiver)
    if custody is None or not names:
        raise UnknownError(f"the spool has nothing for {receiver}")
    if receiver.startswith("plugin/"):
        raise AdminError(f"{receiver}: what an algorithm keeps is the algorithm's own")
    dropped = custody.drop(names)
    node.counters["spool_dropped_told"] += dropped.messages
    node.driver.log(
        "warning",
        "what was kept is dropped, as an administrator wants it",
        receiver=receiver,
        messages=dropped.messages,
        bytes=dropped.bytes,
    )
    return {"receiver": receiver, **dropped._asdict()}


def spooled_rows(node: Node, receiver: str, after: int, limit: int) -> list[dict[str, Any]]:
    """See :meth:`ildm.admin.view.NodeView.spooled`; in a thread."""
    custody = node.custody
    names = [] if custody is None else consumers_of(custody.spool, receiver)
    if custody is None or not names:
        raise UnknownError(f"the spool has nothing for {receiver}")
    if receiver.startswith("plugin/"):
        raise AdminError(f"{receiver}: what an algorithm keeps is in a form of its own")
    rows = [message_row(found) for found in read_waiting(node.config.spool_directory, names, after, limit)]
    for row in rows:
        row["since"] = custody.spool.shown(row["since"])
        if row["expires_at"] is not None:
            row["expires_at"] = node.calendar.shown(row["expires_at"])
    return rows


def message_row(found: Found) -> dict[str, Any]:
    """One message of the spool."""
    packet = decode(found.frame, Version.V5)
    assert isinstance(packet, Publish)
    identity = found.identity
    return {
        "lsn": found.lsn,
        "place": found.place,
        "topic": packet.topic,
        "qos": found.qos,
        "retain": packet.retain,
        "since": found.since,
        "expires_at": None if found.expires == NEVER else found.expires,
        "origin": None if identity is None else identity.origin,
        "number": None if identity is None else identity.number + found.place,
        "size": len(found.frame),
        "properties": sorted(each.name.lower() for each in packet.properties),
        "payload": base64.b64encode(packet.payload).decode(),
    }

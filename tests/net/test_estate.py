"""Clients that a process before has left, and that cannot be served."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from ildm.config import parse_config
from ildm.mqtt import Connect
from ildm.net.handover.estate import Estate, Half, Left
from ildm.net.run import NodeServer
from tests.support.ports import free_port

BROKER = "127.0.0.1:1"
FIXED = {
    "client_id": "c",
    "peer": "",
    "listener": "",
    "version": 4,
    "opened": [0.0, 0.0],
    "connect": Connect(client_id="c").encode().decode("latin-1"),
    "keep_alive": 0,
    "receive_maximum": None,
    "broker": BROKER,
}
KEPT = ["c", 600, {"t": 1}, []]
STATE = {"messages": [0, 0]}


@pytest.mark.parametrize(
    ("fixed", "kept", "state"),
    [
        ("no JSON", KEPT, STATE),
        ({**FIXED, "version": 7}, KEPT, STATE),
        ({**FIXED, "connect": "\xe0\x00"}, KEPT, STATE),
        ({**FIXED, "broker": ""}, KEPT, STATE),
        (FIXED, ["c"], STATE),
        (FIXED, KEPT, {}),
    ],
)
async def test_a_client_whose_description_makes_no_sense_is_closed(
    tmp_path: Path, fixed: Any, kept: list[Any], state: dict[str, Any]
) -> None:
    """Its session goes on without a connection, and others are served."""
    config = parse_config(
        {
            "state_dir": "state",
            "listen": f"127.0.0.1:{free_port()}",
            "broker": {"address": BROKER},
            "link": {"listen": None},
            "algorithm": "sf",
            "limits": {"drain_timeout": 0.1},
        },
        "test",
        tmp_path,
    )
    pairs = [socket.socketpair() for _ in range(4)]
    halves = [Half(own.detach(), own.family, b"") for own, _ in pairs]
    estate = Estate(time.monotonic())
    text = fixed if isinstance(fixed, str) else json.dumps(fixed)
    estate.clients.append(Left(text, kept, state, halves[0], halves[1]))
    estate.clients.append(Left(json.dumps({**FIXED, "client_id": "d"}), ["d", *KEPT[1:]], STATE, *halves[2:]))
    server = NodeServer(config, estate=estate)
    await server.start()
    try:
        assert [session.client_id for session in server.node.sessions] == ["d"]
        counters = server.node.counters
        assert (counters["clients_handed_over"], counters["clients_sent_away"]) == (1, 1)
        for _, other in pairs[:2]:
            assert other.recv(1) == b""
        clients = server.node.clients
        clients.check()
        record = clients.records.get("c")
        if kept is KEPT:
            assert record is not None
            assert record.session is None
            assert clients.interest.maximum == {"t": 1}
        else:
            assert record is None
    finally:
        await server.stop()
        for _, other in pairs:
            other.close()

"""Names that would command a terminal, or forge a line of the log: in logs, tables and the shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Iterator

import pytest

from ildm.testing.live.brokers import Amqtt
from ildm.testing.live.client import PahoClient
from ildm.testing.live.node import NodeProcess
from tests.net.transport.conftest import running, until
from tests.support.programs import missing

HOSTILE = "a\x1b[2J\x1b]0;title\x07b\r\n2026-01-01 [error] forged\u009b31m\u202e\u2028c"
"""Clears the screen, sets the title, begins a line of its own, colours by one character, turns text round."""
ESCAPED = "a\\x1b[2J\\x1b]0;title\\x07b\\r\\n2026-01-01 [error] forged\\x9b31m\\u202e\\u2028c"
TABLES = ("clients", "subscriptions", "retained", "client bans", "events", "status", "neighbor list")


@pytest.fixture(scope="module", params=["console", "json"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """Its broker takes any text; Mosquitto would refuse these before anybody sees them."""
    if reason := Amqtt.available():
        missing(reason)
    extra = {"log": {"level": "debug", "format": request.param}}
    with running(Amqtt(tmp_path_factory.mktemp("amqtt"))) as broker:
        directory = tmp_path_factory.mktemp("node")
        with running(NodeProcess(directory, broker.address, "pf", extra=extra)) as node:
            yield node


def commanding(text: str) -> set[str]:
    """Characters that are not for people, but for a terminal; ends of lines are ours."""
    return {c for c in text if c != "\n" and not c.isprintable() and unicodedata.category(c) != "Zs"}


def test_hostile_names_are_escaped_wherever_they_are_shown(node: NodeProcess) -> None:
    with PahoClient(node.address, HOSTILE, login=(HOSTILE, "x")) as client:
        assert client.subscribe((HOSTILE, 0)) == [0]
        client.publish(HOSTILE, HOSTILE.encode(), qos=1, retain=True)
        node.admin.ban("user", HOSTILE, 3600)
        until(lambda: node.admin.retained("#").items)
        command = [sys.executable, "-m", "ildm", "shell", "--socket", node.admin_socket]
        shown = subprocess.run(
            [*command, "-c", "; ".join(TABLES)],
            capture_output=True,
            timeout=300,
            check=True,
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        )
    out = shown.stdout.decode()
    assert commanding(out) == set()
    for table in ("clients", "subscriptions, of whom", "retained, and its payload", "bans"):
        assert ESCAPED in out, table
        out = out.replace(ESCAPED, "", 1)
    for table in TABLES:
        shown = subprocess.run([*command, "--json", "-c", table], capture_output=True, timeout=60, check=True)
        assert commanding(shown.stdout.decode()) == set()
        json.loads(shown.stdout)
    until(lambda: "client disconnected" in node.log())
    log = node.log_path.read_bytes().decode()
    assert commanding(log) == set()
    lines = [line for line in log.splitlines() if "title" in line]
    assert lines
    if node.document["log"]["format"] == "json":
        assert {json.loads(line)["client_id"] for line in lines if "client_id" in line} == {HOSTILE}
    else:  # values with a backslash are in quotes, with two
        assert all(ESCAPED in line.replace("\\\\", "\\") for line in lines)
    assert not [line for line in log.splitlines() if line.startswith("2026-01-01 [error]")]

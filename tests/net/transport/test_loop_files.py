"""The thread of the event loop opens no file that may keep it waiting: watched in a node at work."""

from __future__ import annotations

import json
import os
import shutil
import textwrap
import urllib.request
from pathlib import Path

import pytest

from ildm.admin.client import AdminClient
from ildm.admin.view import AdminError
from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.ports import free_port
from tests.net.transport.client import connected, echoes
from tests.net.transport.conftest import running, until
from tests.net.transport.pki import Pki

GUARD = textwrap.dedent("""
    import asyncio, json, os, sys, threading

    SEEN = os.open("PATH OF SEEN", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    CHANGES = "listdir scandir remove rename mkdir chmod truncate"
    EVENTS = {"open", *(f"os.{name}" for name in CHANGES.split())}

    def note(event, path):
        if threading.current_thread() is not threading.main_thread():
            return
        if asyncio._get_running_loop() is None:
            return
        stack, frame = [], sys._getframe(2)
        while frame is not None:
            stack.append(frame.f_code.co_filename + ":" + frame.f_code.co_name)
            frame = frame.f_back
        os.write(SEEN, json.dumps([event, str(path), stack]).encode() + b"\\n")

    sys.addaudithook(lambda event, args: note(event, args[0] if args else "") if event in EVENTS else None)

    def watched(name):
        inner = getattr(os, name)
        def call(path, *args, **named):
            note(name, path)
            return inner(path, *args, **named)
        setattr(os, name, call)

    for name in ("stat", "lstat", "access", "statvfs"):
        watched(name)
""")

ALLOWED = {
    "importlib": "a module that is imported when it is first needed is of the installation",
    "/proc/": "no disk is behind it",
    "state/spool/": "a write in mode process is what makes a message durable; spool.mode power has a thread",
    "admin.sock": "the socket of the node's own directory is made and removed",
}


def test_the_loop_touches_no_file(mosquitto: Mosquitto, pki: Pki, tmp_path: Path) -> None:
    looks = tmp_path / "looks"
    looks.mkdir()
    seen = tmp_path / "seen"
    (looks / "sitecustomize.py").write_text(GUARD.replace("PATH OF SEEN", str(seen)))
    used = {name: str(tmp_path / f"used.{name}") for name in ("cert", "key")}
    first = pki.server("first")
    for name, path in used.items():
        shutil.copy(first[name], path)
    port, metrics, pages = free_port(), free_port(), free_port()
    secret = tmp_path / "secret"
    secret.write_text("a secret that is long enough\n")
    secret.chmod(0o600)
    node = NodeProcess(
        tmp_path / "node",
        mosquitto.address,
        "pf",
        python_path=looks,
        link={"secret_file": str(secret)},
        extra={
            "listeners": [{"url": f"mqtts://127.0.0.1:{port}", "tls": {**used, "watch": 0.05}}],
            "metrics": {"listen": f"127.0.0.1:{metrics}"},
            "dashboard": {"listen": f"127.0.0.1:{pages}"},
            "spool": {"segment_bytes": 65536},
        },
    )
    with running(node):
        begun = seen.read_text().count("\n")
        assert begun, "the guard sees what is opened at the start"
        operate(node, port, pki, used)
        for url in (f"http://127.0.0.1:{metrics}/metrics", f"http://127.0.0.1:{pages}/"):
            with urllib.request.urlopen(url, timeout=60) as answer:
                assert answer.read()
        touched = [json.loads(line) for line in seen.read_text().splitlines()[begun:]]
    wrong = [each for each in touched if not any(part in " ".join([each[1], *each[2]]) for part in ALLOWED)]
    assert wrong == []


def operate(node: NodeProcess, port: int, pki: Pki, used: dict[str, str]) -> None:
    """Renew certificates, reload, and ask for all that an administrator may."""
    client = AdminClient(node.admin_socket)
    with connected("localhost", port, tls=pki.trusting()) as mine:
        echoes(mine)
        second = pki.server("second")
        for name, path in used.items():
            shutil.copy(second[name], path)
        until(lambda: client.status()["counters"].get("certificates_renewed", 0) > 0)
        client.reload()
        client.reload(True)
        node.document["limits"]["clients"] = 7
        node.document["log"]["level"] = "info"
        node.command()  # which writes the file
        assert client.reload()["changes"]
        secret = Path(node.document["link"]["secret_file"])
        secret.unlink()
        os.mkfifo(secret)
        with pytest.raises(AdminError, match="it is no regular file"):
            client.reload()
        neighbor = client.add_neighbor("127.0.0.1:9")
        client.remove_neighbor(neighbor["address"])
        client.ban("client", "nobody", 60)
        client.lift_ban("client", "nobody")
        client.reload_plugins()
        client.set_log_level("warning")
        client.internals()
        client.rules()
        client.subscriptions()
        client.algorithm()
        client.follow("a/b")
        client.spool()
        client.neighbors()
        client.clients()
        client.retained()
        client.events()
        client.health()
        echoes(mine)

"""``ildm pub`` and ``ildm sub`` over each transport, and what they say when it cannot be."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ildm.cli import main
from ildm.testing.live.ports import free_port
from tests.net.transport.conftest import StartNode
from tests.net.transport.pki import Pki

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Carries a command out: its status, what it printed, and what it complained of."""

    def carry_out(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ildm", *words])
        status = main()
        return status, *capfd.readouterr()

    return carry_out


def test_there_and_back_over_each_transport(
    start_node: StartNode, pki: Pki, tmp_path: Path, run: Run
) -> None:
    ports = {scheme: free_port() for scheme in ("mqtts", "ws", "wss")}
    demanding = free_port()
    shown = pki.server()
    listeners = [
        {"url": f"{scheme}://127.0.0.1:{port}", "tls": None if scheme == "ws" else shown}
        for scheme, port in ports.items()
    ]
    strict = {**shown, "ca": str(pki.ca), "verify": "require"}
    listeners.append({"url": f"mqtts://127.0.0.1:{demanding}", "tls": strict})
    listeners.append({"url": f"unix:{tmp_path}/s"})
    start_node(listeners=listeners)
    trusted = ("--cafile", str(pki.ca))
    ways = {
        f"mqtts://localhost:{ports['mqtts']}": trusted,
        f"ws://localhost:{ports['ws']}": (),
        f"wss://localhost:{ports['wss']}/mqtt": trusted,
        f"unix:{tmp_path}/s": (),
    }
    for number, (url, more) in enumerate(ways.items()):
        topic = f"tool/{number}"
        assert run("pub", "--url", url, *more, "-t", topic, "-m", url, "-r", "-q", "1") == (0, "", "")
        assert run("sub", "-L", url, *more, "-t", topic, "-C", "1", "-W", "30") == (0, f"{topic} {url}\n", "")

    own = pki.issue("tool")
    url = f"mqtts://localhost:{demanding}"
    pair = ("--cert", own["cert"], "--key", own["key"])
    assert run("pub", "-L", url, *trusted, *pair, "-t", "tool/own", "-m", "x", "-q", "1") == (0, "", "")
    status, _, complaint = run("pub", "-L", url, *trusted, "-t", "tool/own", "-m", "x", "-q", "1")
    assert status == 1
    assert url in complaint

    other = Pki(tmp_path / "other", "other")
    for url in (f"mqtts://localhost:{ports['mqtts']}", f"wss://localhost:{ports['wss']}/mqtt"):
        status, _, complaint = run("pub", "-L", url, "--cafile", str(other.ca), "-t", "a", "-m", "x")
        assert status == 1
        assert complaint.startswith(f"ildm: cannot connect to {url}: its certificate is not accepted: ")
    status, _, complaint = run("pub", "-L", f"ws://localhost:{ports['ws']}/elsewhere", "-t", "a", "-m", "x")
    assert status == 1
    assert f":{ports['ws']}/elsewhere: websocket handshake error" in complaint


WRONG = {
    "-L http://localhost:1": "--url: 'http://localhost:1': expected one of mqtt, mqtts, ws, wss, unix",
    "-L mqtts://localhost:1/x": "--url: 'mqtts://localhost:1/x': expected HOST:PORT",
    "-L ws://localhost:1 -p 2": "--url says host and port: leave out -h and -p",
    "--cafile CA": "--cafile, --cert and --key need --url mqtts://... or wss://...",
    "-L mqtts://localhost:1 --cafile NONE": "NONE: No such file or directory",
    "-L mqtts://localhost:1 --cafile KEY": "KEY: no usable PEM file",
    "-L mqtts://localhost:1 --cert CERT": "--cert and --key belong together",
    "-L mqtts://localhost:1 --cert CERT --key CERT": "CERT, CERT: no usable PEM file",
}


@pytest.mark.parametrize("words", WRONG)
def test_what_cannot_be_is_said_before_connecting(words: str, pki: Pki, tmp_path: Path, run: Run) -> None:
    own = pki.issue("alone")
    files = {"CA": str(pki.ca), "NONE": f"{tmp_path}/none", "KEY": own["key"], "CERT": own["cert"]}

    def put(text: str) -> str:
        return re.sub("|".join(files), lambda name: files[name[0]], text)

    status, out, complaint = run("pub", *put(words).split(), "-t", "a", "-m", "x")
    assert status in (1, 2)
    assert out == ""
    assert put(WRONG[words]) in complaint

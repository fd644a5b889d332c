from __future__ import annotations

import contextlib
import io
import os
import queue
import re
import select
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, cast
from urllib.request import urlopen

import pytest
from rich.console import Console, ConsoleDimensions
from rich.text import Text

from ildm import compiled
from ildm.cli import terminal
from ildm.demo import live, processes, proof, run, sites, traffic
from ildm.demo.processes import Child, DemoError, answers_mqtt, free_ports, hidden_ports, wait_for
from ildm.demo.sites import NAMES, Site, SitesInRow
from tests.support.brokers import Broker, PahoClient
from tests.support.ports import free_port

PROJECT = Path(__file__).parents[2]
ILDM = [sys.executable, "-m", "ildm"]
needs_mosquitto = pytest.mark.skipif(sites.mosquitto() is None, reason="needs Mosquitto")


@needs_mosquitto
@pytest.mark.parametrize("algorithm", ["sf", "pf"])
def test_the_proof(algorithm: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [*ILDM, "demo", "--once", "--broker", "mosquitto", "--algorithm", algorithm],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    assert ended.stdout.count("✓") == 9 + 3 + 4 + (2 if algorithm == "sf" else 1)
    assert "✗" not in ended.stdout
    assert list(tmp_path.iterdir()) == []


@needs_mosquitto
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_the_demo(number: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen(
        [*ILDM, "demo", "--broker", "mosquitto"],
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        page = None
        for line in demo.stdout:
            page = page or re.search(r"http://\S+/#token=\S+", line)
            if line.startswith("Ctrl-C"):
                break
        assert page is not None
        with urlopen(page[0].partition("#")[0]) as answer:
            assert "ILDM" in answer.read().decode()
        children = [os.pidfd_open(pid) for pid in _children(demo.pid)]
        demo.send_signal(number)
        for child in children:
            assert select.select([child], [], [], 60)[0], "a child lives on"
            os.close(child)
        _, err = demo.communicate()
    assert len(children) == 2 * len(NAMES)
    assert err == ""
    if number != signal.SIGKILL:
        assert demo.returncode == (143 if number == signal.SIGTERM else 0)
        assert list(tmp_path.iterdir()) == []


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue  # ended while we looked
            if parent == pid:
                found.append(int(entry.name))
    return found


def test_a_child_that_ends_early_shows_its_last_words(tmp_path: Path) -> None:
    child = Child("node", [sys.executable, "-c", "print('no such port'); exit(3)"], tmp_path / "log")
    with pytest.raises(DemoError, match=r"^node ended with status 3\n  \| no such port$"):
        wait_for("nothing", lambda: False, [child], 60)
    child.end(0)


def test_waiting_has_a_bound(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match=r"^links: not within 0 s"):
        wait_for("links", lambda: False, [], 0)


def test_a_child_that_will_not_end(tmp_path: Path) -> None:
    stubborn = "from signal import *; signal(SIGTERM, SIG_IGN); print('on', flush=True); pause()"
    child = Child("node", [sys.executable, "-c", stubborn], tmp_path / "log")
    wait_for("its start", lambda: "on" in child.last_lines(), [child], 60)
    child.ask_to_end()
    child.end(0.01)
    assert not child.running


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="node: cannot start /nonexistent: No such file"):
        Child("node", ["/nonexistent"], tmp_path / "log")


def test_ports_in_use_are_left_out() -> None:
    with socket.create_server((processes.LOOPBACK, 0)) as taken:
        first = taken.getsockname()[1]
        found = free_ports(first, 3)
        assert first not in found
        assert len(set(found)) == 3
        assert sorted(found) == found
    hidden = hidden_ports(6, found)
    assert len(set(hidden)) == 6


def test_a_taken_port_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def refuse(*_: object) -> None:
        raise DemoError("far enough")

    with socket.create_server((processes.LOOPBACK, 0)) as taken:
        monkeypatch.setattr(sites, "FIRST_PORT", taken.getsockname()[1])
        monkeypatch.setattr(sites, "Child", refuse)
        monkeypatch.setattr(sites, "_makes", lambda make: ["amqtt"] * 3)
        row = SitesInRow("sf", "auto", said.append)
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        with pytest.raises(DemoError, match="far enough"), row:
            row.start()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert said[0].startswith(
        f"Port {sites.FIRST_PORT} is in use; clients of site-1 connect to {row.sites[0].port}"
    )


@pytest.mark.parametrize("make", ["auto", "mosquitto", "amqtt", "mixed"])
def test_a_broker_that_is_not_there(make: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites, "mosquitto", lambda: None)
    monkeypatch.setattr(sites.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DemoError, match="found: "):
        SitesInRow("sf", make, print)


def test_make_demo_does_not_wait_for_the_compiler() -> None:
    """It starts what is there; all else that compiles is asked for by name."""
    plain = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKEOVERRIDES")}
    for target, waits in (("demo", False), ("setup", True)):
        told = subprocess.run(
            ["make", "--dry-run", target], cwd=PROJECT, env=plain, capture_output=True, text=True, check=True
        ).stdout
        assert (compiled.COMPILER.name in told) is waits
        assert ("ildm demo" in told) is not waits


@pytest.mark.parametrize(
    ("used", "switch", "tree", "told"),
    [
        (True, None, True, None),
        (False, "0", True, None),
        (False, None, True, "They run interpreted. For the fast form: make compiled"),
        (False, None, False, f"They run interpreted. For the fast form: {compiled.REINSTALL}"),
    ],
)
def test_nodes_that_run_interpreted_are_told_with_the_way_to_the_fast_form(
    used: bool,
    switch: str | None,
    tree: bool,
    told: str | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    finder = compiled.Finder(tmp_path, switch)
    monkeypatch.setattr(finder, "is_used", lambda: used)
    monkeypatch.setattr(compiled, "_finder", finder)
    if not tree:
        monkeypatch.setattr(compiled, "COMPILER", tmp_path / "compile.py")
    assert sites.fast_form() == told


def test_the_choice_of_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites.importlib.util, "find_spec", lambda name: object())
    for found, make, makes in [
        ("/usr/sbin/mosquitto", "auto", ["mosquitto"] * 3),
        (None, "auto", ["amqtt"] * 3),
        ("/usr/sbin/mosquitto", "mixed", ["mosquitto", "amqtt", "mosquitto"]),
    ]:
        monkeypatch.setattr(sites, "mosquitto", lambda found=found: found)
        assert sites._makes(make) == makes


def test_whether_a_broker_answers(mosquitto: Broker) -> None:
    assert answers_mqtt(mosquitto.port)
    assert not answers_mqtt(free_port())


def test_what_should_cross() -> None:
    sent = [message for name in NAMES for message in proof.messages(name)]

    def carried(algorithm: str) -> list[int]:
        return [sum(proof.crosses(m, route, algorithm) for m in sent) for route in proof.routes()]

    each = len(proof.messages("site-1"))
    assert carried("pf") == [each, 2 * each, 2 * each, each]
    # site-1 -> site-2: all but the two quiet ones, for site-2 wants demo/#
    # site-2 -> site-1: six temperatures, the retained and the last one, of two publishers
    # site-2 -> site-3: all of site-1 but the quiet ones; of site-2 the retained and the last one
    # site-3 -> site-2: as site-1 -> site-2
    assert carried("sf") == [each - 2, 16, each - 2 + 2, each - 2]


def fake_row(tmp_path: Path) -> SitesInRow:
    row = SitesInRow.__new__(SitesInRow)
    row.algorithm = "sf"
    row.sites = [Site(name, "amqtt", 1883 + i, 0, 0, tmp_path / name) for i, name in enumerate(NAMES)]
    return row


def test_the_report_of_a_failure(tmp_path: Path) -> None:
    row = fake_row(tmp_path)
    sent = [message for name in NAMES for message in proof.messages(name)]
    subscribers = [proof.Subscriber(name, proof.WANTED[name]) for name in NAMES]
    for subscriber in subscribers:
        subscriber.received.update(proof._expected(sent, subscriber.site))
    late = [proof.Subscriber(name, (), received=Counter(NAMES)) for name in NAMES]
    carried = Counter({r: sum(proof.crosses(m, r, "sf") for m in sent) for r in proof.routes()})

    def report() -> tuple[bool, str]:
        stream = io.StringIO()
        good = proof._report(terminal.make_console(stream), row, sent, subscribers, late, carried, 1.0)
        return good, stream.getvalue()

    assert report()[0]
    subscribers[2].received["site-1"] += 1  # a duplicate
    good, text = report()
    assert not good
    assert "10/9 ✗" in text
    assert "not everything crossed" in text
    subscribers[2].received["site-1"] -= 1
    carried[proof.routes()[0]] += 1  # a transfer nobody wanted
    good, text = report()
    assert not good
    assert "11/10 ✗" in text


@pytest.mark.parametrize(("width", "height"), [(60, 24), (80, 24), (120, 40), (120, 20), (46, 24)])
def test_the_picture(width: int, height: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    row = fake_row(tmp_path)
    round_number = 0

    def status(site: Site) -> dict[str, object] | None:
        if site.name == "site-3":
            return None
        return {
            "status": "running",
            "broker": {"connected": site.name == "site-1"},
            "clients": 7,
            "counters": {"messages_in": 1000 * round_number, "transferred_out": 0},
        }

    def neighbors(site: Site) -> dict[str, dict[str, object]]:
        found = [b if a == site.name else a for a, b in pairwise(NAMES) if site.name in (a, b)]
        return {name: {"state": "active", "transferred_out": 50 * round_number} for name in found}

    monkeypatch.setattr(live, "status", status)
    monkeypatch.setattr(live, "neighbors", neighbors)
    monkeypatch.setattr(live, "described", lambda make: "amqtt 1.0")
    monkeypatch.setattr(live, "spelled", lambda: "ildm")
    picture = live.Picture(row)
    round_number = 1
    picture.update()
    picture.before.moment, picture.now.moment = 0.0, 2.0
    stream = io.StringIO()
    console = terminal.make_console(stream)
    console.width = width
    console.print(picture.render(width, height))
    text = stream.getvalue()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert len(text.splitlines()) <= height
    for part in (
        "site-1",
        "demo/clock goes from site-1",
        "1885",
        "500/s",
        "25/s",
        "active",
        *(["no answer"] if width >= live.LINE else []),
        "sub -p 1885 -t 'demo/#'",
        "Ctrl-C",
    ):
        assert part in text
    assert ("1,000" in text) is (width == 120 and height == 40)
    assert re.match(r"site-1: 7 clients, 500/s in, 0/s out; .*site-2 - site-3 active, 25/s", picture.line())


@pytest.mark.parametrize(
    ("program", "path", "text"),
    [
        ("/somewhere/ildm/__main__.py", "", "{python} -m ildm"),
        ("venv/bin/ildm", "", "venv/bin/ildm"),
        ("venv/bin/ildm", "venv/bin", "ildm"),
    ],
)
def test_how_the_program_is_spelt(
    program: str, path: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "ildm").touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [program])
    monkeypatch.setenv("PATH", str(tmp_path / path) if path else "/nonexistent")
    assert live.spelled() == text.format(python=sys.executable)


@needs_mosquitto
def test_messages_cross_without_anybody_else() -> None:
    with subprocess.Popen(
        [*ILDM, "demo", "--broker", "mosquitto"],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        found = any(re.search("site-2 - site-3 active, [1-9]", line) for line in demo.stdout)
        demo.send_signal(signal.SIGINT)
    assert found


def test_traffic_goes_on_when_its_broker_is_back(
    broker_factory: Callable[..., Broker], tmp_path: Path
) -> None:
    broker = broker_factory("mosquitto")
    row = fake_row(tmp_path)
    for site in row.sites:
        site.port = broker.port
    flow = traffic.Traffic(row)
    try:
        for _ in range(2):
            with PahoClient(broker.address) as watch:
                watch.subscribe((live.TOPIC, 0))
                wait_for("a message", lambda watch=watch: came(watch, flow), [], 60)
            broker.kill()
            for _ in range(10):
                flow.work(0.02)
            broker.restart()
    finally:
        flow.close()


def came(watch: PahoClient, flow: traffic.Traffic) -> bool:
    flow.work(0.02)
    with contextlib.suppress(queue.Empty):
        return watch.receive(0.02).topic == live.TOPIC
    return False


def test_a_new_size_of_the_terminal_is_drawn_at_once_on_a_clear_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = fake_row(tmp_path)
    row.check = lambda: None  # type: ignore[method-assign]
    drawn: list[tuple[int, int]] = []
    screen = Console(file=io.StringIO(), force_terminal=True, width=100, height=40)

    class Steps:
        done = 0

        def work(self, _: float) -> None:
            self.done += 1
            if self.done == 3:
                screen.size = ConsoleDimensions(60, 20)  # type: ignore[assignment]
            elif self.done == 6:
                raise KeyboardInterrupt

    class Drawn:
        def render(self, width: int, height: int) -> Text:
            drawn.append((width, height))
            return Text(f"{width}x{height}")

        def update(self) -> None: ...

    monkeypatch.setattr(run, "DRAW_EVERY", 3600)
    with pytest.raises(KeyboardInterrupt):
        run._draw(row, screen, cast("Any", Drawn()), cast("Any", Steps()))
    assert drawn == [(100, 40), (60, 20)]
    assert "\x1b[2J" in cast("io.StringIO", screen.file).getvalue()

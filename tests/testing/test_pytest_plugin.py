"""The fixtures for tests of plugins in real nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ildm import compiled
from ildm.testing.live.brokers import Broker
from ildm.testing.live.client import PahoClient, RefusedError
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.process import ProcessError

Connect = Callable[..., PahoClient]
Start = Callable[..., NodeProcess]
PLUGIN = ("-p", "ildm.pytest_plugin", "-p", "no:cacheprovider")


def pytest_command(directory: Path, test: str) -> list[str | Path]:
    file = directory / "test_it.py"
    file.write_text(test)
    return [sys.executable, "-m", "pytest", *PLUGIN, "-rs", file]


def environment(**changes: str) -> dict[str, str]:
    """With this plugin alone, whether the project is installed or not."""
    kept = {name: value for name, value in os.environ.items() if name not in {"CI", "ILDM_REQUIRE_ALL"}}
    return {**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **changes}


def run_pytest(directory: Path, test: str, **changes: str) -> str:
    done = subprocess.run(
        pytest_command(directory, test),
        env=environment(**changes),
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_nodes_before_brokers(ildm_node: Start, ildm_client: Connect) -> None:
    a = ildm_node("sf")
    b = ildm_node({"name": "sf"}, neighbors=[a], name="far")
    assert (a.node_id, b.node_id) == ("node-1", "far")
    publisher, subscriber = ildm_client(a), ildm_client(b, "me")
    assert subscriber.subscribe(("t/#", 1)) == [1]
    a.wait_until(lambda: a.admin.neighbors().items[0]["interest"] == 1, "no interest of the far node")
    assert publisher.publish("t/x", b"hello", 1) == 0
    assert subscriber.receive().payload == b"hello"
    assert b.admin.clients().items[0]["client_id"] == "me"


def test_a_node_that_only_relays_and_its_log(ildm_node: Start, ildm_client: Connect) -> None:
    node = ildm_node(config={"log": {"level": "debug"}})
    started = node.wait_for("node started")
    assert (started["level"], started["form"]) == ("info", compiled.form())
    ildm_client(node).publish("t", b"x")
    node.ask_to_end()
    assert node.wait_for("node stopped")
    with pytest.raises(ProcessError, match="has ended"):
        node.wait_for("something else")


@pytest.mark.parametrize("ildm_broker", ["mosquitto", "amqtt"], indirect=True)
def test_a_broker_of_a_make(ildm_broker: Broker, ildm_node: Start, ildm_client: Connect) -> None:
    node = ildm_node(broker=ildm_broker)
    here, there = ildm_client(ildm_broker), ildm_client(node.address)
    here.subscribe(("kit", 0))
    there.publish("kit", b"through the node")
    assert here.receive().payload == b"through the node"


def test_what_a_client_is_told(
    ildm_node: Start, ildm_client: Connect, ildm_broker: Broker, mosquitto: Broker
) -> None:
    node = ildm_node(broker=mosquitto)
    client = ildm_client(node, level=5, user_properties=[("a", "b")])
    assert client.subscribe(("t", 1), user_properties=[("c", "d")]) == [1]
    assert client.publish("nobody/wants/this", b"x", 1) == 0x10  # no matching subscribers
    with pytest.raises(ValueError, match="MQTT 5"):
        ildm_client(node, user_properties=[("a", "b")])
    with pytest.raises(RefusedError):
        ildm_client(ildm_broker, level=5)  # the embedded broker has MQTT 3.1.1 alone


def test_a_run_that_has_nothing_to_do_with_it_is_left_alone(tmp_path: Path) -> None:
    """No module of ours is imported, nor are those it needs."""
    told = run_pytest(
        tmp_path,
        """
import sys

def test_nothing():
    ours = {name for name in sys.modules if name.split(".")[0] in ("ildm", "paho", "pydantic", "yaml")}
    assert ours == {"ildm", "ildm.compiled", "ildm.pytest_plugin"}
""",
    )
    assert "1 passed" in told, told


MISSING = """
import pytest

@pytest.mark.parametrize("ildm_broker", ["moquette"], indirect=True)
def test_moquette(ildm_broker):
    pass
"""


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [({}, "1 skipped"), ({"ILDM_REQUIRE_ALL": "1"}, "1 error"), ({"CI": "true"}, "1 error")],
)
def test_a_missing_broker_skips_or_fails(tmp_path: Path, changes: dict[str, str], outcome: str) -> None:
    told = run_pytest(tmp_path, MISSING, ILDM_MOQUETTE="/nowhere", PATH=os.environ["PATH"], **changes)
    assert outcome in told, told
    assert "Moquette" in told


def test_nothing_outlives_a_killed_run(tmp_path: Path) -> None:
    """Not even SIGKILL leaves a node or its broker behind."""
    running = subprocess.Popen(
        pytest_command(
            tmp_path,
            """
import time

def test_hangs(ildm_node, capsys):
    node = ildm_node()
    with capsys.disabled():
        print("\\npids", *node.pids(), *ildm_node.brokers.pids(), flush=True)
    time.sleep(600)
""",
        ),
        env=environment(),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    with running, running.stdout:
        line = next(line for line in running.stdout if line.startswith("pids"))
        running.send_signal(signal.SIGKILL)
    pids = [int(word) for word in line.split()[1:]]
    assert len(pids) == 2
    for pid in pids:
        # the reaper has them killed; a descriptor of a process is ready when it has ended
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            assert wait_readable(descriptor), f"{pid} is still there"
        finally:
            os.close(descriptor)


def wait_readable(descriptor: int) -> bool:
    import select

    return bool(select.select([descriptor], [], [], 20)[0])

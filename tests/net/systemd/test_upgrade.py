"""``ildm upgrade`` as a service: a real systemd follows the process that goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from ildm.admin.client import AdminClient
from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.ports import free_port
from tests.net.systemd.manager import PATIENCE, Systemd
from tests.net.systemd.unit import SERVICE, settings
from tests.net.transport.conftest import running
from tests.sites.client import Client

KEPT = {"Type", "ExecStart", "ExecReload", "Restart", "RestartSec", "TimeoutStartSec", "TimeoutStopSec"}
"""Of the unit. The rest confines the node in ways that the manager of a user cannot."""
UNIT = "ildm@site"


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    for reason in (Systemd.missing(), Mosquitto.available()):
        if reason:
            pytest.skip(reason)
    made = Systemd(tmp_path / "runtime")
    try:
        if not made.answers():
            pytest.skip(f"no systemd can run here: {made.log()[-500:]}")
        yield made
    finally:
        made.end()


def _until(condition: Callable[[], bool], systemd: Systemd) -> None:
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up, systemd.log()
        time.sleep(0.05)


def test_systemd_follows_the_process_that_goes_on(tmp_path: Path, systemd: Systemd) -> None:
    """It asks that one to reload, hears its signs of life, starts it again if it is killed, and stops it."""
    lines = [f"{key}={value}" for key, value in settings(SERVICE) if key in KEPT]
    text = "\n".join(["[Service]", *lines, "WatchdogSec=20", ""])
    text = text.replace("/usr/bin/ildm", f"{sys.executable} -m ildm").replace("/etc/ildm", str(tmp_path))
    text = text.replace("/var/lib/ildm", f"{tmp_path}/state")
    (systemd.units / "ildm@.service").write_text(text)
    port = free_port()
    with running(Mosquitto(tmp_path / "mosquitto")) as broker:
        document = {
            "state_dir": f"{tmp_path}/state/site",
            "listen": f"127.0.0.1:{port}",
            "broker": {"address": f"127.0.0.1:{broker.port}"},
            "link": {"listen": None},
            "algorithm": "sf",
        }
        (tmp_path / "site.yaml").write_text(yaml.safe_dump(document))
        systemd.do("daemon-reload")
        systemd.do("start", UNIT)
        first = int(systemd.property(UNIT, "MainPID"))

        async def upgraded() -> None:
            client = await Client.connect(("127.0.0.1", port))
            await client.subscribe(("t", 1))
            admin = AdminClient(tmp_path / "state" / "site" / "admin.sock")
            told = await asyncio.to_thread(admin.upgrade, None, PATIENCE)
            assert told["clients"] == 1
            await asyncio.to_thread(
                _until, lambda: systemd.property(UNIT, "MainPID") == str(told["pid"]), systemd
            )
            await client.publish("t", b"still here", 1)
            assert (await client.receive()).payload == b"still here"
            client.drop()

        asyncio.run(upgraded())
        second = int(systemd.property(UNIT, "MainPID"))
        assert second != first
        assert systemd.property(UNIT, "SubState") == "running"
        systemd.do("reload", UNIT)
        heard = systemd.property(UNIT, "WatchdogTimestampMonotonic")
        _until(lambda: systemd.property(UNIT, "WatchdogTimestampMonotonic") != heard, systemd)
        assert systemd.property(UNIT, "NRestarts") == "0"
        os.kill(second, signal.SIGKILL)
        _until(lambda: systemd.property(UNIT, "NRestarts") == "1", systemd)
        _until(lambda: systemd.property(UNIT, "SubState") == "running", systemd)
        systemd.do("stop", UNIT)
        assert systemd.property(UNIT, "ActiveState") == "inactive"
        assert systemd.property(UNIT, "Result") == "success"

"""The package from its installation to the end, on a copy of this machine."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ildm import __version__
from tests.debian.machine import ENVIRONMENT, Machine
from tests.support.compiled import directory as compiled_directory
from tests.support.programs import need

NOBODY = 65534
CONFIG = b"""\
listen: 127.0.0.1:1883
state_dir: /var/lib/ildm/site
broker: {address: "127.0.0.1:1884"}
algorithm: sf
"""
BROKER = b"listener 1884 127.0.0.1\nallow_anonymous true\n"
COMPLETION = """
. /usr/share/bash-completion/completions/ildm
COMP_WORDS=(ildm neighbor ''); COMP_CWORD=2
_ildm_completion ildm
printf '%s\\n' "${COMPREPLY[@]}"
"""
PLUGIN = b"""\
from ildm.api import TreeAlgorithm

class Nowhere(TreeAlgorithm):
    def route(self, topic, retain, source):
        return []
"""
ENTRY = b"[ildm.algorithms]\nnowhere = nowhere:Nowhere\n"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with Machine(tmp_path) as made:
        yield made


@contextmanager
def running(machine: Machine, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program in the background, not as root."""
    process = subprocess.Popen(machine.within(*command, user=NOBODY), env=ENVIRONMENT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def serves(machine: Machine) -> None:
    """Waits until the node does."""
    for _ in range(100):
        asked = machine.within("ildm", "health", "--config", "/etc/ildm/site.yaml")
        done = subprocess.run(asked, env=ENVIRONMENT, capture_output=True, text=True)
        if done.returncode == 0:
            return
        time.sleep(0.1)
    raise AssertionError(done.stderr)


def test_installed_used_removed_and_purged(machine: Machine, package: Path) -> None:
    mosquitto = need("mosquitto")
    compiled_directory()
    machine.write("/tmp/ildm.deb", package.read_bytes())
    machine.run("dpkg", "--install", "/tmp/ildm.deb")
    assert machine.run("ildm", "--version") == f"ildm {__version__} (compiled)\n"
    assert "remove" in machine.run("bash", "-c", COMPLETION)
    assert machine.run("dpkg", "--verify", "ildm") == ""
    assert "/etc/ildm/example.yaml: ok" in machine.run("ildm", "check", "/etc/ildm/example.yaml")

    machine.run(need("systemd-analyze"), "verify", "--man=no", "ildm@site.service", "ildm@site.socket")

    machine.write("/etc/ildm/site.yaml", CONFIG)
    machine.write("/etc/broker.conf", BROKER)
    machine.run("install", "-d", f"--owner={NOBODY}", "/var/lib/ildm/site")
    run = ("ildm", "run", "--config", "/etc/ildm/site.yaml")
    with running(machine, mosquitto, "-c", "/etc/broker.conf"), running(machine, *run) as node:
        serves(machine)
        machine.run("ildm", "pub", "-p", "1883", "-t", "door", "-m", "open", "-q", "1", "-r")
        assert machine.run("ildm", "sub", "-p", "1884", "-t", "#", "-C", "1", "-W", "20") == "door open\n"
        machine.run("ildm", "stop", "--config", "/etc/ildm/site.yaml")
        assert node.wait(30) == 0
    # all bytecode was there before, as what runs may not write here
    assert machine.run("find", "/usr/lib/ildm", "-newer", "/var/lib/ildm/site") == ""

    # plugins of the administrator are found without touching what dpkg has installed
    machine.write("/usr/local/lib/ildm/nowhere.py", PLUGIN)
    machine.write("/usr/local/lib/ildm/nowhere-1.dist-info/entry_points.txt", ENTRY)
    machine.write("/usr/local/lib/ildm/nowhere-1.dist-info/METADATA", b"Name: nowhere\nVersion: 1\n")
    assert "nowhere" in machine.run("ildm", "plugin", "list")
    machine.run("rm", "-r", "/usr/local/lib/ildm")

    machine.run("dpkg", "--remove", "ildm")
    machine.run("test", "!", "-e", "/usr/lib/ildm")
    machine.run("test", "!", "-e", "/usr/bin/ildm")
    kept = {path for path in machine.written() if path.startswith(("/etc/ildm/", "/var/lib/ildm/"))}
    assert {"/etc/ildm/example.yaml", "/etc/ildm/site.yaml"} <= kept
    assert any(path.startswith("/var/lib/ildm/site/") for path in kept)

    machine.run("dpkg", "--purge", "ildm")
    left = machine.written() - {"/etc/broker.conf"}
    # of any installation: what dpkg knows, and what its triggers work out
    usual = ("/var/lib/dpkg/", "/var/log/", "/var/cache/man/", "/var/cache/ldconfig/", "/etc/ld.so.cache")
    assert sorted(path for path in left if not path.startswith(usual) or "ildm" in path) == []

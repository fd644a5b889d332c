"""Docker Compose accepts the file, and understands it as it is meant."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.docker.files import BROKERS, COMPOSE, DOCKER, NODES, PAIR, services


def compose_command() -> list[str]:
    """``docker compose`` or, where that is not installed, ``docker-compose``."""
    plugin = ["docker", "compose"]
    if shutil.which("docker") and not subprocess.run([*plugin, "version"], capture_output=True).returncode:
        return plugin
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    reason = "Docker Compose is not installed: apt-get install --no-install-recommends docker-compose"
    if os.environ.get("CI", "").lower() not in {"", "0", "false"}:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def config(*options: str, file: Path = COMPOSE, **environment: str) -> subprocess.CompletedProcess[str]:
    """What ``config`` makes of the file, from another directory than its own."""
    return subprocess.run(
        [*compose_command(), "-f", str(file), *options],
        cwd=DOCKER.parent,
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_compose_accepts_the_file() -> None:
    result = config("--profile", "load", "config")
    assert result.returncode == 0, result.stderr
    assert "warn" not in result.stderr.lower()
    document = yaml.safe_load(result.stdout)
    assert set(document["services"]) == {*BROKERS, *NODES, "load"}
    check = document["services"]["mosquitto"]["healthcheck"]["test"]
    assert any(word.replace("$$", "$") == "$SYS/broker/version" for word in check)
    for name in NODES:
        waits = document["services"][name]["depends_on"]
        assert waits[name.removeprefix("node-")]["condition"] == "service_healthy"


def test_compose_accepts_the_pair() -> None:
    result = config("config", file=PAIR)
    assert result.returncode == 0, result.stderr
    document = yaml.safe_load(result.stdout)
    assert set(document["services"]) == set(services(PAIR))


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_the_address_clients_connect_to_can_be_chosen(address: str) -> None:
    chosen = {} if address == "127.0.0.1" else {"ILDM_PUBLISH": address}
    document = yaml.safe_load(config("config", **chosen).stdout)
    published = [str(port) for name in NODES for port in document["services"][name]["ports"]]
    assert len(published) == len(NODES)
    assert all(address in port for port in published)


def test_a_wrong_file_would_be_refused() -> None:
    result = config("-f", str(DOCKER / "nodes/mosquitto.yaml"), "config")
    assert result.returncode != 0

"""Two members of a site before one broker: what an administrator sees, and who owns the site."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from ildm.admin.view import AdminError
from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from tests.net.transport.conftest import running
from tests.support.programs import missing


class Pair:
    """Members a and b of the site ``plant``, and the node of another site, each as users run it."""

    def __init__(self, directory: Path, **site: Any) -> None:
        if reason := Mosquitto.available():
            missing(reason)
        self.directory = directory
        self.site = site
        self.serves = site.get("serve") == "all"
        self.brokers = [Mosquitto(directory / f"broker-{name}") for name in ("near", "far")]
        self.far = NodeProcess(directory / "far", self.brokers[1].address, "sf", node_id="far")
        self.a = self._member("a", None)
        self.b = self._member("b", self.a)

    def _member(self, name: str, like: NodeProcess | None) -> NodeProcess:
        site = {"id": "plant", "members": ["a", "b"], "member": name, **self.site}
        extra = {
            "state_dir": str(self.directory / "state"),
            "site": site,
            "link": {"neighbors": [self.far.link_address]},
            "log": {"level": "info"},
        }
        if like is not None:
            extra["link"]["listen"] = like.link_address
        if like is not None and not self.serves:
            extra["listen"] = like.document["listen"]
        node = NodeProcess(self.directory / name, self.brokers[0].address, "sf", node_id="plant", extra=extra)
        if like is not None:
            node.link_address = like.link_address
            node.port = node.port if self.serves else like.port
        return node

    def start(self) -> None:
        for broker in self.brokers:
            broker.start()
        self.far.start()
        self.a.start()
        self.b.launch()
        self.b.wait_for("this member stands by")
        self.far.wait_linked(self.a)

    def kill(self) -> None:
        for process in (self.b, self.a, self.far, *self.brokers):
            process.kill()

    def wait_owned_by(self, node: NodeProcess, owner: str) -> None:
        def owned() -> bool:
            status = node.status()
            return status is not None and status["pair"]["owner"] == owner

        node.wait_until(owned, f"{owner} does not own the site")


@pytest.fixture
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    made = Pair(tmp_path, **getattr(request, "param", {}))
    try:
        made.start()
        yield made
    finally:
        made.kill()


def test_a_standby_says_what_it_is_and_refuses_the_rest(pair: Pair) -> None:
    status = pair.b.admin.status()
    assert (status["status"], status["node_id"], status["listen"]) == ("standby", "plant", None)
    owned = pair.a.admin.status()["pair"]
    who = {"member": "a", "state": "owner", "owner": "a", "epoch": owned["epoch"], "spared": None}
    assert owned == {**who, "guests": 0, "unconfirmed_bytes": 0}
    pair.b.wait_until(lambda: pair.b.admin.status()["pair"]["epoch"] == owned["epoch"], "no epoch")
    assert status["pair"] | {"epoch": 0} == {**owned, "member": "b", "state": "standby", "epoch": 0}
    health = pair.b.admin.health()
    assert (health["ready"], health["problems"]) == (False, ["member b stands by: a owns the site"])
    for refused in (pair.b.admin.neighbors, pair.b.admin.clients, pair.b.admin.spool):
        with pytest.raises(AdminError, match="member b stands by: a owns the site"):
            refused()
    config = pair.b.directory / "node.yaml"
    shown = ildm("status", "--config", str(config))
    assert "standby" in shown
    assert "member b" in shown
    samples = metrics(pair.b)
    assert samples["ildm_ready"] == "0"
    assert samples["ildm_pair_state"] == "1"
    assert samples["ildm_pair_epoch"] == str(owned["epoch"])
    samples = metrics(pair.a)
    assert (samples["ildm_pair_state"], samples["ildm_pair_claims_total"]) == ("4", "1")


@pytest.mark.parametrize("end", ["kill", "stop", "term"])
def test_the_other_member_follows_and_the_former_owner_stands_by(pair: Pair, end: str) -> None:
    epoch = pair.a.admin.status()["pair"]["epoch"]
    process = pair.a.process
    assert process is not None
    number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}[end]
    os.kill(process.pid, number)
    pair.wait_owned_by(pair.b, "b")
    assert pair.b.admin.status()["pair"]["epoch"] > epoch
    pair.far.wait_linked(pair.b)
    assert process.wait(60) == (0 if end == "term" else -signal.SIGKILL)
    pair.a.kill()
    pair.a.launch()
    pair.wait_owned_by(pair.a, "b")
    assert pair.a.admin.status()["status"] == "standby"
    assert pair.b.admin.status()["counters"]["pair_claims"] == 1


@pytest.mark.parametrize("pair", [{"fence": "wait"}], indirect=True)
def test_an_owner_that_is_not_to_be_ended_is_waited_for(pair: Pair) -> None:
    process = pair.a.process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    pair.b.wait_for("the owner is silent and stays", reason="site.fence is wait")
    assert metrics(pair.b)["ildm_pair_owner_spared"] == "1"
    assert len(pair.b.admin.health()["problems"]) == 2
    os.kill(process.pid, signal.SIGCONT)
    pair.b.wait_until(lambda: pair.b.admin.status()["pair"]["spared"] is None, "still spared")
    assert pair.a.admin.status()["pair"]["state"] == "owner"


def test_a_standby_stops_when_it_is_told_to(pair: Pair) -> None:
    process = pair.b.process
    assert process is not None
    pair.b.admin.stop()
    assert process.wait(60) == 0
    assert not pair.b.admin_socket.exists()
    assert pair.a.admin.status()["pair"]["state"] == "owner"


def test_a_member_of_a_directory_that_a_plain_node_has_waits_and_says_why(tmp_path: Path) -> None:
    if reason := Mosquitto.available():
        missing(reason)
    with running(Mosquitto(tmp_path / "broker")) as broker:
        extra = {"state_dir": str(tmp_path / "state"), "log": {"level": "info"}}
        plain = NodeProcess(tmp_path / "plain", broker.address, "sf", node_id="plant", extra=extra)
        site = {"id": "plant", "members": ["a", "b"], "member": "a", "claim_after": 0.2}
        extra = {**extra, "site": site}
        member = NodeProcess(tmp_path / "member", broker.address, "sf", node_id="plant", extra=extra)
        with running(plain):
            member.launch()
            try:
                member.wait_for("the owner is silent and stays", reason="it has said no word")
                assert plain.running
                plain.stop()
                member.wait_until(partial(is_owner, member), "no owner")
            finally:
                member.kill()


def is_owner(node: NodeProcess) -> bool:
    status = node.status()
    return status is not None and status["pair"]["state"] == "owner"


def metrics(node: NodeProcess) -> dict[str, str]:
    """Without those that have labels."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(str(node.admin_socket))
        asking.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        text = b"".join(iter(lambda: asking.recv(65536), b"")).decode().partition("\r\n\r\n")[2]
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))


def ildm(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ildm", *words], check=True, capture_output=True, text=True, timeout=120
    )
    return done.stdout


def test_the_examples_are_two_members_of_one_site() -> None:
    """They differ in what a member has for itself, and in nothing else."""
    folder = Path(__file__).parents[2] / "configs"
    one, two = (yaml.safe_load((folder / f"pair-{name}.yaml").read_text()) for name in "ab")
    assert (one["site"].pop("member"), two["site"].pop("member")) == ("a", "b")
    for own in ("metrics",):
        assert one.pop(own) != two.pop(own)
    assert one == two

"""A second node that was given a copy of the first one's configuration, before the same broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from tests.net.transport.conftest import running
from tests.support.programs import missing

WHO = "another client uses this node's client id 'ildm-site-a-0' at the broker"


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_two_nodes_of_one_id_say_that_another_has_their_place_and_give_it_a_rest(
    tmp_path: Path, protocol: str
) -> None:
    """Mosquitto 2.0 hangs up without a word in either version."""
    if reason := Mosquitto.available():
        missing(reason)
    with running(Mosquitto(tmp_path / "mosquitto")) as broker:
        one, two = (
            NodeProcess(
                tmp_path / name,
                broker.address,
                "pf",
                node_id="site-a",
                extra={"broker": {"protocol": protocol, "reconnect_max": 0.5}},
            )
            for name in ("one", "two")
        )
        with running(one), running(two):
            reason = f"{WHO}: is a second node named 'site-a'?"
            for node in (one, two):
                assert node.wait_for("broker unavailable", reason=reason)["level"] == "warning"
            for node in (one, two):
                broker_now = node.admin.status()["broker"]
                assert broker_now["contested"] == reason
                answer = node.admin.health()
                assert not answer["ready"]
                assert any(WHO in problem for problem in answer["problems"])
                assert node.admin.status()["counters"]["broker_sessions_taken"] >= 1
        with running(one):  # alone it has nothing to complain of
            assert one.admin.status()["broker"]["contested"] is None
            assert one.admin.health()["ready"]

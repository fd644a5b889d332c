"""Networks between two sites as a proxy makes them, and what of a link's rate is seen there."""

from __future__ import annotations

import socket
import time

import pytest

from ildm.testing.live.ports import LOOPBACK
from ildm_bench.micro.link_rates import BURST, PAUSES, PROFILES, Network, Profile, busiest, measured, noise
from ildm_bench.testbed.delay_proxy import SEGMENT
from tests.support.brokers import Mosquitto

FREE = Profile(0.0, 0.0, 0.0, None, 1000)


def test_the_busiest_time_is_found() -> None:
    gone = [(0.0, 5), (9.9, 7), (10.0, 1), (19.0, 2), (40.0, 9)]
    assert busiest(gone) == 12
    assert busiest(gone, 9.5) == 10
    assert busiest(gone, 0.01) == 9
    assert busiest([]) == 0


def test_what_is_lost_comes_later() -> None:
    assert [Network((LOOPBACK, 1), FREE).late(9999) for _ in range(3)] == [0.0, 0.0, 0.0]
    lossy = Network((LOOPBACK, 1), FREE._replace(loss=1.0))
    assert 3 * PAUSES[0] <= lossy.late(3 * SEGMENT) <= 3 * PAUSES[1]
    jumpy = Network((LOOPBACK, 1), FREE._replace(jitter=0.5))
    assert 0.0 < jumpy.late(1) < 0.5


def test_messages_of_noise_are_the_same_each_time() -> None:
    assert noise(20) == noise(20)
    assert len({payload for _, payload in noise(20)}) == 20


def test_a_network_delays_both_ways_and_counts() -> None:
    profile = FREE._replace(delay=0.05, line=100_000.0)
    with socket.create_server((LOOPBACK, 0)) as server, Network(server.getsockname(), profile) as network:
        with socket.create_connection((LOOPBACK, network.port)) as client, server.accept()[0] as far:
            began = time.monotonic()
            client.sendall(b"x" * 5000)
            came = b""
            while len(came) < 5000:
                came += far.recv(5000)
            far.sendall(b"back")
            assert client.recv(100) == b"back"
            assert time.monotonic() - began >= 0.14  # less what the loop takes for now
        assert network.bytes == 5004
        assert sum(size for _, size in network.gone) == 5000


def test_the_networks_are_those_of_the_page() -> None:
    assert set(PROFILES) == {"geo", "lte", "thin"}
    line = PROFILES["thin"].line
    assert line is not None
    assert PROFILES["thin"].rate < line


@pytest.mark.broker
def test_a_link_with_a_rate_is_measured_beside_a_bridge(mosquitto: Mosquitto) -> None:
    profile = FREE._replace(delay=0.02, rate=20_000)
    found = measured(profile, 50, 200.0, ["readings"], 2.0)
    assert 0.5 < found.budget < 1.05 * (1 + BURST / (2 / 1.5))
    assert found.bridge["readings"] > 2 * found.link["readings"]

"""Kinds of traffic: frames known beforehand, sent and received over real brokers, a link and a bridge."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

from ildm.mqtt import Framer, Publish, Version, decode
from ildm_bench.micro import link_ways, relay, traffic_run
from ildm_bench.micro.traffic import KINDS, TIME, Frames, frames
from ildm_bench.micro.traffic_load import Load, Pace, TrafficError, _latencies
from ildm_bench.micro.traffic_run import FEW, Case, Figures, Way, measure, percentile, run_ns, table
from tests.support.brokers import Mosquitto, require_broker

TOPICS = ["a/long/topic", "b", "c/d"]


def decoded(data: bytes) -> list[Publish]:
    packets = [decode(frame, Version.V311) for frame in Framer(1 << 20).feed(data)]
    return [packet for packet in packets if isinstance(packet, Publish)]


@pytest.mark.parametrize("qos", [0, 1])
def test_frames_are_where_they_are_said_to_be(qos: int) -> None:
    made = frames(TOPICS, (8, 300), 100, qos)
    packets = decoded(made.data)
    assert [packet.topic for packet in packets] == [TOPICS[n % 3] for n in range(100)]
    assert [packet.qos for packet in packets] == [qos] * 100
    assert len({len(packet.payload) for packet in packets}) > 20
    begin = made.begin(np.arange(250))  # two and a half rounds
    for number in (0, 1, 99, 100, 249):
        start = int(begin[number]) % len(made.data)
        frame = made.data[start : int(made.ends[number % 100])]
        assert decoded(frame) == [packets[number % 100]]
        assert made.whole(int(begin[number])) == number
        assert made.whole(int(begin[number]) + len(frame) - 1) == number
        assert frame[int(made.payloads[number % 100]) :] == packets[number % 100].payload
        if qos:
            where = int(made.ids[number % 100])
            assert int.from_bytes(frame[where : where + 2], "big") == number % 100 + 1


@pytest.mark.parametrize(("first", "count"), [(0, 1), (5, 3), (99, 2), (150, 230)])
def test_a_part_goes_round_and_its_last_message_has_the_time(first: int, count: int) -> None:
    made = frames(TOPICS, (8, 300), 100, 0)
    packets = decoded(bytes(made.part(first, count, 12345)))
    assert [packet.topic for packet in packets] == [TOPICS[n % 100 % 3] for n in range(first, first + count)]
    times = [TIME.unpack_from(packet.payload)[0] for packet in packets]
    assert times == [0] * (count - 1) + [12345]


@pytest.mark.parametrize("name", KINDS)
def test_all_publishers_of_a_subscriber_send_alike(name: str) -> None:
    kind = KINDS[name]
    of_all = list(kind.publisher_frames(1))
    assert len(of_all) == kind.groups * kind.publishers
    expected = kind.subscriber_frames(1)
    for made in of_all:
        assert made.ends.tolist() == expected.ends.tolist()
        assert made.ids.tolist() == expected.ids.tolist()


def chunks(made: Frames, data: bytes, size: int) -> list[tuple[int, bytes]]:
    """Read at 1000, 2000, 3000 ns and so on."""
    return [(1000 * (n // size + 1), data[n : n + size]) for n in range(0, len(data), size)]


def test_latency_counts_until_the_end_of_the_message_was_read() -> None:
    made = frames(["topic"], (20, 20), 10, 0)
    size = len(made.data) // 10
    data = bytes(made.part(0, 4, 500) + made.part(4, 3, 700) + made.part(7, 5, 9_000_000))
    streams = [chunks(made, data, size * 4 - 1), []]
    found = _latencies(streams, made, 0, 500, 1000)
    # The fourth message ends in the second chunk, the seventh likewise; the last was due after the window.
    assert found is not None
    assert found.tolist() == [1.5, 1.3]
    gap = data[:size] + data[size + 1 :]
    assert _latencies([chunks(made, gap, 50)], made, 0, 0, 1000) is None


def test_percentiles_need_samples() -> None:
    assert percentile(np.arange(99.0), 99) is None
    assert percentile(np.arange(1, 102.0) * 1000, 50) == 51
    assert FEW[99] == 100


def test_run_ns_counts_the_work_of_a_process() -> None:
    before, used = run_ns(os.getpid()), time.process_time_ns()
    while time.process_time_ns() - used < 20_000_000:
        pass
    assert run_ns(os.getpid()) - before >= 19_000_000


@pytest.mark.broker
@pytest.mark.parametrize("rate", [2000, 0])
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("name", ["uniform", "gateway", "gateways", "fan-in", "fan-out"])
def test_all_that_is_sent_is_received(name: str, qos: int, rate: int, mosquitto: Mosquitto) -> None:
    way = Way(mosquitto.port, mosquitto.port, {"broker": mosquitto})
    found = measure(KINDS[name], qos, rate, way, 1.0, 0.1)
    assert found.lost == 0
    assert found.rate > 0
    assert found.cpu_us["broker"] > 0
    assert found.whole_us == found.cpu_us["broker"]
    assert bool(found.samples) == bool(rate)


@pytest.mark.broker
def test_thousand_devices(mosquitto: Mosquitto) -> None:
    way = Way(mosquitto.port, mosquitto.port, {"broker": mosquitto})
    found = measure(KINDS["devices"], 1, 2000, way, 0.3, 0.1)
    assert found.lost == 0
    assert found.p50_ms is not None


@pytest.mark.broker
def test_nothing_is_sent_before_its_time(mosquitto: Mosquitto) -> None:
    with Load(KINDS["gateway"], 0, 20_000, (mosquitto.port, mosquitto.port)) as load:
        until = time.monotonic() + 120
        while load.deliveries() < 6000:
            assert time.monotonic() < until
            time.sleep(0.01)
        lag_us = load.finish(0, 1).lag_us
    assert lag_us.size
    assert lag_us.min() >= 0


def test_messages_come_alone_unless_they_are_joined() -> None:
    assert [Pace().per_write(20_000, alone) for alone in (True, False)] == [1, 1]
    assert [Pace(0, 0.001).per_write(20_000, alone) for alone in (True, False)] == [20, 1]
    assert [Pace().burst(5000, alone) for alone in (True, False)] == [1, 1]
    assert [Pace(0).burst(5000, alone) for alone in (True, False)] == [1250, 20]
    assert {Pace(7).per_write(1, True), Pace(7).burst(5000, False)} == {7}


@pytest.mark.broker
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("at_once", [1, 7])
def test_a_write_has_so_many_messages(at_once: int, qos: int, mosquitto: Mosquitto) -> None:
    pace = Pace(at_once, 0.01)
    with Load(KINDS["gateways"], qos, 2000, (mosquitto.port, mosquitto.port), pace) as load:
        until = time.monotonic() + 120
        while load.deliveries() < 300:
            assert time.monotonic() < until
            time.sleep(0.01)
        received = load.finish(0, 1)
    assert received.lost == 0
    if at_once == 1:
        assert received.lag_us.size == received.sent
    else:
        assert received.sent / 7 <= received.lag_us.size < received.sent / 2


@pytest.mark.parametrize("given", ["--at-once 51", "--at-once -1", "--tick 0", "--traffic other"])
def test_options_that_cannot_be_are_refused(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    traffic_run.arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(given.split())
    assert given.split(maxsplit=1)[0] in capsys.readouterr().err


@pytest.mark.broker
def test_a_broker_that_ends_is_said(mosquitto: Mosquitto) -> None:
    with Load(KINDS["gateway"], 0, 500, (mosquitto.port, mosquitto.port)) as load:
        mosquitto.kill()
        with pytest.raises(TrafficError, match="gateway: "):
            load.finish(0, 1)


@pytest.mark.broker
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize(("way", "changed"), link_ways.ways([0.05], [0]).items())
def test_a_link_and_a_bridge(way: str, changed: link_ways.Changed, qos: int) -> None:
    require_broker("mosquitto")
    with link_ways.opened(way, "default", qos, changed) as path:
        found = measure(KINDS["gateway"], qos, 500, path, 0.3, 0.1)
    nodes = set() if way == link_ways.BRIDGE else {"near node", "far node"}
    assert set(found.cpu_us) == {"near broker", "far broker", "sender", "receiver", *nodes}
    assert found.lost == 0
    assert found.p50_ms is not None
    delay = changed.get("link", {}).get("delay", 0.0)
    assert found.p50_ms >= delay * 1e3 / 4  # what comes last before it is over waits for nothing


@pytest.mark.broker
def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_broker("mosquitto")
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    traffic_run.arguments(parser)
    out = tmp_path / "out.json"
    options = "--rounds 1 --seconds 0.2 --traffic gateway --rates 500 0 --sockets default --json"
    traffic_run.main(parser.parse_args([*options.split(), str(out)]), ["direct", "sf"], relay.opened)
    printed = capsys.readouterr().out
    assert printed.count("gateway") == 4
    rows = json.loads(out.read_text())
    assert [(row["case"], row["way"]) for row in rows] == [
        (["gateway", 0, "default", rate], way) for rate in (500, 0) for way in ("direct", "sf")
    ]
    assert all(row["rounds"][0]["lost"] == 0 for row in rows)


def figures(rate: float, whole: float) -> Figures:
    return Figures(rate, {"broker": whole}, whole, 1.0, None, 50, 0.1, 0)


def test_the_table_says_what_was_not_borne_and_what_failed() -> None:
    found: dict[Case, dict[str, list[Figures | None]]] = {
        ("gateway", 0, "nodelay", 1000): {"first": [figures(1000, 10)], "second": [figures(500, 15)]},
        ("gateway", 0, "nodelay", 0): {"first": [figures(1000, 10)], "second": [figures(500, 20)]},
        ("gateway", 1, "nodelay", 0): {"first": [None], "second": [figures(1000, 10)]},
    }
    lines = table(found).splitlines()
    assert "1,000 " in lines[1]
    assert "500*" in lines[2]
    assert " 1.50 " in lines[2]
    assert " 0.50 " in lines[4]
    assert lines[5].endswith("failed")

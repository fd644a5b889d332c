"""``ildm-bench testbed``: it says what it has started, ends on a signal, and names what is wrong."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from ildm.config import load_config
from ildm.testing.live.brokers import KINDS
from ildm_bench.testbed import cli
from ildm_bench.testbed.cli import app, show
from ildm_bench.testbed.distance import Distances
from ildm_bench.testbed.machine import abilities
from ildm_bench.testbed.spec import TestbedSpec
from ildm_bench.testbed.testbed import Testbed
from tests.bench.testbed.traces import traces
from tests.support.brokers import require_broker

PROJECT = Path(__file__).parents[3]
RUN = "import sys; from ildm_bench.testbed.cli import app; app(sys.argv[1:])"


def test_check_tells_what_the_machine_allows() -> None:
    done = CliRunner().invoke(app, ["check"])
    assert done.exit_code == 0
    lines = done.output.splitlines()
    for name in ("CPU quotas", "network namespaces", "delay and loss", "HAProxy", *KINDS):
        assert any(re.match(rf"\W*{name} +\W*(yes|no)\b", line) for line in lines), name


def test_what_is_missing_is_said_with_a_reason() -> None:
    found = abilities()
    assert [ability.name for ability in found[:4]] == [
        "CPU quotas",
        "network namespaces",
        "delay and loss",
        "HAProxy",
    ]
    assert all(ability.detail for ability in found)


def test_an_overlay_shows_regions_and_how_to_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_broker("mosquitto")
    distances = Distances.by_regions({"eu/paris": 1, "asia": 1}, 1.0, 2.0)
    spec = TestbedSpec(["mosquitto"] * 2, algorithm="stla", distances=distances)
    with Testbed(spec, tmp_path) as bed:
        show(bed)
    shown = capsys.readouterr().out
    assert re.search(r"site-0 +eu/paris-0 +127", shown)
    file = re.search(r"ildm overlay trace greeting --config (\S+)", shown)
    assert file is not None
    assert load_config(Path(file[1])).node_id == "site-0"


def test_addresses_stay_whole_in_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require_broker("mosquitto")
    distances = Distances.by_regions({"europe": 1, "south-america": 1}, 1.0, 2.0)
    spec = TestbedSpec(["mosquitto"] * 2, algorithm="octopia", distances=distances)
    monkeypatch.setattr(cli, "make_console", lambda: Console(width=80))
    with Testbed(spec, tmp_path) as bed:
        show(bed)
        addresses = [a for server in bed.servers for a in (server.address, server.broker_address)]
    words = capsys.readouterr().out.split()
    assert [word for word in words if word.startswith("127.0.0.1:")] == addresses


def test_a_region_is_named_beside_a_place_that_does_not_tell_it() -> None:
    distances = Distances(("paris", "eu-1"), (("eu",), ("eu",)), ((0.0, 1.0), (1.0, 0.0)))
    assert [distances.place(site) for site in (0, 1)] == ["paris (eu)", "eu-1"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_shows_the_sites_and_ends_on_a_signal(number: signal.Signals, tmp_path: Path) -> None:
    require_broker("mosquitto")
    options = ["--sites", "2", "--front", "none", "--isolate", "--quota", "0.3", "--directory", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-c", RUN, "up", *options],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        shown = ""
        while "Ctrl-C ends it." not in shown:
            line = running.stdout.readline()
            assert line, running.communicate()[1]
            shown += line
        address = re.search(r"site-1 +([\d.]+):(\d+) ", shown)
        assert address is not None
        assert f"ildm sub -h {address[1]} -p {address[2]} -t '#'" in shown
        assert f"directory: {tmp_path}" in shown
        running.send_signal(number)
        rest, errors = running.communicate()
    assert (running.returncode, rest, errors) == (0, "", "Starting 2 sites\nStopping\n")
    assert traces(f"ildm-bench-{running.pid}-1") == []
    assert (tmp_path / "site-1/broker/mosquitto.conf").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--pattern", "C"], "pattern: 'C' is none of A, none, low, high"),
        (["--pattern", "low", "--sites", "3"], "sites: pattern low has 5, not 3"),
        (["--brokers", "mosquitto,verne"], "brokers: 'verne' is none of"),
        (["--brokers", "mosquitto,amqtt", "--sites", "1"], "brokers: 2 makes for 1 sites"),
        (["--quota", "0"], "quota: 0 cores"),
        (["--quota", "1", "--quota-model", "half"], "quota model: 'half' is none of per-process, shared"),
        (["--node-quota", "0.1"], "give --quota, too"),
        (["--delay-matrix", "none.csv"], "none.csv: "),
        (["--delay-matrix", "configs/distance/three-regions.yaml", "--sites", "3"], "it has 12 sites, not 3"),
        (["--algorithm", "flood"], "algorithm 'flood' is not installed"),
        (["--algorithm", "sf", "--front", "none"], "algorithm: sf needs front node"),
        (["--loss", "1.5"], "loss: 1.5"),
    ],
)
def test_wrong_usage_is_named(options: list[str], said: str) -> None:
    require_broker("mosquitto")
    done = CliRunner().invoke(app, ["up", *options])
    assert said in done.output
    assert done.exit_code == 2

"""From a real load on real brokers to figures and page: `ildm-bench` as a user runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ildm_bench.measure.figures import Limit, RunFigures
from ildm_bench.measure.manifest import Manifest
from ildm_bench.testbed.spec import TestbedSpec
from ildm_bench.testbed.testbed import Testbed
from tests.support.brokers import Broker, require_broker

CONFIGS = Path(__file__).parents[2] / "configs/bench"


def ildm_bench(*arguments: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "ildm_bench.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == status, done.stderr + done.stdout
    return done


def test_load_figures_and_page(tmp_path: Path, mosquitto: Broker, java: None) -> None:
    """What Spark makes of the logs is what the generator counted; nothing is lost, nothing comes twice."""
    target = f"{mosquitto.host}:{mosquitto.port}"
    assert mosquitto.process is not None
    done = ildm_bench(
        "load",
        CONFIGS / "quick.yaml",
        "--target",
        target,
        "--pid",
        f"broker={mosquitto.process.pid}",
        "--out",
        tmp_path,
        "--label",
        "Mosquitto <&>",
    )
    (directory,) = tmp_path.glob("run=*")
    manifest = Manifest.read(directory)
    figures = RunFigures.model_validate_json((directory / "figures.json").read_text())
    assert figures.ingress == pytest.approx(manifest.summary.ingress)
    assert figures.egress == pytest.approx(manifest.summary.egress)
    assert figures.ratio == pytest.approx(manifest.summary.ratio)
    assert (figures.missing, figures.duplicates, figures.order_violations) == (0, 0, 0)
    assert figures.expected == pytest.approx(2 * figures.ingress * figures.seconds)
    assert figures.latency["latency.sent"].count > 0
    assert {use.role for use in figures.processes} == {"broker", "generator"}
    page = (directory / "report.html").read_text()
    assert "Mosquitto &lt;&amp;&gt;" in page
    assert f"Target: {target}" in page
    assert "load generator" not in page
    assert ("VOID: " in done.stderr) == (not manifest.disturbance.quiet)
    assert str(directory / "report.html") in done.stdout


def test_limit_of_two_nodes(tmp_path: Path, java: None) -> None:
    """Over a link between two real brokers; the same command once more measures nothing again."""
    require_broker("mosquitto")
    scenario = tmp_path / "two.yaml"
    scenario.write_text(
        "name: two\nduration: 2\nwarm_up: 0.4\ncool_down: 0.4\ndrain: 1\nsites: 2\ntopics:\n"
        "  - {name: a, publishers: [2, 0], subscribers: [0, 2]}\n"
        "  - {name: b, clients: latency, interval: 100, publishers: [1, 0], subscribers: [0, 1]}\n"
    )
    spec = TestbedSpec(["mosquitto", "mosquitto"], algorithm="sf", tuned=False)
    with Testbed(spec, tmp_path / "testbed") as bed:
        targets = [part for server in bed.servers for part in ("--target", server.address)]
        pids = [part for p in bed.processes for part in ("--pid", f"{p[0].role}:{p[0].site}={p[1]}")]
        options = ["--scenario", scenario, *targets, *pids, "--out", tmp_path / "limit", "--first", "50"]
        done = ildm_bench("limit", *options, "--largest", "100")
        runs = set((tmp_path / "limit").glob("run=*"))
        limit = Limit.model_validate_json((tmp_path / "limit/limit.json").read_text())
        assert limit.interval_ms is not None
        assert limit.figures is not None
        assert limit.figures.missing == 0
        assert {use.role for use in limit.figures.processes} == {"broker", "node", "generator"}
        assert "Limit of two" in done.stdout
        ildm_bench("limit", *options, "--largest", "100")
        assert set((tmp_path / "limit").glob("run=*")) == runs
        refused = ildm_bench("limit", *options, "--largest", "200", status=2)
        assert "largest_ms" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["load", "nowhere.yaml", "--target", "127.0.0.1:1"], "nowhere.yaml"),
        (["load", CONFIGS / "quick.yaml", "--target", "127.0.0.1"], "not host:port"),
        (["load", CONFIGS / "link.yaml", "--target", "127.0.0.1:1"], "2 sites"),
        (["load", CONFIGS / "quick.yaml", "--target", "127.0.0.1:1", "--pid", "x=1"], "ROLE[:SITE]=PID"),
        (["worker", "--listen", "0.0.0.0:1"], "secret"),
    ],
)
def test_wrong_usage_is_named(arguments: list[str | Path], said: str) -> None:
    assert said in ildm_bench(*arguments, status=2).stderr


def test_a_target_that_is_not_there(tmp_path: Path) -> None:
    done = ildm_bench("load", CONFIGS / "quick.yaml", "--target", "127.0.0.1:1", "--out", tmp_path, status=1)
    assert re.search(r"client [0-9a-f]{4}-\d+ cannot connect to 127\.0\.0\.1:1:", done.stderr)
    assert "Traceback" not in done.stderr


def test_help_lists_every_command() -> None:
    environment = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-m", "ildm_bench.cli", "--help"], capture_output=True, text=True, env=environment
    )
    for command in ("load", "limit", "worker", "analyse", "report", "testbed", "results"):
        assert command in done.stdout

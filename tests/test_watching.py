"""Alert rules and the board name only what there is, and rules speak when they should."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ildm.admin.families import METRICS
from ildm.core.metrics import PREFIX
from tests.support.programs import need

CONFIGS = Path(__file__).parents[1] / "configs"
PROMETHEUS = CONFIGS / "prometheus"
BOARD = json.loads((CONFIGS / "grafana" / "ildm.json").read_text())
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
ADDED = {"instance", "job", "le"}
"""Labels that Prometheus adds."""


def board_expressions() -> Iterator[str]:
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def named(expression: str) -> list[tuple[str, str]]:
    """Metrics of a node in an expression, each with what stands in its braces."""
    return re.findall(rf"\b{PREFIX}([a-z_]+)(?:{{([^}}]*)}})?", expression)


EXPRESSIONS = [*(rule["expr"] for rule in RULES), *board_expressions()]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_metrics_and_labels_of_an_expression_are_declared(expression: str) -> None:
    for name, matchers in named(expression):
        metric = METRICS.get(name) or METRICS[re.sub("_(bucket|sum|count)$", "", name)]
        assert (metric.name != name) == (metric.kind == "histogram")
        labels = set(re.findall(r"(\w+)\s*[=!]~?", matchers))
        assert labels <= {*metric.labels, *ADDED}
    known = {
        label for name, _ in named(expression) for label in (METRICS[name].labels if name in METRICS else ())
    }
    for group in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expression):
        assert {label.strip() for label in group.split(",")} <= known | ADDED


def test_the_board_is_about_nodes_and_asks_for_something_in_each_panel() -> None:
    titles = [panel["title"] for panel in BOARD["panels"]]
    assert len({(p["title"], p["type"]) for p in BOARD["panels"]}) == len(titles) > 15
    for panel in BOARD["panels"]:
        assert panel["targets"], panel["title"]
        assert all("$instance" in target["expr"] for target in panel["targets"]), panel["title"]
    assert all(named(expression) for expression in board_expressions())


def test_prometheus_understands_the_board(tmp_path: Path) -> None:
    replaced = [
        each.replace("$__rate_interval", "1m").replace("$instance", ".*") for each in board_expressions()
    ]
    rules = [{"record": f"board:panel_{number}", "expr": each} for number, each in enumerate(replaced)]
    file = tmp_path / "board.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    done = subprocess.run([need("promtool"), "check", "rules", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_understands_what_it_is_to_scrape() -> None:
    done = subprocess.run(
        [need("promtool"), "check", "config", "--syntax-only", PROMETHEUS / "prometheus.yml"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_speak_when_they_should_and_are_quiet_when_not() -> None:
    files = sorted(path.name for path in PROMETHEUS.glob("tests*.yml"))
    done = subprocess.run(
        [need("promtool"), "test", "rules", *files], cwd=PROMETHEUS, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tests = [test for name in files for test in yaml.safe_load((PROMETHEUS / name).read_text())["tests"]]
    tested = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert tested == {rule["alert"] for rule in RULES}

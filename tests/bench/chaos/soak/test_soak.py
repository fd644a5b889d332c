"""A short soak of real nodes, which cannot tell of slopes, but of what is left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ildm_bench.chaos.soak.figures import SOAK, Soak
from ildm_bench.cli import app

pytestmark = pytest.mark.broker


@pytest.mark.skipif(shutil.which("mosquitto") is None, reason="mosquitto is not installed")
def test_events_of_all_kinds_leave_nothing(tmp_path: Path) -> None:
    command = ["soak", "--messages", "3000", "--interval", "0.5", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    soak = Soak.read(tmp_path / SOAK)
    assert soak.messages >= 3000
    assert soak.received > soak.messages
    assert min(soak.connects, soak.cuts, soak.kills) >= 1
    assert soak.nodes == ["a", "b", "c"]
    assert {sample.life for sample in soak.samples if sample.node == "c"} == {0, 1}
    assert {sample.life for sample in soak.samples if sample.node != "c"} == {0}
    assert (tmp_path / "report.html").is_file()
    assert "100%" not in done.stdout

"""What a plugin keeps is there again after its node was killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from ildm.core.tables import PLUGIN_STATE
from tests.plugins.commands import PATIENCE, environment

COUNTING = """
from ildm.api import TreeAlgorithm

class Counting(TreeAlgorithm):
    def on_ildm_start(self):
        lives = int(self.api.state.get("lives", b"0")) + 1
        self.api.state["lives"] = str(lives).encode()
        self.api.log("counted", lives=lives)
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    about = tmp_path / "counting-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[ildm.algorithms]\ncounting = counting:Counting\n")
    (tmp_path / "counting.py").write_text(COUNTING)
    (tmp_path / "node.yaml").write_text(
        "algorithm: counting\nstate_dir: state\nlisten: 127.0.0.1:0\nlink: {listen: 127.0.0.1:0}\n"
    )
    return tmp_path


def saved(directory: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(directory / "state" / "state.sqlite")) as database:
        return database.execute(f"SELECT * FROM {PLUGIN_STATE.name}").fetchall()


def test_state_outlives_a_kill(installed: Path) -> None:
    for life in (1, 2):
        node = subprocess.Popen(
            [sys.executable, "-m", "ildm", "run", "--config", installed / "node.yaml"],
            env=environment(installed),
            cwd=installed,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert node.stderr is not None
            lines = (json.loads(line) for line in node.stderr if line.startswith("{"))
            counted = next(line for line in lines if line["event"] == "counted")
            assert (counted["lives"], counted["plugin"]) == (life, "counting")
            give_up = time.monotonic() + PATIENCE
            while saved(installed) != [("algorithm/counting", "lives", b"%d" % life)]:
                assert time.monotonic() < give_up
                time.sleep(0.02)  # a file of another process has no event
            os.kill(node.pid, signal.SIGKILL)
        finally:
            node.kill()
            node.communicate()

"""``ildm plugin list`` names what is installed, and why something of it cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ildm.cli.render import installed_plugins
from ildm.cli.terminal import make_console
from tests.plugins.commands import ildm

GOOD = """
from ildm.api import Filter, TreeAlgorithm

class Good(TreeAlgorithm):
    def __init__(self, api, config):
        raise SystemExit("made")

class Old(TreeAlgorithm):
    api_version = 0

class Deaf(Filter):
    def filter(self, session, message):
        return message
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    packages = {
        "one": "[ildm.algorithms]\ngood = one:Good\nold = one:Old\n[ildm.filters]\ndeaf = one:Deaf\n",
        "two": "[ildm.filters]\nbroken = two:X\n[ildm.algorithms]\nold = two:Old\n",
    }
    for name, entries in packages.items():
        about = tmp_path / f"{name}-1.5.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        (about / "entry_points.txt").write_text(entries)
    (tmp_path / "one.py").write_text(GOOD)
    (tmp_path / "two.py").write_text("raise ImportError('no\\nluck')\n")
    return tmp_path


def test_everything_is_listed_with_its_problems(installed: Path) -> None:
    done = ildm(installed, "plugin", "list", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [row for row in json.loads(done.stdout) if row["package"] != "ildm"]
    assert [(row["kind"], row["name"], row["package"], row["version"], row["target"]) for row in rows] == [
        ("algorithm", "good", "one", "1.5", "one:Good"),
        ("algorithm", "old", "one", "1.5", "one:Old"),
        ("algorithm", "old", "two", "1.5", "two:Old"),
        ("filter", "broken", "two", "1.5", "two:X"),
        ("filter", "deaf", "one", "1.5", "one:Deaf"),
    ]
    twice = "algorithm 'old' is installed 2 times: one 1.5 (one:Old), two 1.5 (two:Old)"
    deaf = "filter 'deaf' (one:Deaf): filter is never called, as wants has no (Source, PacketType.PUBLISH)"
    assert [(row["api_version"], row["problem"]) for row in rows] == [
        (1, None),
        (None, twice),
        (None, twice),
        (None, "filter 'broken' cannot be imported: ImportError('no\\nluck')"),
        (None, deaf),
    ]


def test_the_list_for_people(installed: Path) -> None:
    """Each problem stands once, below what is installed."""
    done = ildm(installed, "plugin", "list")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["kind", "name", "package", "API", "class"]
    assert ["algorithm", "good", "●", "ok", "one", "1.5", "1", "one:Good"] in lines
    assert ["filter", "deaf", "✕", "unusable", "one", "1.5", "-", "one:Deaf"] in lines
    assert done.stdout.count("is installed 2 times") == 1
    assert done.stdout.count("✕ filter 'broken' cannot be imported") == 1


def test_nothing_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    make_console().print(installed_plugins([]))
    assert capsys.readouterr().out == "no plugins are installed\n"

"""Commands that packages add to ``ildm``, and what is said of those that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.commands import ildm

MODULE = """
import typer
from ildm.mqtt import IldmError

app = typer.Typer(help="Greets.")
empty = typer.Typer()

@app.command()
def hello(name: str, loud: bool = False):
    "Say hello."
    if name == "nobody":
        raise IldmError("nobody is there")
    print(f"hello {name}" + "!" * loud)
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    packages = {
        "one": (
            "[ildm.commands]\ngreet = one:app\nempty = one:empty\nwrong = one:MODULE\n"
            "broken = two:app\ntwice = one:app\nstatus = one:app\n"
        ),
        "two": "[ildm.commands]\ntwice = two:app\n",
    }
    for name, entries in packages.items():
        about = tmp_path / f"{name}-1.5.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        (about / "entry_points.txt").write_text(entries)
    (tmp_path / "one.py").write_text(MODULE + "\nMODULE = 'text'\n")
    (tmp_path / "two.py").write_text("raise ImportError('no luck')\n")
    return tmp_path


def test_an_added_command_is_one_of_them(installed: Path) -> None:
    done = ildm(installed, "greet", "hello", "you", "--loud")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello you!\n", "")
    done = ildm(installed, "greet", "hello", "nobody")
    assert (done.returncode, done.stderr) == (1, "ildm: nobody is there\n")
    assert "Say hello." in ildm(installed, "greet", "--help").stdout
    assert ildm(installed, "greet", "bye").returncode == 2


def test_all_commands_are_listed(installed: Path) -> None:
    done = ildm(installed, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "greet Greets." in lines
    for name in ("broken", "empty", "twice", "wrong"):
        assert f"{name} Cannot be used." in lines
    assert "status Broker, links and counters of the node." in lines


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("broken", "command 'broken' cannot be imported: ImportError('no luck')"),
        ("empty", "command 'empty' (one:empty) has no commands"),
        ("wrong", "command 'wrong' (one:MODULE) is no typer.Typer"),
        ("twice", "command 'twice' is installed 2 times: one 1.5 (one:app), two 1.5 (two:app)"),
    ],
)
def test_why_a_command_cannot_be_used(installed: Path, name: str, why: str) -> None:
    done = ildm(installed, name, "more", "--words")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"ildm: {why}\n")


def test_an_unknown_word_is_said_to_be_one(installed: Path) -> None:
    done = ildm(installed, "nope")
    assert done.returncode == 2
    assert "No such command 'nope'" in done.stderr

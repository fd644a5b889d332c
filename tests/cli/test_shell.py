from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from ildm.admin.client import AdminClient, NoNodeError
from ildm.admin.commands import COMMANDS, UsageError
from ildm.admin.view import AdminError
from ildm.cli.shell import completions, interact, run_line, run_script, split_commands
from ildm.config import Address
from tests.admin.fake_node import FakeView


def test_a_script_in_order(node: AdminClient, view: FakeView, capsys: pytest.CaptureFixture[str]) -> None:
    run_script(node, "neighbor add h:1 --no-save; ; log-level debug\n# a remark\nneighbor remove h:1", False)
    assert view.calls == [("add", Address("h", 1), False), ("level", "debug"), ("remove", "h:1", True)]
    assert capsys.readouterr().out.splitlines() == [
        "neighbour h:1: ◌ connecting",
        "log level is debug",
        "neighbour h:1: ✕ removed",
    ]


def test_a_script_ends_at_the_first_error(node: AdminClient, view: FakeView) -> None:
    with pytest.raises(AdminError, match="nobody is not a neighbour"):
        run_script(node, "log-level info; neighbor remove nobody; log-level debug", False)
    assert view.calls == [("level", "info"), ("remove", "nobody", True)]


def test_a_script_ends_at_exit(node: AdminClient, view: FakeView) -> None:
    run_script(node, "log-level info; exit; log-level debug", False)
    assert view.calls == [("level", "info")]


@pytest.mark.parametrize(
    ("script", "parts"),
    [
        ("a;b", ["a", "b"]),
        ("a 'x;y';b", ["a 'x;y'", "b"]),
        ('a "x;\'y";b', ['a "x;\'y"', "b"]),
        ("a\nb", ["a", "b"]),
        ("", [""]),
    ],
)
def test_cutting_a_script(script: str, parts: list[str]) -> None:
    assert list(split_commands(script)) == parts


def test_json(node: AdminClient, view: FakeView, capsys: pytest.CaptureFixture[str]) -> None:
    run_line(node, "status", True)
    assert json.loads(capsys.readouterr().out) == view.status()
    run_line(node, "subscriptions --limit 1 --json", False)
    assert json.loads(capsys.readouterr().out) == {"total": 5, "items": view.subscriptions()[:1]}


def test_quotes_that_do_not_end(node: AdminClient) -> None:
    with pytest.raises(UsageError, match="no closing quotation"):
        run_line(node, "neighbor remove 'x", False)


def test_help(node: AdminClient, capsys: pytest.CaptureFixture[str]) -> None:
    run_line(node, "help", False)
    text = capsys.readouterr().out
    assert all(command.usage in text and command.help in text for command in COMMANDS.values())
    run_line(node, "help neighbor", False)
    assert len(capsys.readouterr().out.splitlines()) == 3
    with pytest.raises(UsageError, match="unknown command 'fly'"):
        run_line(node, "help fly", False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("s", ["status", "subscriptions", "spool", "sessions", "stop"]),
        ("nei", ["neighbor"]),
        ("neighbor ", ["list", "add", "remove"]),
        ("neighbor r", ["remove"]),
        ("neighbor remove ", ["127.0.0.1:1885", "north", "--no-save", "--force", "--json"]),
        ("neighbor remove n", ["north"]),
        ("neighbor remove north --", ["--no-save", "--force", "--json"]),
        ("overlay ", ["trace", "--key", "--json"]),
        ("log-level ", ["debug", "info", "warning", "error", "--json"]),
        ("clients --limit", ["--limit"]),
        ("help al", ["algorithm"]),
        ("fly ", []),
        ("ex", ["exit"]),
    ],
)
def test_completion(node: AdminClient, text: str, words: list[str]) -> None:
    assert [word for word, _ in completions(node, text)] == words


def test_completion_without_a_node(socket_path: Path) -> None:
    assert [w for w, _ in completions(AdminClient(socket_path), "neighbor remove ")] == []


def typed(node: AdminClient, history: Path, keys: str) -> int:
    with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
        keyboard.send_text(keys)
        return interact(node, history)


def test_a_session(
    node: AdminClient, view: FakeView, socket_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = socket_path.parent / "shell-history"
    keys = "log-level debug\nfly\nneighbor remove nobody\ndropped\x03log-level info\n\nexit\n"
    assert typed(node, history, keys) == 0
    assert view.calls == [("level", "debug"), ("remove", "nobody", True), ("level", "info")]
    out, err = capsys.readouterr()
    assert out.startswith("Connected to node south.")
    assert [line.partition(";")[0] for line in err.splitlines()] == [
        "error: unknown command 'fly'",
        "error: nobody is not a neighbour",
    ]
    assert "+neighbor remove nobody" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def test_a_session_ends_with_ctrl_d_and_with_the_node(
    node: AdminClient, view: FakeView, socket_path: Path
) -> None:
    history = socket_path.parent / "shell-history"
    assert typed(node, history, "\x04") == 0
    assert typed(node, history, "stop\n\nstop\nn\nexit\n") == 0
    assert view.calls == []  # it asks first
    assert typed(node, history, "stop\ny\n") == 0
    assert view.calls == [("stop",)]


def test_a_session_needs_a_node(socket_path: Path) -> None:
    with pytest.raises(NoNodeError):
        typed(AdminClient(socket_path), socket_path.parent / "shell-history", "")


@pytest.mark.parametrize("words", ["help neighbor add", "neighbor add --help", "neighbor add h:1 -h"])
def test_help_for_a_command(node: AdminClient, capsys: pytest.CaptureFixture[str], words: str) -> None:
    run_script(node, words, False)
    out = capsys.readouterr().out
    assert out.startswith("neighbor add HOST:PORT")
    assert len(out.splitlines()) == 1


def test_top_in_the_shell_draws_once_where_nobody_can_end_it(
    node: AdminClient, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[float, int | None, bool]] = []
    monkeypatch.setattr("ildm.cli.top.show_top", lambda _, *given: drawn.append(given))
    run_script(node, "top; top --json; help top", False)
    assert drawn == [(1.0, 1, False), (1.0, 1, True)]
    assert capsys.readouterr().out.startswith("top")
    with pytest.raises(UsageError, match="top: expected nothing"):
        run_script(node, "top fast", False)

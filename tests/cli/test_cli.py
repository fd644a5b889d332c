from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ildm import __version__, compiled
from ildm.cli import main
from ildm.config import Address
from tests.admin.fake_node import SPOOLED, FakeView
from tests.support.brokers import Broker

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """``run("status", "--json")`` gives exit status, standard output and standard error."""
    monkeypatch.delenv("ILDM_SOCKET", raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ildm", *words])
        status = main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return status, out, err

    return run


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "ildm.yaml"
    path.write_text("state_dir: state\nalgorithm: sf\nlink: {neighbors: ['10.0.0.2:1885'], listen: null}\n")
    return path


def test_commands_of_the_shell(run: Run, view: FakeView, socket_path: Path) -> None:
    where = ["--socket", str(socket_path)]
    status, out, _ = run("status", "--json", *where)
    assert (status, json.loads(out)) == (0, view.status())
    assert run("neighbor", "add", "h:1", "--no-save", *where) == (0, "neighbour h:1: ◌ connecting\n", "")
    assert run("neighbor", "remove", "north", *where) == (0, "neighbour 127.0.0.1:1885: ✕ removed\n", "")
    assert run("log-level", "debug", *where)[0] == 0
    assert json.loads(run("clients", "--limit", "1", "--json", *where)[1])["items"] == view.clients()[:1]
    assert json.loads(run("overlay", "--json", *where)[1]) == view.overlay().model_dump(mode="json")
    assert json.loads(run("overlay", "trace", "x/y", "--json", *where)[1])["topic"] == "x/y"
    for name in (
        ["neighbor", "list"],
        ["clients"],
        ["subscriptions"],
        ["algorithm"],
        ["overlay"],
        ["overlay", "trace", "a/b"],
        ["status"],
    ):
        status, out, err = run(*name, *where)
        assert (status, err) == (0, "")
        assert out
    assert run("stop", *where) == (0, "stopped\n", "")
    assert view.calls == [
        ("add", Address("h", 1), False),
        ("remove", "north", True),
        ("level", "debug"),
        ("trace", "x/y"),
        ("trace", "a/b"),
        ("stop",),
    ]


def test_an_algorithm_without_overlay(run: Run, view: FakeView, socket_path: Path) -> None:
    view.without_overlay = True
    where = ["--socket", str(socket_path)]
    assert run("overlay", *where) == (1, "", "ildm: algorithm sf has no overlay\n")
    assert run("overlay", "trace", "a/#", *where)[0] == 2
    assert run("overlay", "fly", *where)[0] == 2
    assert run("overlay", "--help")[0] == 0


def test_where_the_node_is(
    run: Run, view: FakeView, socket_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("status", "--config", str(config))[0] == 0
    monkeypatch.setenv("ILDM_SOCKET", str(socket_path))
    assert run("status")[0] == 0
    status, _, err = run("status", "--socket", str(config.parent / "other.sock"))
    assert (status, err.count("\n")) == (1, 1)
    monkeypatch.delenv("ILDM_SOCKET")
    monkeypatch.chdir(config.parent)
    assert run("status") == (
        1,
        "",
        "ildm: no node runs with state directory ildm-state; start one with: ildm run --config FILE\n",
    )


def test_what_is_in_the_spool(run: Run, view: FakeView, socket_path: Path, tmp_path: Path) -> None:
    where = ["--socket", str(socket_path)]
    view.waiting = [{**SPOOLED, "lsn": lsn} for lsn in (5, 7, 8)]
    assert "link/north" in run("spool", *where)[1]
    status, out, _ = run("spool", "show", "link/north", "--limit", "2", *where)
    assert (status, out.count("a/b")) == (0, 2)
    assert "1 more of 3" in out
    file = tmp_path / "kept.json"
    exported = run("spool", "export", "link/north", str(file), *where)
    assert exported == (0, f"3 messages written to {file}\n", "")
    assert [json.loads(line)["lsn"] for line in file.read_text().splitlines()] == [5, 7, 8]
    assert file.stat().st_mode & 0o777 == 0o600
    assert run("spool", "export", "link/north", "/nonexistent/x", *where)[2] == (
        "ildm: /nonexistent/x: No such file or directory\n"
    )
    assert run("spool", "show", "link/south", *where) == (
        1,
        "",
        "ildm: the spool has nothing for link/south\n",
    )


def test_nothing_is_thrown_away_unasked(run: Run, view: FakeView, socket_path: Path) -> None:
    where = ["--socket", str(socket_path)]
    view.waiting = [{**SPOOLED, "lsn": lsn} for lsn in (5, 7, 8)]
    status, out, err = run("spool", "drop", "link/north", *where)
    assert (status, out) == (1, "")
    assert err == (
        "ildm: 3 messages for link/north that nobody else may have would be thrown away; to do so: --force\n"
    )
    assert run("neighbor", "remove", "north", *where)[2] == (
        "ildm: 3 messages for north would be thrown away\n"
    )
    assert len(view.waiting) == 3
    removed = run("neighbor", "remove", "north", "--force", *where)
    assert removed == (0, "neighbour 127.0.0.1:1885: ✕ removed  3 messages (900 B) thrown away\n", "")
    dropped = run("spool", "drop", "link/north", "--force", *where)
    assert dropped == (0, "link/north: 3 messages (900 B) thrown away\n", "")
    assert view.waiting == []


@pytest.mark.parametrize(("answer", "left"), [("y", 0), ("", 3), ("n", 3)])
def test_a_person_is_asked(
    run: Run, view: FakeView, socket_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, left: int
) -> None:
    view.waiting = [{**SPOOLED, "lsn": lsn} for lsn in (5, 7, 8)]
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or answer)
    run("spool", "drop", "link/north", "--socket", str(socket_path))
    assert len(view.waiting) == left
    assert asked == [
        "3 messages for link/north that nobody else may have would be thrown away. Go on? [y/N] "
    ]


def test_the_shell_with_a_script(run: Run, view: FakeView, socket_path: Path) -> None:
    where = ["--socket", str(socket_path)]
    assert run("shell", "-c", "log-level debug; neighbor remove h:1; stop", *where) == (
        1,
        "log level is debug\n",
        "ildm: h:1 is not a neighbour\n",
    )
    status, out, _ = run("shell", "-c", "algorithm", "--json", *where)
    assert (status, json.loads(out)) == (0, view.algorithm())
    assert run("shell", "-c", "fly", *where)[0] == 2


def test_the_shell_reads_a_pipe(view: FakeView, socket_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "ildm", "shell", "--socket", str(socket_path)],
        input="log-level debug\nneighbor remove north\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert view.calls == [("level", "debug"), ("remove", "north", True)]


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["neighbor", "add", "nowhere"], 2, "ildm: neighbor add: 'nowhere': expected HOST:PORT"),
        (["neighbor", "remove", ""], 2, "ildm: neighbor remove: expected HOST:PORT or a node id"),
        (["log-level", "loud"], 2, "ildm: log-level: 'loud': expected one of debug"),
        (["clients", "--limit", "0"], 2, "ildm: clients: '0': expected a number from 1 to 100000"),
        (["check", "/nonexistent/x.yaml"], 2, "ildm: /nonexistent/x.yaml: cannot be read"),
        (["run", "--config", "/nonexistent/x.yaml"], 2, "ildm: /nonexistent/x.yaml: cannot be read"),
        (["status", "--config", "/nonexistent/x.yaml"], 2, "ildm: /nonexistent/x.yaml: cannot be read"),
        (["demo", "--algorithm", "x"], 2, "ildm: --algorithm x: expected one of sf, pf"),
        (["demo", "--broker", "x"], 2, "ildm: --broker x: expected one of auto, mosquitto, amqtt, mixed"),
        (["sub", "-t", "x", "--format", "xml"], 2, "ildm: --format xml: expected text, payload or json"),
        (["sub", "-t", "x", "-V", "4"], 2, "ildm: -V 4: expected 3.1.1 or 5"),
        (["sub", "-t", "x", "--persistent"], 2, "ildm: --persistent needs a client identifier (-i)"),
        (["sub", "-t", "x", "--password-file", "/x"], 2, "ildm: --password-file: /x cannot be read"),
        *(
            ([*words, option, "hunter2"], 2, "ildm: -P: everybody on this machine can read a command line: ")
            for words in (["sub", "-t", "x", "-u", "n"], ["pub", "-t", "x", "-m", "a"])
            for option in ("-P", "--pw", "--password")
        ),
        (["pub", "-t", "x"], 2, "ildm: give one of -m TEXT, -l and -f FILE"),
        (["pub", "-t", "x", "-m", "a", "-l"], 2, "ildm: give one of -m TEXT, -l and -f FILE"),
        (["pub", "-t", "a/#", "-m", "a"], 2, "ildm: -t a/#: a topic to publish on"),
        (["pub", "-t", "x", "-f", "/nonexistent"], 2, "ildm: /nonexistent: No such file or directory"),
        (["pub", "-t", "\udcff", "-m", "a"], 2, "ildm: -t \\udcff: surrogate in a topic name"),
        (["pub", "-t", "x" * 65536, "-m", "a"], 2, f"ildm: -t {'x' * 77}...: "),
        (["pub", "-t", "x", "-m", "a", "-i", "y" * 65536], 2, "ildm: -i: expected at most 65535 bytes"),
        (["pub", "-t", "x", "-m", "a", "-u", "\udcff"], 2, "ildm: -u: is no UTF-8"),
        (
            ["pub", "-t", "x", "-m", "a", "-h", "a..b"],
            1,
            "ildm: cannot connect to a..b:1883: that is no",
        ),
        (["sub", "-t", ""], 2, "ildm: -t : empty topic filter"),
        (["sub", "-t", "a", "-t", "a/#/b"], 2, "ildm: -t a/#/b: '#' is not the whole last level"),
        (["sub", "-t", "a+"], 2, "ildm: -t a+: '+' is not a whole level"),
        (["sub", "-t", "a\0"], 2, "ildm: -t a\\x00: U+0000 in a topic filter"),
        (["sub", "-t", "$share/g", "-V", "5"], 2, "ildm: -t $share/g: shared subscription without a topic"),
        (["check", "/nonexistent"], 2, "ildm: /nonexistent: cannot be read: No such file or directory"),
        (["check", "/"], 2, "ildm: /: cannot be read: Is a directory"),
        (["neighbor", "add", "a:0"], 2, "ildm: neighbor add: 'a:0': nobody listens at port 0"),
        (["neighbor", "remove", "\udcff"], 2, "ildm: neighbor remove: expected HOST:PORT or a node id"),
    ],
)
def test_one_clear_line(run: Run, words: list[str], status: int, text: str) -> None:
    found, out, err = run(*words)
    assert (found, out) == (status, "")
    assert err.startswith(text)
    assert err.count("\n") == 1


def test_a_payload_that_no_packet_can_hold(mosquitto: Broker, run: Run, tmp_path: Path) -> None:
    (tmp_path / "big").touch()
    os.truncate(tmp_path / "big", 1 << 28)
    status, out, err = run("pub", "-p", str(mosquitto.port), "-t", "x", "-f", str(tmp_path / "big"))
    assert (status, out, err) == (1, "", "ildm: payload too large\n")


@pytest.mark.parametrize(
    "words", [["sub", "-t", "x", "--timeout", "inf"], ["sub", "-t", "x", "-W", "inf", "-C", "1"]]
)
def test_times_without_end(run: Run, words: list[str]) -> None:
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert "is not in the range" in err or "less than or equal" in err


@pytest.mark.parametrize("words", [["fly"], ["status", "--fly"], ["neighbor", "fly"], ["sub"], ["trace"]])
def test_wrong_usage(run: Run, words: list[str]) -> None:
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert "Usage: ildm" in err


def test_version_and_help(run: Run) -> None:
    assert run("--version") == (0, f"ildm {__version__} ({compiled.form()})\n", "")
    status, out, _ = run("--help")
    assert status == 0
    for word in ("run", "check", "shell", "status", "neighbor", "pub", "sub", "demo"):
        assert f"\n  {word} " in out
    assert "..." not in out.partition("Commands:")[2]  # no help text is cut off
    assert "HOST:PORT" in run("neighbor", "add", "--help")[1]


@pytest.mark.parametrize("words", [[], ["spool"]])
def test_help_wraps_on_a_narrow_terminal(run: Run, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    _, out, _ = run(*words, "--help")
    assert max(map(len, out.splitlines())) <= 50
    commands = out.partition("Commands:")[2]
    assert commands
    assert "..." not in commands


def test_check(run: Run, config: Path) -> None:
    status, out, _ = run("check", str(config))
    assert status == 0
    assert out.startswith(f"{config}: ok\n")
    assert "10.0.0.2:1885" in out
    assert f"{config.parent}/state\n" in out
    assert out.endswith(f"  code           {compiled.form()}\n")


def test_check_warns_and_refuses(run: Run, config: Path) -> None:
    config.write_text("listen: localhost:1883\nbroker: {address: 127.0.0.1:1883}\n")
    status, out, err = run("check", str(config))
    assert (status, out) == (2, "")
    assert f"ildm: {config}: broker.address: 127.0.0.1:1883 leads back to this node" in err
    config.write_text("state_dir: state\nlisten: 0.0.0.0:1883\n")
    status, out, err = run("check", str(config))
    assert status == 0
    assert out.startswith(f"{config}: ok\n")
    assert f"ildm: warning: {config}: listen: 0.0.0.0:1883 is open to other machines" in err


def test_check_takes_several_files(run: Run, config: Path) -> None:
    """All are looked at; one that cannot be used is enough for the exit status."""
    bad = config.with_name("bad.yaml")
    bad.write_text("listen: nowhere\nwhat: 1\n")
    status, out, err = run("check", str(bad), str(config))
    assert status == 2
    assert out.startswith(f"{config}: ok\n")
    assert [line.split(": ")[1:3] for line in err.splitlines()] == [[str(bad), "listen"], [str(bad), "what"]]
    status, out, err = run("check", "--json", str(config), str(bad))
    assert (status, err) == (2, "")
    first, second = json.loads(out)
    assert (first["file"], first["ok"], first["errors"]) == (str(config), True, [])
    assert first["does"]["neighbors"] == ["10.0.0.2:1885"]
    assert (second["ok"], second["does"], len(second["errors"])) == (False, None, 2)
    config.write_text("state_dir: state\nlisten: 0.0.0.0:1883\n")
    status, out, err = run("check", "--json", str(config))
    assert status == 0
    [checked] = json.loads(out)
    assert [each["key"] for each in checked["warnings"]] == ["listen"]


def test_the_environment_changes_what_is_checked(
    run: Run, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ILDM__BROKER__ADDRESS", "10.0.0.9:1884")
    assert "local broker   10.0.0.9:1884" in run("check", str(config))[1]
    monkeypatch.setenv("ILDM__BROKER__SECRETS", "hush")
    status, out, err = run("check", str(config))
    assert (status, out) == (2, "")
    assert err == f"ildm: {config} with ILDM__BROKER__SECRETS: broker.secrets: unknown key\n"


def test_check_names_every_error(run: Run, config: Path) -> None:
    config.write_text("listen: nowhere\nlimits: {clients: 0}\nwhat: 1\n")
    status, out, err = run("check", str(config))
    assert (status, out) == (2, "")
    assert [line.split(": ")[2] for line in err.splitlines()] == ["listen", "limits.clients", "what"]


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ("algorithm: no-such", "CONFIG: algorithm 'no-such' is not installed"),
        ("broker: {password_file: none}", "CONFIG: broker.password_file: "),
        ("link: {secret_file: none}", "CONFIG: link.secret_file: "),
    ],
)
def test_check_looks_at_plugins_and_secrets(run: Run, config: Path, document: str, text: str) -> None:
    config.write_text(document)
    status, out, err = run("check", str(config))
    assert (status, out) == (2, "")
    assert err.replace(str(config), "CONFIG").startswith(f"ildm: {text}")


def test_a_reader_that_has_seen_enough(view: FakeView, socket_path: Path) -> None:
    ended = subprocess.run(
        [f"{sys.executable} -m ildm subscriptions --socket {socket_path}; echo $? >&2"],
        shell=True,
        stdout=_closed_pipe(),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert ended.stderr == "0\n"


def _closed_pipe() -> int:
    """The writing end of a pipe nobody reads."""
    import os

    reading, writing = os.pipe()
    os.close(reading)
    return writing


def test_a_trace_of_real_messages_waits_for_its_end(run: Run, view: FakeView, socket_path: Path) -> None:
    where = ["--socket", str(socket_path)]
    words = ["trace", "a/#", "--for", "0.1s", "--messages", "5", "--one-in", "2"]
    status, out, err = run(*words, "--json", *where)
    assert (status, err) == (0, "")
    assert json.loads(out)["messages"][0]["topic"] == "a/b"
    assert view.calls[0] == ("watch", "a/#", 0.1, 5, 2)
    status, _, err = run("trace", "a/#", *where)
    assert status == 2
    assert "a filter needs --for TIME" in err


@pytest.mark.parametrize(
    "way", [["health", "--json"], ["shell", "-c", "health --json"], ["shell", "--json", "-c", "health"]]
)
def test_programs_get_the_answer_of_a_node_that_is_not_ready(
    run: Run, view: FakeView, socket_path: Path, way: list[str]
) -> None:
    view.wrong, view.warned = ["no broker"], ["a clock is wrong"]
    status, out, err = run(*way, "--socket", str(socket_path))
    assert status == 1
    assert json.loads(out) == {"ready": False, "problems": view.wrong, "warnings": view.warned}
    assert err == "ildm: not ready: no broker\n"

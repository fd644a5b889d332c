"""Completion as shells ask for it: the script, and what it calls."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.admin.fake_node import FakeView
from tests.support.programs import need

PROGRAM = '#!/bin/sh\nexec {} -m ildm "$@"\n'


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """`ildm` of this tree stands in the path."""
    program = tmp_path / "ildm"
    program.write_text(PROGRAM.format(sys.executable))
    program.chmod(0o755)
    path = os.pathsep.join((str(tmp_path), os.environ["PATH"]))
    return {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def offered_by_bash(environment: dict[str, str], *words: str) -> list[str]:
    """What bash would show after the last word."""
    line = " ".join(f"'{word}'" for word in words)
    asked = (
        'source <(ildm completion bash); COMP_WORDS=(ildm "$@"); COMP_CWORD=$#; '
        '_ildm_completion ildm; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        [need("bash"), "-c", asked, "bash", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, (line, done.stderr)
    return done.stdout.split()


def test_bash_offers_commands_and_their_second_words(environment: dict[str, str]) -> None:
    assert {"run", "check", "status", "trace", "client", "completion", "top"} <= set(
        offered_by_bash(environment, "")
    )
    assert offered_by_bash(environment, "nei") == ["neighbor"]
    assert sorted(offered_by_bash(environment, "neighbor", "")) == ["add", "list", "remove"]
    assert offered_by_bash(environment, "completion", "f") == ["fish"]


def test_values_come_from_the_node_as_far_as_they_are_words(
    environment: dict[str, str], view: FakeView, socket_path: Path
) -> None:
    environment["ILDM_SOCKET"] = str(socket_path)
    assert offered_by_bash(environment, "neighbor", "remove", "nor") == ["north"]
    assert offered_by_bash(environment, "log-level", "w") == ["warning"]
    view.client_id = "sensor-$(touch x);'"
    assert offered_by_bash(environment, "client", "kick", "sens") == []
    view.client_id = "sensor-7"
    assert offered_by_bash(environment, "client", "kick", "sens") == ["sensor-7"]


def test_without_a_node_nothing_is_offered_and_nothing_said(
    environment: dict[str, str], tmp_path: Path
) -> None:
    environment["ILDM_SOCKET"] = str(tmp_path / "nobody.sock")
    assert offered_by_bash(environment, "neighbor", "remove", "") == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_get_the_same(environment: dict[str, str], shell: str) -> None:
    script = subprocess.run(["ildm", "completion", shell], env=environment, capture_output=True, text=True)
    assert f"_ILDM_COMPLETE=complete_{shell}" in script.stdout
    asked = {
        "_ILDM_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": "ildm overl",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run(["ildm"], env=environment | asked, capture_output=True, text=True)
    assert "overlay" in done.stdout
    assert "neighbor" not in done.stdout


@pytest.mark.parametrize("way", ["sourced", "in its path"])
def test_zsh_completes_the_first_time_it_is_asked(
    environment: dict[str, str], tmp_path: Path, way: str
) -> None:
    zsh = need("zsh")
    script = subprocess.run(["ildm", "completion", "zsh"], env=environment, capture_output=True, check=True)
    (tmp_path / "_ildm").write_bytes(script.stdout)
    begin = "autoload -U compinit; compinit -u -D"
    begin = f"{begin}; source _ildm" if way == "sourced" else f"fpath=({tmp_path} $fpath); {begin}"
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        [zsh, "-f", "-i"],
        cwd=tmp_path,
        env=environment | {"TERM": "dumb"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    try:
        os.write(ours, f"{begin}; PS1='begun '\n".encode())
        until(ours, b"\rbegun ")
        os.write(ours, b"ildm nei\t")
        until(ours, b"ildm neighbor ")
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
        os.close(theirs)


def until(terminal: int, text: bytes) -> None:
    """Reads what a shell shows until it has shown that."""
    shown = b""
    while text not in shown:
        ready, _, _ = select.select([terminal], [], [], 120)
        assert ready, shown
        shown += os.read(terminal, 4096)


def test_an_unknown_shell_is_refused(environment: dict[str, str]) -> None:
    done = subprocess.run(["ildm", "completion", "tcsh"], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "ildm: completion tcsh: expected one of bash, zsh, fish\n")

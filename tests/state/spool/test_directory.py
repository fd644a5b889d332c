"""A spool's directory is its own: nothing of others is changed, and no link is followed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ildm.config import Config, parse_config
from ildm.preflight import Finding, examine
from ildm.state.spool.segments import DAMAGED, MISPLACED, MOVED, NEW, name_of
from tests.state.spool.lives import Settings
from tests.state.spool.real import open_real


def of_others(path: Path) -> None:
    path.mkdir(mode=0o755)
    (path / "other").touch()


def hidden(path: Path) -> None:
    path.mkdir(mode=0o755)
    (path / ".profile").touch()


def linked(path: Path) -> None:
    (path.parent / "there").mkdir(mode=0o755)
    path.symlink_to("there")


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def a_file(path: Path) -> None:
    path.touch()


def configured(tmp_path: Path, **more: object) -> Config:
    document = {
        "listen": "127.0.0.1:0",
        "state_dir": str(tmp_path / "state"),
        "spool": {"directory": str(tmp_path / "spool"), **more},
    }
    (tmp_path / "node.yaml").write_text(yaml.safe_dump(document))
    return parse_config(document, "test", tmp_path)


def found(config: Config, key: str) -> list[Finding]:
    return [each for each in examine(config, thorough=False) if each.key == key]


@pytest.mark.parametrize("made", [of_others, hidden, linked, dangling, a_file])
def test_a_directory_that_is_not_its_own_is_refused(tmp_path: Path, made: Callable[[Path], None]) -> None:
    path = tmp_path / "spool"
    made(path)
    before = path.lstat(), path.stat() if path.exists() else None
    (each,) = found(configured(tmp_path), "spool.directory")
    assert each.fatal
    assert str(path) in each.text
    with pytest.raises(OSError, match=r"it is|it holds|exists"):
        open_real(path, Settings())
    assert (path.lstat(), path.stat() if path.exists() else None) == before


@pytest.mark.parametrize("command", [["check"], ["run", "--config"]])
def test_check_and_run_say_so(tmp_path: Path, command: list[str]) -> None:
    configured(tmp_path)
    of_others(tmp_path / "spool")
    done = subprocess.run(
        [sys.executable, "-m", "ildm", *command, str(tmp_path / "node.yaml")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    said = " ".join((done.stdout + done.stderr).split())
    assert f"spool.directory: {tmp_path}/spool cannot hold the spool: it holds 'other'" in said
    assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o755


def test_an_empty_one_and_its_own_are_used_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    path.mkdir()
    path.chmod(0o750)
    for _ in range(2):
        assert found(configured(tmp_path), "spool.directory") == []
        open_real(path, Settings(bytes=1 << 26, segment_bytes=1 << 16)).close()
        for suffix in (DAMAGED, NEW, MOVED, MISPLACED):
            (path / (name_of(77) + suffix)).touch()
        (path / "lost+found").mkdir(exist_ok=True)
    assert path.stat().st_mode & 0o777 == 0o750
    assert {each.stat().st_mode & 0o777 for each in path.glob("*.spool")} == {0o600}


@pytest.mark.parametrize(("mode", "warned"), [(0o700, 0), (0o770, 0), (0o777, 1), (0o1777, 1)])
def test_a_state_directory_that_all_may_write_is_warned_of(tmp_path: Path, mode: int, warned: int) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(mode)
    said = found(configured(tmp_path), "state_dir")
    assert len(said) == warned
    assert not any(each.fatal for each in said)


def test_more_than_the_disk_has_room_for_is_warned_of(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    assert found(configured(tmp_path, bytes=1 << 20, segment_bytes=1 << 16), "spool.bytes") == []
    (each,) = found(configured(tmp_path, bytes=2 * disk.f_blocks * disk.f_frsize), "spool.bytes")
    assert not each.fatal
    assert "has room for" in each.text

"""``ildm plugin new`` on the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ildm.cli import main
from ildm.cli.plugin import Kind
from ildm.scaffold import KINDS


def new(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["ildm", "plugin", "new", *words])
    return main()


def test_the_kinds_are_those_of_the_templates() -> None:
    assert tuple(kind.value for kind in Kind) == KINDS


def test_it_says_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert new(monkeypatch, "rate-limit", "--kind", "filter", "--directory", "my plugins/one") == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[:2] == ["my plugins/one: written. Next:", "  cd 'my plugins/one'"]
    assert err == ""
    assert "(Filter[Options])" in (tmp_path / "my plugins/one/rate_limit/plugin.py").read_text()
    assert "algorithm" not in (tmp_path / "my plugins/one/node.yaml").read_text()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["sf"], "ildm: a plugin 'sf'"),
        (["Rate"], "ildm: 'Rate' is no name for a plugin"),
        (["rate", "--directory", "full"], "ildm: full is there already"),
        (["rate", "--kind", "ring"], "'ring' is not one of 'tree', 'overlay', 'filter'"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_written(
    words: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").write_text("mine")
    assert new(monkeypatch, *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert complaint in err
    assert [path.name for path in tmp_path.iterdir()] == ["full"]

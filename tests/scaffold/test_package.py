"""Names of new packages, and that one is written wholly or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ildm.mqtt import IldmError
from ildm.scaffold import KINDS, Kind, ScaffoldError, create_package, named, rendered


@pytest.mark.parametrize(
    ("name", "package", "class_name", "title"),
    [
        ("gossip", "gossip", "Gossip", "Gossip"),
        ("rate-limit", "rate_limit", "RateLimit", "Rate limit"),
        ("by_2_rules", "by_2_rules", "By2Rules", "By 2 rules"),
    ],
)
def test_all_names_come_of_one(name: str, package: str, class_name: str, title: str) -> None:
    assert named(name) == (name, package, class_name, title)


@pytest.mark.parametrize(
    "name", ["", "Gossip", "2-fold", "a--b", "-a", "a-", "a b", "a/b", "../a", "é", "a.b", "a\n", "a" * 41]
)
def test_a_name_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ScaffoldError, match="is no name for a plugin"):
        create_package(name, directory=tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("sf", r"a plugin 'sf' \(of ildm .*\) is installed"),
        ("filter", "a class Filter, and there is one"),
        ("value-error", "a class ValueError, and there is one"),
        ("options", "a class Options, and there is one"),
        ("json", "a package json, and there is one"),
        ("class", "a package class, and there is one"),
        ("pytest", "a package pytest, and there is one"),
        ("ildm", "a package ildm, and there is one"),
    ],
)
def test_a_name_that_is_taken_is_refused(name: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ScaffoldError, match=complaint):
        create_package(name, directory=tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_already_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    before = sorted(tmp_path.rglob("*"))
    for place in ("full", "file", "link"):
        with pytest.raises(ScaffoldError, match="is there already"):
            create_package("gossip", directory=tmp_path / place)
    with pytest.raises(IldmError, match="cannot be written"):
        create_package("gossip", directory=tmp_path / "file" / "below")
    assert sorted(tmp_path.rglob("*")) == before


def test_an_empty_directory_is_taken_and_missing_parents_are_made(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place in ("empty", "a/b"):
        assert create_package("gossip", directory=tmp_path / place) == tmp_path / place
        assert (tmp_path / place / "gossip" / "plugin.py").exists()


def test_the_directory_is_called_like_the_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert create_package("rate-limit", "filter") == Path("rate-limit")
    assert [path.name for path in tmp_path.iterdir()] == ["rate-limit"]
    with pytest.raises(ScaffoldError, match="rate-limit is there already; choose another place"):
        create_package("rate-limit", "filter")


def test_a_disk_that_is_full_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_text
    written = []

    def full(path: Path, text: str, *args: Any) -> int:
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        written.append(path)
        return write(path, text, *args)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(IldmError, match="gossip: cannot be written: No space left on device"):
        create_package("gossip", directory=tmp_path / "gossip")
    assert len(written) == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_template_is_filled_in(kind: Kind) -> None:
    files = rendered(named("rate-limit"), kind)
    assert set(files) >= {
        ".gitignore",
        "README.md",
        "node.yaml",
        "pyproject.toml",
        "rate_limit/__init__.py",
        "rate_limit/plugin.py",
        "rate_limit/py.typed",
        "tests/test_simulated.py",
    }
    for place, text in files.items():
        assert "$" not in text, place
        assert text.endswith("\n") or not text

"""The archive of Spark's classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.analysis.test_session import fake_java
from tests.support.programs import missing


@pytest.fixture(autouse=True)
def place(java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from ildm_bench.analysis import classes

    monkeypatch.setattr(classes, "PLACE", tmp_path / "classes")
    return tmp_path / "classes"


def test_each_java_has_its_own(tmp_path: Path) -> None:
    from ildm_bench.analysis.classes import archive_of, options

    one, other = fake_java(tmp_path / "a", "17.0.1"), fake_java(tmp_path / "b", "21.0.1")
    archives = {archive_of(one), archive_of(other)}
    assert len(archives) == 2
    assert options(one) == []  # it is not there
    archive_of(one).parent.mkdir()
    archive_of(one).touch()
    assert f'"-XX:SharedArchiveFile={archive_of(one)}"' in options(one)
    assert options(other) == []


def test_a_java_that_makes_none_is_said(tmp_path: Path, place: Path) -> None:
    from ildm_bench.analysis.classes import make

    assert "no archive of classes" in make(fake_java(tmp_path / "a", "17.0.1"))
    assert not list(place.iterdir())


def test_a_place_that_cannot_be_written_to_is_said(tmp_path: Path, place: Path) -> None:
    from ildm_bench.analysis.classes import make

    place.write_text("a file")
    assert str(place) in make(fake_java(tmp_path / "a", "17.0.1"))


def test_set_up_has_made_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from ildm_bench.analysis.classes import archive_of
    from ildm_bench.analysis.session import find_java

    monkeypatch.undo()
    if not (archive := archive_of(find_java())).exists():
        missing(f"{archive} is not there: make setup-all")


@pytest.mark.long
def test_it_is_made_once(place: Path) -> None:
    """By an analysis in a Java that can. It takes a minute, and `make setup-all` has done it."""
    from ildm_bench.analysis.classes import archive_of, make
    from ildm_bench.analysis.session import find_java

    home = find_java()
    place.mkdir()
    (place / "former.jsa").touch()
    said = make(home)
    if not archive_of(home).exists():
        missing(said)
    assert said.endswith(" MB")
    assert list(place.iterdir()) == [archive_of(home)]
    assert make(home) == f"{archive_of(home)} is there"

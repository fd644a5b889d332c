"""The compiled form of the hot modules: when it runs, and when it does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ildm import compiled
from tests.support.compiled import directory

PROJECT = Path(__file__).parents[1]
TELL = """
from ildm import compiled
from ildm.core import frames
print(compiled.form())
print(frames.__file__)
"""


def run(root: Path, *command: str, switch: str | None = None, **more: str) -> tuple[str, str]:
    """Output and errors of a Python that finds the packages below ``root``."""
    kept = {name: value for name, value in os.environ.items() if name != compiled.SWITCH}
    paths = {"PYTHONPATH": os.pathsep.join((str(root), str(PROJECT / "algorithms")))}
    chosen = {compiled.SWITCH: switch} if switch is not None else {}
    done = subprocess.run(
        [sys.executable, *command],
        env=kept | paths | chosen | more,
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
    )
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def library() -> Path:
    """What is compiled here."""
    return directory()


@pytest.fixture
def tree(library: Path, tmp_path: Path) -> Path:
    """A copy of the sources and of what was compiled of them."""
    shutil.copytree(PROJECT / "ildm", tmp_path / "ildm", ignore=shutil.ignore_patterns("__pycache__", "tmp*"))
    return tmp_path


def test_what_is_compiled_runs(tree: Path) -> None:
    said, errors = run(tree, "-c", TELL, switch="1")
    form, file = said.splitlines()
    assert (form, errors) == ("compiled", "")
    assert Path(file).is_relative_to(tree / compiled.DIRECTORY.relative_to(PROJECT))
    said, _ = run(tree, "-m", "ildm", "--version")
    assert said.endswith("(compiled)\n")


def test_every_module_is_found_in_it(library: Path) -> None:
    modules = sorted(compiled.modules_of(library))
    code = f"from importlib import import_module\nfor name in {modules}: print(import_module(name).__file__)"
    said, errors = run(PROJECT, "-c", code, switch="1")
    assert errors == ""
    assert len(said.splitlines()) == len(modules)
    assert all(Path(file).is_relative_to(library) for file in said.splitlines())


def test_the_environment_chooses(tree: Path) -> None:
    said, _ = run(tree, "-c", TELL, switch="0")
    form, file = said.splitlines()
    assert form == "interpreted: ILDM_COMPILED=0"
    assert Path(file) == tree / "ildm" / "core" / "frames.py"


def test_an_edited_file_counts(tree: Path) -> None:
    edited = tree / "ildm" / "core" / "timing.py"  # not the one that is imported: all or none
    edited.write_text(edited.read_text() + "\n")
    said, _ = run(tree, "-c", TELL)
    form, file = said.splitlines()
    why = "ildm.core.timing has changed since it was compiled"
    assert form == f"interpreted: {why}; for the fast form: {compiled.REINSTALL}"
    assert file.endswith("frames.py")
    _, errors = run(tree, "-c", TELL, switch="1")
    assert "ImportError: ILDM_COMPILED=1, but ildm.core.timing has changed" in errors
    edited.unlink()
    said, _ = run(tree, "-m", "ildm", "--version")
    assert "(interpreted: ildm.core.timing cannot be compared with what was compiled: No such file" in said


def test_a_library_that_cannot_be_loaded_is_not_used(tree: Path) -> None:
    """As one that was made on a system with a newer C library."""
    (file,) = tree.glob(f"ildm/_compiled/*/{compiled.LIBRARY}*")
    file.write_bytes(b"no library of this machine")
    said, errors = run(tree, "-m", "ildm", "--version")
    assert f"(interpreted: {tree}" in said
    assert errors == ""


def test_without_a_compiler_it_says_so_and_goes_on(tmp_path: Path) -> None:
    shutil.copytree(
        PROJECT / "ildm", tmp_path / "ildm", ignore=shutil.ignore_patterns("__pycache__", "_compiled")
    )
    (tmp_path / "configs" / "release").mkdir(parents=True)
    script = shutil.copy(PROJECT / "configs" / "release" / "compile.py", tmp_path / "configs" / "release")
    said, errors = run(tmp_path, str(script), PATH=str(tmp_path), CC="")
    assert (said, errors) == ("not compiled, runs interpreted: no C compiler (cc; Debian: gcc)\n", "")
    said, _ = run(tmp_path, "-c", TELL)
    assert said.startswith(
        "interpreted: nothing is compiled for this Python; for the fast form: make compiled\n"
    )

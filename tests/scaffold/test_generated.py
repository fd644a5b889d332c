"""What ``ildm plugin new`` writes: it installs, passes its own tests and checks, and its node can be run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ildm.scaffold import KINDS, Kind, create_package
from tests.plugins.commands import PROJECT, ildm

NAMES: dict[Kind, str] = {"tree": "made-sharing", "overlay": "made-gossip", "filter": "made-check"}
OFFLINE = ("--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")

PYTEST = ("-p", "ildm.pytest_plugin", "-p", "no:cacheprovider", "-rs")


@pytest.fixture(scope="module", params=KINDS)
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The directory of a package of each kind, and that into which it is installed, without a network."""
    kind: Kind = request.param
    directory = tmp_path_factory.mktemp("made") / NAMES[kind]
    create_package(NAMES[kind], kind, directory)
    target = tmp_path_factory.mktemp("installed")
    source = shutil.copytree(directory, tmp_path_factory.mktemp("source") / NAMES[kind])
    run("pip", "install", "--quiet", *OFFLINE, "--target", str(target), str(source), at=PROJECT, path=PROJECT)
    return directory, target


def run(module: str, *arguments: str, at: Path, path: Path, **variables: str) -> str:
    """Carry out ``python -m MODULE``, which must succeed; what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=at,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(path), str(PROJECT))),
            "MYPYPATH": str(PROJECT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # others have settings and warnings of their own
            **variables,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_its_tests_pass(package: tuple[Path, Path]) -> None:
    directory, target = package
    said = run("pytest", *PYTEST, at=directory, path=target)
    assert "passed" in said
    assert "skipped" not in said, said


def test_its_tests_warn_of_nothing_where_pytest_asyncio_is_installed(package: tuple[Path, Path]) -> None:
    directory, target = package
    options = ("-p", "no:cacheprovider", "--collect-only", "-q", "-W", "error::DeprecationWarning")
    said = run("pytest", *options, at=directory, path=target, PYTEST_DISABLE_PLUGIN_AUTOLOAD="")
    assert "Warning" not in said
    assert "test_" in said


@pytest.fixture(scope="module")
def known_types(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What mypy has found in the project for one package, it need not find again for the next."""
    return tmp_path_factory.mktemp("mypy")


def test_it_is_tidy_and_typed(package: tuple[Path, Path], known_types: Path) -> None:
    directory, target = package
    run("ruff", "check", "--no-cache", "--extend-select", "I", ".", at=directory, path=target)
    run("ruff", "format", "--no-cache", "--check", ".", at=directory, path=target)
    options = ("--strict", "--follow-imports=silent", "--cache-dir", str(known_types))
    said = run("mypy", *options, at=directory, path=target)
    assert f"no issues found in {len(list(directory.rglob('*.py')))} source files" in said


def test_its_node_is_in_order(package: tuple[Path, Path], tmp_path: Path) -> None:
    directory, target = package
    config = shutil.copy(directory / "node.yaml", tmp_path)
    done = ildm(target, "check", config)
    assert (done.returncode, done.stderr) == (0, "")
    assert directory.name in done.stdout

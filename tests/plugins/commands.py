"""``ildm`` where a package was installed into a directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).parents[2]
EXAMPLES = Path(__file__).parent / "examples"
PATIENCE = 120.0
"""Seconds until a wait is given up: a bound for failures, never reached by a test that passes."""


def environment(installed: Path) -> dict[str, str]:
    """The environment of a process that finds the project and what was installed into a directory."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(installed), str(PROJECT)))}


def ildm(installed: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Carry out ``ildm ARGUMENTS`` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "ildm", *map(str, arguments)],
        env=environment(installed),
        cwd=installed,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def install(directory: Path, *packages: Path) -> Path:
    """Let pip install packages below a directory, without a network; answers where Python finds them."""
    sources = [shutil.copytree(package, directory / package.name) for package in packages]
    target = directory / "installed"
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", *options, "--target", target, *sources],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return target


def configured(example: str) -> dict[str, Any]:
    """The configuration file of an example."""
    document: dict[str, Any] = yaml.safe_load((EXAMPLES / example / "node.yaml").read_text())
    return document

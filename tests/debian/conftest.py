"""The package, built once."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.programs import missing, need

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file ``*.deb``, compressed as quickly as can be."""
    need("dpkg-deb")
    need("dpkg-shlibdeps")
    if not Path("/usr/bin/python3").exists():
        missing("the distribution has no Python")
    directory = tmp_path_factory.mktemp("package")
    wheels = PROJECT / ".cache/wheels"
    there = {"WHEELS": str(wheels)} if (wheels / "complete").exists() else {}
    done = subprocess.run(
        [PROJECT / "configs" / "debian" / "build", directory],
        env={**os.environ, **there, "DPKG_DEB_COMPRESSOR_TYPE": "gzip", "DPKG_DEB_COMPRESSOR_LEVEL": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    (built,) = directory.glob("ildm_*.deb")
    return built

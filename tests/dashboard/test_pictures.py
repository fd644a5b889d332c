"""What the pictures of the README show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dashboard.pictures import PICTURES, SIGHTS, TREE, use_this_tree


def test_they_are_of_the_pages_of_this_tree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where another one is installed, or named before it."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "ildm").mkdir(parents=True)
    (elsewhere / "ildm" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(elsewhere))
    use_this_tree()
    where = "from ildm.net.dashboard.files import PAGES; import ildm_algorithms; "
    told = "print(PAGES); print(ildm_algorithms.__path__[0])"
    done = subprocess.run(
        [sys.executable, "-c", where + told], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [
        str(TREE / "ildm/net/dashboard/pages"),
        str(TREE / "algorithms/ildm_algorithms"),
    ]
    assert os.environ["PYTHONPATH"].endswith(str(elsewhere))
    assert all((PICTURES / name).exists() for name, *_ in SIGHTS)

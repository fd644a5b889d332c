"""The codec is sans-IO: it imports nothing that knows time, chance, tasks, sockets or logs."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import ildm.mqtt

SOURCES = sorted(Path(ildm.mqtt.__file__).parent.glob("*.py"))
BANNED = {
    "asyncio",
    "logging",
    "random",
    "secrets",
    "select",
    "selectors",
    "socket",
    "ssl",
    "threading",
    "time",
}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_imports(source: Path) -> None:
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [str(node.module)]
        else:
            continue
        for name in names:
            root = name.partition(".")[0]
            assert root not in BANNED
            assert root in sys.stdlib_module_names or name.startswith("ildm.mqtt")


def test_all_is_what_is_there() -> None:
    assert sorted(ildm.mqtt.__all__) == sorted(set(ildm.mqtt.__all__))
    for name in ildm.mqtt.__all__:
        assert getattr(ildm.mqtt, name) is not None

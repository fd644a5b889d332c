from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ildm.admin.client import AdminClient
from ildm.log import set_log_level
from tests.admin.fake_node import FakeView, served


@pytest.fixture
def socket_path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "admin.sock"


@pytest.fixture
def view(socket_path: Path) -> Iterator[FakeView]:
    """A fake node with its admin API."""
    set_log_level("error")  # its log is not the client's output
    with served(FakeView(), socket_path) as view:
        yield view
    set_log_level("info")


@pytest.fixture
def node(view: FakeView, socket_path: Path) -> AdminClient:
    """A client of the fake node."""
    return AdminClient(socket_path)

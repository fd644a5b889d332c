"""The examples, installed as a user would."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.commands import EXAMPLES, install

PACKAGES = ("priorities", "rendezvous", "schema", "admission")


@pytest.fixture(scope="session")
def installed_examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory into which pip has installed the four examples that are packages of their own."""
    return install(tmp_path_factory.mktemp("examples"), *(EXAMPLES / package for package in PACKAGES))

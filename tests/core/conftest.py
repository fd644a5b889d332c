"""Fixtures of the tests of the core: whole nodes in virtual time."""

from __future__ import annotations

import pytest

from ildm.testing.virtual.world import World


@pytest.fixture
def world() -> World:
    """Time, network and brokers of one test."""
    return World()


@pytest.fixture(params=["pf", "sf"])
def algorithm(request: pytest.FixtureRequest) -> str:
    """Each routing algorithm of the thesis in turn."""
    return str(request.param)

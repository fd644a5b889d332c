"""docker/pair.yaml as docker/README.md starts and uses it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from tests.docker.engine.engine import Engine
from tests.docker.engine.project import copy_project, recipe
from tests.docker.engine.testbed import Testbed, wait_for

pytestmark = [pytest.mark.broker, pytest.mark.timeout(1500)]

NODES = "node-a", "node-b"
SECRET, UP, _, STOP, _, START, DOWN = recipe("A pair")
COMPOSE = UP.partition(" up ")[0]


@pytest.fixture
def pair(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """Started as the README says."""
    made = Testbed(engine, copy_project(tmp_path_factory.mktemp("pair") / "ildm"))
    made.run(SECRET)
    made.run(UP)
    yield made
    made.run(f"{DOWN} --volumes")


def ildm(pair: Testbed, node: str, *words: str) -> str:
    return pair.run(f"{COMPOSE} exec {node} {shlex.join(('ildm', *words))}")


def statuses(pair: Testbed) -> dict[str, Any]:
    """By node; empty while one does not answer."""
    try:
        return {node: json.loads(ildm(pair, node, "status", "--json")) for node in NODES}
    except AssertionError:
        return {}


def owns(pair: Testbed, node: str) -> bool:
    return bool(json.loads(ildm(pair, node, "status", "--json"))["pair"]["state"] == "owner")


def settled(pair: Testbed) -> tuple[str, str]:
    """The owner, once it has its broker, and the node that stands by."""
    found: list[str] = []

    def is_settled() -> bool:
        states = {status["pair"]["state"]: node for node, status in statuses(pair).items()}
        found[:] = [states.get("owner", ""), states.get("standby", "")]
        return all(found) and statuses(pair)[found[0]]["broker"]["connected"]

    wait_for(is_settled, "an owner and a member that stands by")
    owner, other = found
    return owner, other


def test_a_member_ends_an_owner_that_stands_still_and_follows_it(pair: Testbed) -> None:
    first, second = settled(pair)
    epoch = statuses(pair)[first]["pair"]["epoch"]
    ildm(pair, first, "pub", "-t", "door", "-m", "open", "-q", "1", "-r")
    pair.run(STOP.replace("node-a", first))
    wait_for(lambda: owns(pair, second), "the next owner")
    pair.run(START.replace("node-a", first))
    assert settled(pair) == (second, first)
    assert statuses(pair)[second]["pair"]["epoch"] > epoch
    assert ildm(pair, second, "sub", "-t", "#", "-C", "1", "-W", "60") == "door open\n"

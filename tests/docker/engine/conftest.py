"""One engine, and the testbed in it, for all tests here: they are started once, and take a minute or two."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docker.engine.engine import Engine, require_engine
from tests.docker.engine.project import copy_project
from tests.docker.engine.testbed import Testbed
from tests.docker.files import PROJECT
from tests.support.brokers import require_broker

LOAD = PROJECT / ".ci/containers/load"


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """An engine with stand-ins for the images that docker/ takes from a registry."""
    require_engine()
    for name in ("mosquitto", "activemq", "rabbitmq", "moquette"):
        require_broker(name)
    with Engine() as running:
        running.run(LOAD, timeout=480)
        yield running


@pytest.fixture(scope="module")
def testbed(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Testbed:
    """Four sites, started with the commands of docker/README.md and healthy."""
    made = Testbed(engine, copy_project(tmp_path_factory.mktemp("containers") / "ildm"))
    made.start()
    return made

"""Fixtures that every test package may use.

``broker_factory(kind, **options)`` starts a broker for one test, which may stop, kill and restart it.
``shared_broker(kind, index=0)`` gives one that runs until the end of the session: begin topics on it with
``topic_root``.
``broker`` runs a test against each make, ``broker_pair`` against two of them (see `broker_pairs`).
"""

from __future__ import annotations

import gc
import os
import signal
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ildm import pytest_plugin
from tests.support.brokers import KINDS, Broker, Fleet
from tests.support.examples import spare

_BROKER_FIXTURES = {
    "ildm_broker",
    "ildm_fleet",
    "ildm_node",
    "broker",
    "broker_factory",
    "broker_pair",
    "fleet",
    "mosquitto",
    "shared_broker",
}

# Nothing that is tried fails for its time: other parts of the tests have the processors, too. The examples
# are the same everywhere and each time; `make hunt` looks for others, and keeps in .hypothesis what fails.
PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fixed", settings(**PATIENT, derandomize=True, database=None))
settings.register_profile("hunt", settings(**PATIENT, print_blob=True))
settings.load_profile("hunt" if os.environ.get("ILDM_HUNT") else "fixed")

# A shell lets what it starts in the background ignore Ctrl-C, and so would every process the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """The fixtures of ildm.testing, also where the project is run from its tree without being installed; what
    `make test` leaves out."""
    if not config.pluginmanager.hasplugin("ildm"):
        config.pluginmanager.register(pytest_plugin, "ildm")
    config.addinivalue_line(
        "markers", "long: more of the same, for make long; left out where -m says nothing else"
    )
    config.option.markexpr = config.option.markexpr or "not long"


_COLLECT_AFTER = (700, 10, 100)
"""Thresholds of the collector of cycles. It looks at all objects a tenth as often as it would: that took
a fifth of the time."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """In 3.11 a finalizer that runs while a source is parsed, and parses itself, makes it fail.

    Modules and tests are there until the end: the collector need not look at them again and again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_COLLECT_AFTER)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """The same, while what the summary needs is imported. At the end all can be collected again."""
    gc.unfreeze()
    gc.collect()
    gc.disable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs a real broker, so that ``-m "not broker"`` runs the rest alone.

    With ``ILDM_SPREAD`` leave out what `spare` tells.
    """
    for item in items:
        if _BROKER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("broker")
    if os.environ.get("ILDM_SPREAD"):
        left_out = spare(items)
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def fleet(ildm_fleet: Fleet) -> Fleet:
    """The brokers that live as long as the session."""
    return ildm_fleet


@pytest.fixture
def broker_factory(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """``broker_factory(kind, **options)`` starts a broker that only this test uses."""
    fleet = Fleet(tmp_path)
    yield fleet.start
    fleet.close()


@pytest.fixture
def shared_broker(fleet: Fleet) -> Callable[..., Broker]:
    """``shared_broker(kind, index=0)`` gives a running broker that other tests use, too."""
    return fleet.shared


@pytest.fixture
def mosquitto(fleet: Fleet) -> Broker:
    """The shared Mosquitto."""
    return fleet.shared("mosquitto")


@pytest.fixture(params=KINDS)
def broker(request: pytest.FixtureRequest, fleet: Fleet) -> Broker:
    """Each make in turn, shared."""
    return fleet.shared(request.param)


@pytest.fixture
def broker_pair(request: pytest.FixtureRequest, fleet: Fleet) -> tuple[Broker, Broker]:
    """Two shared brokers; parametrize it indirectly with pairs of names, such as `broker_pairs` gives."""
    first, second = request.param
    return fleet.shared(first), fleet.shared(second, 1 if second == first else 0)


@pytest.fixture
def topic_root() -> str:
    """A topic level that no other test uses, to begin topics with on a shared broker."""
    return f"t{uuid.uuid4().hex[:12]}"

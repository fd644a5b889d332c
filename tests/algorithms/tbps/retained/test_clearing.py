"""When the local broker is to forget what is retained; deletions it has nothing for."""

from __future__ import annotations

from typing import Any

from ildm.api import STAMP_PROPERTY, Injections
from ildm.mqtt import Property, Publish
from ildm_algorithms.exchange.fetched import Fetched
from ildm_algorithms.exchange.repeated import deleted
from ildm_algorithms.tbps.retained.clearing import WAITING, Clearing
from tests.algorithms.fake_api import FakeApi


def clearing_of() -> tuple[Any, Clearing, list[str]]:
    api = FakeApi()
    cleared: list[str] = []
    clearing = Clearing(api, cleared.append)  # type: ignore[arg-type]
    return api, clearing, cleared


def test_what_nobody_subscribes_to_goes_a_second_later() -> None:
    api, clearing, cleared = clearing_of()
    clearing.session(established=True)
    clearing.unsubscribed("a/#")
    assert cleared == []
    api.run(1.5)
    assert cleared == ["a/#"]
    clearing.replaced("a/b")
    assert cleared == ["a/#", "a/b"]


def test_while_the_broker_is_away_nothing_goes() -> None:
    api, clearing, cleared = clearing_of()
    clearing.session(established=True)
    clearing.unsubscribed("a/#")
    clearing.session(established=False)
    clearing.replaced("b")
    api.run(10)
    assert cleared == []
    clearing.session(established=True)
    api.run(0.5)
    clearing.session(established=False)  # it was there for half a second
    api.run(10)
    assert cleared == []
    clearing.session(established=True)
    clearing.session(established=True)
    clearing.session(established=False)
    api.run(1.5)
    assert sorted(cleared) == ["a/#", "b"]
    api.run(10)
    assert len(cleared) == 2


def test_nor_while_it_is_behind() -> None:
    api, clearing, cleared = clearing_of()
    clearing.session(established=True)
    api.injections = Injections(5, 3)
    clearing.unsubscribed("a/#")
    api.run(10)
    assert cleared == []
    api.injections = Injections(6, 6)
    api.run(1.5)
    assert cleared == ["a/#"]


def test_what_waits_is_bounded() -> None:
    api, clearing, cleared = clearing_of()
    clearing.session(established=True)
    clearing.session(established=False)
    for number in range(WAITING + 3):
        clearing.unsubscribed(f"t/{number}")
    api.run(2)
    assert cleared == [f"t/{number}" for number in range(WAITING, WAITING + 3)]


def stamped(topic: str, time: int, payload: bytes = b"x") -> Publish:
    users = [("k", "v"), (STAMP_PROPERTY, f"{time}:n0")]
    return Publish(topic=topic, payload=payload, retain=True, properties={Property.USER_PROPERTY: users})


def test_what_is_older_than_a_deletion_is_retained_no_more() -> None:
    fetched = Fetched(most=2)
    fetched.add_deletion(stamped("t", 5, b""))
    fetched.add_deletion(stamped("t", 3, b""))
    assert fetched.is_deleted(stamped("t", 4))
    assert not fetched.is_deleted(stamped("t", 5))
    assert not fetched.is_deleted(stamped("u", 4))
    message = deleted(stamped("t", 4))
    assert not message.retain
    assert message.properties[Property.USER_PROPERTY] == [("k", "v")]
    for topic in "uv":
        fetched.add_deletion(stamped(topic, 5, b""))
    assert not fetched.is_deleted(stamped("t", 4))
    assert fetched.is_deleted(stamped("v", 4))

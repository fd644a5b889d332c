"""Filters of sessions that the broker has, told by an administrator."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.admin.view import AdminError
from ildm.core.local import session_import
from ildm.core.local.session_import import ImportRefusedError, KnownSession, SessionImport
from ildm.mqtt import Property, Publish, Subscribe, Subscription, Version
from ildm.net.clients_view import import_sessions
from ildm.testing.virtual.session import Session
from ildm.testing.virtual.world import World
from tests.support.site import Site, row

LONG = {Property.SESSION_EXPIRY_INTERVAL: 1000}


def told(site: Site, *sessions: tuple[str, dict[str, int], int | None]) -> dict[str, Any]:
    """What the node answers to an import."""
    answers: list[dict[str, Any]] = []
    rows = [
        {"client_id": client_id, "filters": filters, "expiry": expiry}
        for client_id, filters, expiry in sessions
    ]
    import_sessions(site.node, SessionImport(site.node.clients), rows, answers.append)
    site.world.run(1)
    site.node.clients.check()
    return answers[0]


def heard(site: Site, other: Site) -> dict[str, int]:
    return dict(other.node.links.links[site.name].interest)


def back(site: Site, client_id: str, version: Version = Version.V311) -> Any:
    properties = LONG if version is Version.V5 else {}
    return site.client(client_id, clean_start=False, version=version, properties=properties)


def test_a_client_that_is_away_gets_what_is_published_meanwhile(world: World) -> None:
    a, b = row(world, "ab", "sf")
    b.broker.sessions["old"] = Session("old")
    assert told(b, ("old", {"m/#": 1, "$SYS/x": 0}, None)) == {
        "sessions": 1,
        "filters": 2,
        "skipped": 0,
        "unknown": 0,
    }
    assert heard(b, a) == {"m/#": 1}
    a.client("pub").send(Publish(topic="m/1", payload=b"x", qos=1, packet_id=1))
    world.run(1)
    assert b.broker.topics() == ["m/1"]
    back(b, "old")
    world.run(1)
    assert heard(b, a) == {"m/#": 1}, "the broker's session is known, although the node has not seen it begin"


def test_it_outlives_a_restart(world: World) -> None:
    a, b = row(world, "ab", "sf")
    told(b, ("old", {"m/#": 1}, 5000))
    b.crash()
    world.run(1)
    b.start(neighbors=("a",))
    world.run(3)
    assert heard(b, a) == {"m/#": 1}
    assert b.node.clients.records["old"].expiry == 5000


def test_a_session_that_expires_is_forgotten(world: World) -> None:
    a, b = row(world, "ab", "sf")
    told(b, ("old", {"m/#": 1}, 60))
    world.run(30)
    assert heard(b, a) == {"m/#": 1}
    world.run(40)
    assert heard(b, a) == {}
    assert b.node.counters["sessions_expired"] == 1


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_clients_that_are_named_want_everything_no_more_and_others_do(world: World, version: Version) -> None:
    a, b = row(world, "ab", "sf")
    for name in ("old", "other"):
        b.broker.sessions[name] = Session(name)
        back(b, name, version)
    assert told(b, ("old", {"m": 1}, None))["unknown"] == 1
    assert heard(b, a) == {"#": 2}
    assert told(b, ("other", {}, None))["unknown"] == 0
    assert heard(b, a) == {"m": 1}
    assert b.node.counters["sessions_imported"] == 2


def test_filters_since_the_client_is_back_stay_as_they_are(world: World) -> None:
    a, b = row(world, "ab", "sf")
    b.broker.sessions["old"] = Session("old")
    subscriptions = [Subscription(topic_filter="m", qos=0), Subscription(topic_filter="n", qos=2)]
    back(b, "old").send(Subscribe(packet_id=1, subscriptions=subscriptions))
    world.run(1)
    told(b, ("old", {"m": 2, "o": 1}, None))
    assert heard(b, a) == {"m": 0, "n": 2, "o": 1}


def test_a_session_that_ends_with_its_connection_is_no_older_one(world: World) -> None:
    a, b = row(world, "ab", "sf")
    b.client("new", clean_start=True)
    told(b, ("new", {"m": 1}, None))
    assert heard(b, a) == {}


def test_the_node_s_own_sessions_are_skipped(world: World) -> None:
    _, b = row(world, "ab", "sf")
    assert told(b, ("ildm-b-0", {"m": 1}, None), ("old", {"n": 1}, None))["skipped"] == 1
    assert list(b.node.clients.records) == ["old"]


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"persistent_sessions": 1}, r"2 sessions whose clients are away, 1 left by .*persistent_sessions"),
        ({"subscriptions_per_client": 1}, r"'two', filter 'c': exceeds limits.subscriptions_per_client"),
        ({"all_subscription_bytes": 1700}, r"'two', filter 'b': exceeds limits.all_subscription_bytes"),
        ({"topic_levels": 1}, r"'one', filter 'm/n': exceeds limits.topic_levels"),
    ],
)
def test_beyond_a_limit_none_is_taken(world: World, limits: dict[str, int], text: str) -> None:
    b = Site(world, "b", "sf", limits=limits)
    world.run(1)
    with pytest.raises(AdminError, match=text):
        told(b, ("one", {"m/n": 1}, None), ("two", {"b": 1, "c": 1}, None))
    assert b.node.clients.records == {}
    assert b.node.clients.interest.maximum == {}


def test_a_node_without_links_takes_none(world: World) -> None:
    site = Site(world, "b", None)
    with pytest.raises(AdminError, match="without an algorithm"):
        told(site, ("old", {"m": 1}, None))


def test_many_are_taken_some_at_a_time_and_one_import_after_the_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_import, "PART", 3)
    _, b = row(world, "ab", "sf")
    importer, done = SessionImport(b.node.clients), []
    sessions = [KnownSession(f"c{number}", {"m": 1, f"t/{number}": 1}, 100) for number in range(9)]
    importer.begin(sessions, lambda: done.append(1))
    assert (len(b.node.clients.records), done) == (1, [])
    with pytest.raises(ImportRefusedError, match="under way"):
        importer.begin(sessions, lambda: done.append(2))
    world.run(1)
    assert (len(b.node.clients.records), done) == (9, [1])
    importer.begin(sessions, lambda: done.append(3))
    world.run(1)
    assert (len(b.node.clients.records), b.node.clients.filters, done) == (9, 18, [1, 3])

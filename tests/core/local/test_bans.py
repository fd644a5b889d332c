"""Who is kept out stays out, over restarts, until the ban is over or lifted."""

from __future__ import annotations

import pytest

from ildm.core.local import bans
from ildm.core.local.bans import Ban, TooManyBansError
from ildm.core.tables import BANS
from ildm.mqtt import ConnAck, Connect, Version
from ildm.testing.virtual.store import MemoryStore
from ildm.testing.virtual.world import World
from tests.support.site import Site


@pytest.fixture
def site() -> Site:
    return Site(World(), "a", "pf")


def answer(site: Site, client_id: str = "c", version: Version = Version.V5, user: str | None = None) -> int:
    """Return code or reason code that a client gets."""
    client = site.client(client_id, Connect(client_id=client_id, version=version, username=user))
    (connack,) = client.got(ConnAck)
    client.transport.abort()
    site.world.run(0.1)
    return int(connack.reason_code)


def test_each_kind_bars_those_it_names_and_no_others(site: Site) -> None:
    site.node.bans.add(Ban("client", "bad", None))
    site.node.bans.add(Ban("user", "eve", None))
    assert [answer(site, "bad"), answer(site, "bad", Version.V311)] == [0x8A, 5]
    assert [answer(site, "x", user="eve"), answer(site, "eve"), answer(site, "x", user="bad")] == [0x8A, 0, 0]
    assert site.node.counters["clients_banned"] == 3
    assert "bad" not in site.broker.sessions


def test_an_address_bars_all_of_its_clients(site: Site) -> None:
    client = site.client("seen")
    (session,) = site.node.sessions
    address = session.peer.rpartition(":")[0]
    client.transport.abort()
    site.node.bans.add(Ban("address", address, None))
    assert answer(site) == 0x8A
    assert site.node.bans.lift("address", address)
    assert answer(site) == 0


def test_a_ban_ends(site: Site) -> None:
    site.node.bans.add(Ban("client", "c", site.node.driver.wall() + 10))
    assert answer(site) == 0x8A
    site.world.run(10)
    assert answer(site) == 0
    assert list(site.node.bans) == []
    assert not site.store.rows(BANS)
    assert not site.node.bans.lift("client", "c")


def test_bans_are_there_again_after_a_restart(site: Site) -> None:
    until = site.node.driver.wall() + 1000
    for each in (
        Ban("client", "c", None),
        Ban("user", "eve", until),
        Ban("address", "192.0.2.1", until - 999),
    ):
        site.node.bans.add(each)
    site.kill()
    site.world.run(5)
    site.start()
    assert list(site.node.bans) == [Ban("client", "c", None), Ban("user", "eve", until)]
    assert answer(site) == 0x8A


def test_rows_that_are_no_bans_are_set_aside() -> None:
    store = MemoryStore()
    store.put(BANS, ("planet", "x"), (None,))
    store.put(BANS, ("client", "y"), (None,))
    site = Site(World(), "a", "pf", store=store)
    assert list(site.node.bans) == [Ban("client", "y", None)]


def test_their_number_is_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bans, "MOST", 2)
    for name in "aab":
        site.node.bans.add(Ban("client", name, None))
    with pytest.raises(TooManyBansError):
        site.node.bans.add(Ban("client", "c", None))
    site.node.bans.add(Ban("client", "a", 1.0))  # it is over, and makes room
    site.node.bans.add(Ban("client", "c", None))

"""Inter-subscriptions of many filters are taken in slices, each in a turn of its own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.core.link.interest import FILTERS_PER_PACKET
from ildm.core.link.slices import FILTERS_AT_ONCE, Slices, sliced
from ildm.mqtt import (
    MalformedPacket,
    MqttError,
    Publish,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
    decode,
    frame_bounds,
)
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.site import Site, row, session_of

MANY = [f"many/{number}" for number in range(FILTERS_PER_PACKET)]
LATER = -(-FILTERS_PER_PACKET // FILTERS_AT_ONCE) - 1
"""Slices of so many filters, but the first."""
NAMES = st.lists(
    st.text("ab/+", min_size=1, max_size=200).map(lambda text: text.replace("+", "x")), min_size=1
)


def packet_of(names: list[str], wanted: bool = True) -> Subscribe | Unsubscribe:
    if not wanted:
        return Unsubscribe(packet_id=7, topic_filters=names)
    entries = [Subscription(topic_filter=name, qos=number % 3) for number, name in enumerate(names)]
    return Subscribe(packet_id=7, subscriptions=entries)


def slices_of(packet: Subscribe | Unsubscribe) -> Slices:
    frame = packet.encode(Version.V5)
    return Slices(frame, frame_bounds(frame, 0)[0])


@given(NAMES, st.booleans(), st.integers(1, 5))
def test_slices_are_the_packet(names: list[str], wanted: bool, most: int) -> None:
    packet = packet_of(names, wanted)
    frame = packet.encode(Version.V5)
    parts: list[Any] = [decode(part, Version.V5) for part in sliced(frame, frame_bounds(frame, 0)[0], most)]
    found = [part.subscriptions if wanted else part.topic_filters for part in parts]
    assert [one for part in found for one in part] == (
        packet.subscriptions if isinstance(packet, Subscribe) else packet.topic_filters
    )
    assert all(len(part) == most for part in found[:-1])
    assert {(type(part), part.packet_id) for part in parts} == {(type(packet), 7)}


@given(NAMES, st.booleans(), st.data())
def test_a_malformed_packet_is_no_better_in_slices(names: list[str], wanted: bool, data: Any) -> None:
    frame = bytearray(packet_of(names, wanted).encode(Version.V5))
    begin = frame_bounds(bytes(frame), 0)[0]
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(begin, len(frame) - 1))] = data.draw(st.integers(0, 255))

    def is_read(parts: list[bytes]) -> bool:
        try:
            for part in parts:
                decode(part, Version.V5)
        except MqttError:
            return False
        return True

    broken = bytes(frame)
    assert is_read(sliced(broken, begin, 2)) == is_read([broken])


def test_a_packet_of_more_filters_than_any_node_sends_is_refused() -> None:
    slices_of(packet_of(MANY))
    with pytest.raises(MalformedPacket, match="501 filters"):
        slices_of(packet_of([*MANY, "one/more"]))


# sessions ---------------------------------------------------------------------------------------


def told(site: Site) -> MiniClient:
    """A packet of many filters and a message behind it have come of a neighbour at once."""
    client = site.subscriber("here/#")
    site.world.run(1)
    message = Publish(topic="here/t", payload=b"behind").encode(Version.V5)
    session_of(site, "a").data_received(packet_of(MANY).encode(Version.V5) + message)
    return client


def test_what_comes_behind_waits_for_all_filters(world: World) -> None:
    _, b = row(world, "ab", "pf")
    client = told(b)
    link, session = b.node.links.links["a"], session_of(b, "a")
    assert len(link.received_interest.filters) == FILTERS_AT_ONCE
    assert link.received_interest.packets == 0, "not all of the packet is known here"
    assert session.paused
    session.data_received(Publish(topic="here/t", payload=b"last").encode(Version.V5))
    world.run(0)
    assert dict(link.received_interest.filters) == {name: n % 3 for n, name in enumerate(MANY)}
    assert link.received_interest.packets == 1
    assert b.node.counters["interest_put_off"] == LATER
    assert not session.paused
    world.run(1)
    assert client.messages == [("here/t", b"behind"), ("here/t", b"last")]


def test_nothing_is_lost_where_the_connection_ends_amid(world: World) -> None:
    _, b = row(world, "ab", "pf")
    client = told(b)
    session = session_of(b, "a")
    session.transport.abort()  # type: ignore[union-attr]
    session.status = type(session.status).ESTABLISHED
    session.connection_lost(ConnectionResetError())
    assert len(b.node.links.links["a"].received_interest.filters) == len(MANY)
    world.run(1)
    assert client.messages == [("here/t", b"behind")]


def test_a_session_that_is_ended_here_takes_no_more(world: World) -> None:
    a, b = row(world, "ab", "pf")
    client = told(b)
    interest = b.node.links.links["a"].received_interest
    session_of(b, "a").close()
    world.run(0.001)
    assert len(interest.filters) == FILTERS_AT_ONCE
    world.run(60)
    assert (a.links(), b.links()) == ({"b": "active"}, {"a": "active"})
    assert not interest.filters, "the neighbour has repeated what it wants: nothing"
    assert not client.messages


def test_others_are_served_between_slices_and_all_is_acknowledged_at_once(world: World) -> None:
    a, b = row(world, "ab", "sf")
    link = a.node.links.links["b"]
    link.inter_subscribe(dict.fromkeys(MANY, 1))
    link.inter_unsubscribe(MANY[: FILTERS_AT_ONCE + 1])
    world.run(1)
    assert b.node.links.links["a"].interest == link.announced
    assert len(link.announced) == len(MANY) - FILTERS_AT_ONCE - 1
    assert not link.announcer.behind
    assert b.node.counters["interest_put_off"] == LATER + 1

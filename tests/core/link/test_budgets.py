"""Links with a rate: what they carry in any time, what waits, and what a neighbour may ask for."""

from __future__ import annotations

import pytest

from ildm.config import Address, LinkConfig
from ildm.config.rate import RateConfig
from ildm.core.link.budgets import Limit, decoded, encoded
from ildm.core.link.control import BUDGET, send_control
from ildm.core.transfer.budget import Budget
from ildm.mqtt import MalformedPacket, PingReq, Publish, Version
from ildm.net.neighbors_view import neighbor_rows
from ildm.testing.virtual.pipe import Pipe
from ildm.testing.virtual.recount import recount
from ildm.testing.virtual.world import World
from tests.core.link.test_features import reload
from tests.support.rings import cut
from tests.support.site import Site, row, session_of

RATE = 8000
BURST = 2000
SLOW = {"rate": {"out": "64kbit", "burst": "250ms"}}


def pipe(near: Site, far: str, index: int = 0) -> Pipe:
    transport = session_of(near, far, index).transport
    transport = getattr(transport, "_transport", transport)
    assert isinstance(transport, Pipe)
    return transport


class Meter:
    """Notes when how many bytes go over connections of a world."""

    def __init__(self, world: World, *pipes: Pipe) -> None:
        self.gone: list[tuple[float, int]] = []
        for each in pipes:
            each.metered = lambda size: self.gone.append((world.time, size))

    def most(self, seconds: float) -> int:
        """Most bytes of any such time."""
        most = size = first = 0
        for when, more in self.gone:
            size += more
            while self.gone[first][0] <= when - seconds:
                size -= self.gone[first][1]
                first += 1
            most = max(most, size)
        return most


def flood(site: Site, count: int, qos: int = 1, size: int = 150, name: str = "p") -> list[str]:
    client = site.client(name)
    topics = [f"t/{name}/{number}" for number in range(count)]
    for number, topic in enumerate(topics):
        packet_id = number + 1 if qos else None
        client.send(Publish(topic=topic, payload=b"x" * size, qos=qos, packet_id=packet_id))
    return topics


def queued(site: Site, far: str) -> int:
    return site.node.links.links[far].queued


# the bucket -----------------------------------------------------------------------------------------


def test_a_bucket_gives_the_rate_and_the_burst_in_any_time() -> None:
    budget, now, gone = Budget(0.0, RATE, BURST, 1), 0.0, 0
    while now < 10:
        now += budget.wait(now)
        budget.take(now, budget.share)
        gone += budget.share
    assert RATE * 10 * 0.95 <= gone <= RATE * 10 + BURST
    assert budget.used(now) == pytest.approx(gone / (RATE * now), rel=0.05)
    assert budget.used(now + 100) == 0


def test_a_debt_is_paid_before_more_goes() -> None:
    budget = Budget(0.0, RATE, BURST, 1)
    budget.take(0.0, BURST // 2 + 10 * RATE)
    assert budget.wait(0.0) == pytest.approx(10)
    budget.limit(5.0, 2 * RATE, BURST, 1)
    assert budget.wait(5.0) == pytest.approx(2.5)
    assert budget.wait(100.0) == 0


def test_a_pause_saves_no_more_than_the_burst() -> None:
    budget = Budget(0.0, RATE, BURST, 1)
    budget.take(1000.0, BURST // 2 + RATE)
    assert budget.wait(1000.0) == pytest.approx(1)


# on links -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("size", [20, 150, 3000])
def test_a_link_keeps_to_its_rate_and_loses_nothing(
    world: World, algorithm: str, qos: int, size: int
) -> None:
    a, b = row(world, "ab", algorithm, link=SLOW)
    b.subscriber("t/#", qos=2)
    meter = Meter(world, pipe(a, "b"))
    count = 30 * RATE // (size + 20)
    topics = flood(a, count, qos, size)
    world.run(20)
    assert b.broker.topics() != topics
    assert queued(a, "b")
    whole = size + 100
    assert meter.most(10) <= 1.05 * (10 * RATE) + BURST + whole
    assert meter.most(1) <= RATE + BURST + whole
    assert meter.most(10) >= 0.9 * 10 * RATE
    world.run(60)
    assert b.broker.topics() == topics
    assert a.node.counters["link_budget_waited_bytes"] > 0


def test_a_link_without_a_rate_has_no_pacer(world: World) -> None:
    a, b = row(world, "ab", "pf")
    link = a.node.links.links["b"]
    assert link.budget is None
    assert all(sender.wire.pacer is None for sender in link.senders)
    topics = flood(a, 1000)
    world.run(2)
    assert b.broker.topics() == topics


@pytest.mark.parametrize("delay", [0.0, 0.05])
@pytest.mark.parametrize("sessions", [1, 4])
def test_sessions_share_the_rate(world: World, sessions: int, delay: float) -> None:
    a, b = row(world, "ab", "pf", link={**SLOW, "sessions": sessions, "delay": delay})
    meter = Meter(world, *(pipe(a, "b", index) for index in range(sessions)))
    for name in "klmnopqr":
        flood(a, 200, 1, 150, name)
    world.run(20)
    assert 0.9 * 10 * RATE <= meter.most(10) <= 1.05 * 10 * RATE + BURST
    world.run(60)
    assert len(b.broker.topics()) == 1600


def test_bytes_behind_compression_count(world: World) -> None:
    a, b = row(world, "ab", "pf", link={**SLOW, "compression": "auto"})
    meter = Meter(world, pipe(a, "b"))
    topics = flood(a, 10_000)
    world.run(11)
    assert meter.most(10) <= 1.05 * 10 * RATE + BURST
    assert len(b.broker.topics()) * 150 > 3 * 10 * RATE
    world.run(60)
    assert b.broker.topics() == topics


def test_messages_wait_in_the_queue_alone(world: World) -> None:
    """What is under way is no more than two round trips and a second take."""
    a, b = row(world, "ab", "pf", link=SLOW)
    pipe(a, "b").rate = 2000  # the network is thinner than the rate
    flood(a, 1000)
    for _ in range(20):
        world.run(1)
        sender = a.node.links.links["b"].senders[0]
        assert sender._window.bytes <= 1.1 * RATE
        assert pipe(a, "b").buffered <= BURST
    assert b.broker.topics()


def test_a_message_larger_than_the_burst_goes_whole_and_is_paid_for(world: World) -> None:
    a, b = row(world, "ab", "pf", link=SLOW)
    topics = flood(a, 1, size=10 * RATE) + flood(a, 5, name="q")
    world.run(5)
    assert b.broker.topics() == topics[:1]
    world.run(8)
    assert b.broker.topics() == topics


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("delay", [0.0, 0.05])
def test_the_rest_of_a_batch_follows(world: World, qos: int, delay: float) -> None:
    """One message takes less than a write may have, and two take more."""
    a, b = row(world, "ab", "pf", link={**SLOW, "sessions": 2, "delay": delay})
    client = a.client("p")
    frames = [
        Publish(topic=f"t/{number}", payload=b"x" * 300, qos=qos, packet_id=number + 1 if qos else None)
        for number in range(2)
    ]
    client.transport.write(b"".join(frame.encode(Version.V311) for frame in frames))
    world.run(5)
    assert b.broker.topics() == ["t/0", "t/1"]


@pytest.mark.parametrize("inflight", [1, 5])
def test_what_waits_for_acknowledgements_is_not_tried_again_and_again(world: World, inflight: int) -> None:
    world.latency = 0.2
    a, b = row(world, "ab", "pf", link={**SLOW, "inflight": inflight})
    client = a.client("p")
    frames = [
        Publish(topic=f"t/{number}", payload=b"x" * 150, qos=1, packet_id=number + 1) for number in range(50)
    ]
    client.transport.write(b"".join(frame.encode(Version.V311) for frame in frames))
    before = world.events
    world.run(4)
    assert queued(a, "b")
    assert world.events - before < 400
    world.run(20)
    assert len(b.broker.topics()) == 50


def test_a_clock_that_goes_on_leaves_no_message_behind(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens may come between two looks at the clock in one event."""
    a, b = row(world, "ab", "pf", link=SLOW)

    def now() -> float:
        world.time += 1e-4
        return world.time

    monkeypatch.setattr(a.driver, "now", now)
    topics = flood(a, 400)
    for _ in range(30):
        world.run(0.5)
        a.node.links.links["b"].senders[0].wire.write(PingReq().encode(Version.V5))  # a look finds debts
    world.run(10)
    assert b.broker.topics() == topics


def test_acknowledgements_do_not_wait(world: World) -> None:
    a, b = Site(world, "a", "pf", link={"rate": {"out": 125}}), Site(world, "b", "pf")
    b.node.links.add(Address("a", 2), False)
    world.run(2)
    flood(a, 100, name="a")
    topics = flood(b, 20, qos=2, name="b")
    world.run(1)
    assert a.broker.topics()[-20:] == topics
    assert queued(a, "b")
    assert b.node.links.links["a"].senders[0].inflight == 0


def test_answers_beyond_the_rate_hold_back_what_they_answer(world: World) -> None:
    """The neighbour is read no further for a while; nothing is lost, and the link stays."""
    a, b = Site(world, "a", "pf", link={"rate": {"out": 125}}), Site(world, "b", "pf")
    b.node.links.add(Address("a", 2), False)
    world.run(2)
    since = a.node.links.links["b"].since
    flood(a, 20, name="a")
    world.run(1)
    topics = [flood(b, 1000, 1, 20, name) for name in "klmn"]
    world.run(5)
    assert a.node.counters["link_budget_overdrawn"] > 0
    assert len(a.broker.topics()) < 4000
    world.run(600)
    assert set(a.broker.topics()) >= {topic for each in topics for topic in each}
    assert a.node.links.links["b"].since == since


def test_a_rate_outlives_a_connection(world: World) -> None:
    a, b = row(world, "ab", "pf", link=SLOW)
    flood(a, 1000)
    world.run(3)
    cut(b, a, dark=False)
    world.run(3)
    meter = Meter(world, pipe(a, "b"))
    world.run(11)
    assert meter.most(10) <= 1.05 * 10 * RATE + BURST


def test_the_use_of_a_rate_is_told(world: World) -> None:
    a, b = row(world, "ab", "pf", link={**SLOW, "compression": "deflate"})
    assert neighbor_rows(b.node)[0]["rate"]["used"] < 0.1
    client = a.client("p")
    for number in range(1000):
        client.send(Publish(topic="t", payload=world.random.randbytes(300), qos=1, packet_id=number + 1))
    world.run(15)
    told = neighbor_rows(a.node)[0]
    assert told["rate"]["bytes"] == RATE
    assert 0.8 <= told["rate"]["used"] <= 1.1
    assert told["rate"]["waited"] == a.node.counters["link_budget_waited_bytes"] > 100_000
    ours, theirs = told["compression"], neighbor_rows(b.node)[0]["compression"]
    for kind in ("plain", "coded"):
        assert ours[f"{kind}_out"] == a.node.counters[f"link_{kind}_bytes_out"] > 10_000
        assert abs(ours[f"{kind}_out"] - theirs[f"{kind}_in"]) < 2 * BURST * (10 if kind == "plain" else 1)


# what the neighbour wants ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "wish", "holds"), [(None, 8000, 8000), (16000, 8000, 8000), (8000, 16000, 8000)]
)
def test_the_smaller_of_both_rates_holds(world: World, own: int | None, wish: int, holds: int) -> None:
    a = Site(world, "a", "pf", link={"rate": {"out": own}})
    b = Site(world, "b", "pf", link={"rate": {"in": wish}})
    b.node.links.add(Address("a", 2), False)
    world.run(2)
    budget = a.node.links.links["b"].budget
    assert budget is not None
    assert budget.rate == holds
    assert b.node.links.links["a"].budget is None
    meter = Meter(world, pipe(a, "b"))
    flood(a, 2000)
    world.run(12)
    assert 0.9 * 10 * holds <= meter.most(10) <= 1.05 * 10 * holds + budget.burst


def test_a_neighbour_without_the_feature_is_not_asked(world: World) -> None:
    a = Site(world, "a", "pf", link={"features": {"disabled": ["budget"]}})
    b = Site(world, "b", "pf", link={"rate": {"in": RATE}})
    b.node.links.add(Address("a", 2), False)
    world.run(2)
    assert a.node.links.links["b"].budget is None
    assert a.node.counters["link_unknown_control"] == 0


def test_rates_change_while_messages_wait(world: World) -> None:
    a, b = row(world, "ab", "pf")
    topics = flood(a, 1)
    reload(world, a, rate=RateConfig(out=RATE))
    reload(world, b, rate=RateConfig(in_=RATE // 2))
    world.run(1)
    budget = a.node.links.links["b"].budget
    assert budget is not None
    assert budget.rate == RATE // 2
    topics += flood(a, 1000, name="q")
    world.run(5)
    reload(world, b, rate=RateConfig())
    world.run(0.1)
    assert budget.rate == RATE
    assert queued(a, "b")
    reload(world, a, rate=RateConfig())
    world.run(1)
    assert a.node.links.links["b"].budget is None
    assert b.broker.topics() == topics


def test_a_wish_ends_with_a_neighbour_that_has_none_any_more(world: World) -> None:
    a, b = row(world, "ab", "pf")
    reload(world, b, rate=RateConfig(in_=RATE))
    world.run(1)
    cut(b, a, dark=False)
    b.node.config.link.__dict__["rate"] = RateConfig()  # the news of that is lost
    world.run(5)
    assert a.links() == {"b": "active"}
    assert a.node.links.links["b"].budget is None


def test_a_wish_is_said_again_on_each_connection(world: World) -> None:
    a, b = row(world, "ab", "pf", link={"rate": {"in": RATE}})
    cut(b, a, dark=False)
    world.run(5)
    for site, far in ((a, "b"), (b, "a")):
        budget = site.node.links.links[far].budget
        assert budget is not None
        assert budget.rate == RATE


@pytest.mark.parametrize("limit", [None, Limit(125, 1024), Limit(10 << 30, 1 << 32)])
def test_a_wish_is_decoded_as_it_was(limit: Limit | None) -> None:
    assert decoded(encoded(limit)) == limit


NONSENSE = [
    b"",
    b"[]",
    b"1",
    b"{}",
    b"null",
    b"\xff",
    b'{"rate":8000}',
    b'{"rate":-1,"burst":2000}',
    b'{"rate":8000,"burst":-1}',
    b'{"rate":8000,"burst":0}',
    b'{"rate":0,"burst":"none"}',
    b'{"rate":1,"burst":2000}',
    b'{"rate":true,"burst":2000}',
    b'{"rate":8000.5,"burst":2000}',
    b'{"rate":"8000","burst":2000}',
    b'{"rate":null,"burst":null}',
    b'{"rate":NaN,"burst":2000}',
    b'{"rate":Infinity,"burst":2000}',
    b'{"rate":1e400,"burst":2000}',
    b'{"rate":99999999999999999999,"burst":2000}',
    b'{"rate":8000,"burst":99999999999999999999}',
    b'{"rate":' + b"9" * 5000 + b',"burst":2000}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("payload", NONSENSE, ids=lambda payload: payload[:40].decode(errors="replace"))
def test_nonsense_ends_the_session_and_changes_nothing(world: World, payload: bytes) -> None:
    with pytest.raises(MalformedPacket):
        decoded(payload)
    a, b = row(world, "ab", "pf")
    send_control(b.node.links.links["a"], BUDGET, payload)
    world.run(0.05)
    assert a.node.counters["link_malformed"] == 1
    assert a.node.links.links["b"].budget is None
    world.run(5)
    assert a.links() == {"b": "active"}


def test_wishes_that_never_end_hold_up_no_message_for_good(world: World) -> None:
    """A neighbour that says one rate after the other gets what the lowest of them lets go, at least."""
    a, b = row(world, "ab", "pf")
    at_b = b.node.links.links["a"]
    topics = flood(a, 60)
    for turn in range(500):
        send_control(at_b, BUDGET, encoded((None, Limit(4000, 1024), Limit(10 << 30, 1 << 32))[turn % 3]))
        send_control(at_b, BUDGET, encoded(Limit(1000, 1024)))
        world.run(0.05)
        recount(a.node)
    assert b.broker.topics() == topics
    assert a.node.counters["link_malformed"] == 0


def test_a_rate_of_one_neighbour_is_for_it_alone(world: World) -> None:
    neighbors = [{"url": "z:2", "id": "b", "rate": {"out": RATE}}]
    config = LinkConfig.model_validate({"neighbors": neighbors, "rate": {"out": 2 * RATE}})
    assert config.rate_of("b", None).out == RATE
    assert config.rate_of("c", "z:2").out == RATE
    assert config.rate_of("c", None).out == 2 * RATE
    assert config.most_unsent == BURST
    assert LinkConfig().most_unsent is None


@pytest.mark.parametrize(
    ("given", "bytes_a_second"),
    [
        ("64kbit", 8000),
        ("1mbit", 125_000),
        ("16 kB", 16_000),
        ("16KiB", 16_384),
        (9000, 9000),
        ("1.5Mbit", 187_500),
    ],
)
def test_rates_have_units(given: object, bytes_a_second: int) -> None:
    assert LinkConfig.model_validate({"rate": {"out": given}}).rate.out == bytes_a_second


@pytest.mark.parametrize(
    "given", ["64kbaud", "64", 0, -8000, float("nan"), float("inf"), "100bit", "99999gbit", [], True]
)
@pytest.mark.parametrize("key", ["out", "in"])
def test_a_bad_rate_is_refused_by_its_key(given: object, key: str) -> None:
    with pytest.raises(ValueError, match=rf"rate\.{key}"):
        LinkConfig.model_validate({"rate": {key: given}})

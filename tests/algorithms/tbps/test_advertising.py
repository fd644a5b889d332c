"""SUBACK waits until the publishers of a filter know of it: what follows it arrives, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ildm.api import OverlayAlgorithm
from ildm_algorithms.tbps.advertising import APART, MOST, Advertising
from tests.algorithms.fake_api import FakeApi
from tests.algorithms.sites import TOPIC_BASED, Graph

KIND = pytest.mark.parametrize("kind", TOPIC_BASED, ids=lambda kind: kind.__name__)
MANY = 30
"""Topics below one prefix: more than have keys of their own, so that the rest goes through an aggregate."""


class Sites(Graph):
    """Five sites whose subscribers wait for their SUBACK."""

    def __init__(self, kind: type[OverlayAlgorithm[Any]], seed: int = 1, **link: Any) -> None:
        super().__init__(kind, TOPIC_BASED[kind], ["n0", "n1", "n2", "n3", "n4"], seed, **link)
        self.world.run(10)

    def subscribe(
        self, name: str, filters: Sequence[str], granted: Callable[[], None], limit: float = 1.0, qos: int = 2
    ) -> None:
        """As a node does it: ``granted`` is called with SUBACK, ``limit`` seconds later at most."""
        node = self.world[name]
        given = False

        def suback() -> bool:
            nonlocal given
            first, given = not given, True
            if first:
                granted()
            return first

        for topic_filter in filters:
            node.subscribe(topic_filter, qos)
        if node.algorithm.when_known(filters, suback):  # type: ignore[attr-defined]
            suback()
        else:
            self.world.kernel.post(limit, suback)

    def use(self, name: str, prefix: str = "x", number: int = MANY) -> None:
        for at in range(number):
            for _ in range(3):
                self.world[name].publish(f"{prefix}/{at}", b"warm", publisher=1)
        self.world.run(30)


NUMBERS = [str(number) for number in range(20)]


@KIND
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize(
    ("used", "topic_filter", "topic"),
    [
        (MANY, "x/new", "x/new"),  # through an aggregate, which knows of nobody there
        (2, "x/1", "x/1"),  # a publisher with a key of its own, which is suspended
        (0, "x/new", "x/new"),  # one whose first message this is
        (MANY, "x/#", "x/new"),
        (MANY, "+/new", "x/new"),
        (2, "#", "x/1"),
    ],
)
def test_what_is_published_after_suback_arrives_in_order(
    kind: type[OverlayAlgorithm[Any]], qos: int, used: int, topic_filter: str, topic: str
) -> None:
    sites = Sites(kind)
    sites.use("n1", number=used)
    sites.subscribe("n3", [topic_filter], lambda: sites.send("n1", topic, NUMBERS, qos))
    sites.world.run(1.5)
    assert sites.got == {"n3": NUMBERS}
    sites.world.run(15)
    assert sites.got == {"n3": NUMBERS}


@KIND
def test_every_site_and_every_client_of_a_site_waits(kind: type[OverlayAlgorithm[Any]]) -> None:
    """The second client of a site, and the second site, wait as the first one does."""
    sites = Sites(kind)
    sites.use("n1")
    granted: list[str] = []
    for name, client in (("n3", "first"), ("n3", "second"), ("n4", "third")):

        def suback(name: str = name, client: str = client) -> None:
            granted.append(client)
            sites.send("n1", "x/new", [client], 0)

        sites.subscribe(name, ["x/new", "x/none"], suback)
        sites.world.run(0.002)
        assert granted == []
    sites.world.run(1.5)
    assert sorted(granted) == ["first", "second", "third"]
    assert {"first", "second"} <= set(sites.got["n3"])
    assert "third" in sites.got["n4"]
    sites.subscribe("n3", ["x/new"], lambda: granted.append("known"))
    assert granted[-1] == "known"  # nobody has to be told


@KIND
def test_a_filter_that_goes_and_comes_back(kind: type[OverlayAlgorithm[Any]]) -> None:
    sites = Sites(kind)
    sites.use("n1")
    for pause in (5.0, 0.5, 0.05, 0.01, 0.0):
        sites.got.clear()
        sites.subscribe("n3", ["x/new"], lambda: sites.send("n1", "x/new", NUMBERS, 0))
        sites.world.run(1.5)
        assert sites.got == {"n3": NUMBERS}, pause
        sites.world["n3"].unsubscribe("x/new")
        sites.world.run(pause)


@KIND
@pytest.mark.parametrize("seed", range(5))
def test_a_publisher_that_goes_on_all_the_time_is_heard_in_order(
    kind: type[OverlayAlgorithm[Any]], seed: int
) -> None:
    """Nothing from before SUBACK comes behind what follows it."""
    sites = Sites(kind, seed=seed)
    sites.use("n1")
    sent: list[str] = []

    def go_on() -> None:
        sent.append(f"{len(sent):04}")
        sites.send("n1", "x/new", sent[-1:], 1)
        if len(sent) < 3000:
            sites.world.kernel.post(0.0005, go_on)

    granted: list[int] = []
    go_on()
    sites.world.run(0.3)
    sites.subscribe("n3", ["x/new"], lambda: granted.append(len(sent)))
    sites.world.run(20)
    assert sites.got["n3"] == sorted(set(sites.got["n3"]))
    assert sites.got["n3"][-(len(sent) - granted[0]) :] == sent[granted[0] :]


@KIND
def test_a_site_that_does_not_answer_keeps_suback_no_longer_than_the_bound(
    kind: type[OverlayAlgorithm[Any]],
) -> None:
    sites = Sites(kind)
    sites.use("n1")
    sites.use("n2")
    sites.world.kill("n2", silent=True)
    granted: list[float] = []

    def suback() -> None:
        granted.append(sites.world.kernel.now)
        sites.send("n1", "x/new", NUMBERS, 1)

    began = sites.world.kernel.now
    sites.subscribe("n3", ["x/new"], suback)
    sites.world.run(60)
    assert began < granted[0] <= began + 1.0 + 1e-9
    assert sorted(sites.got["n3"], key=int) == NUMBERS  # nothing that follows SUBACK is too old to be fetched


@KIND
def test_on_lossy_links(kind: type[OverlayAlgorithm[Any]]) -> None:
    """SUBACK may come late there, but what follows it arrives."""
    sites = Sites(kind, seed=5, loss=0.1)
    sites.use("n1")
    for at in range(10):
        sites.subscribe(
            "n3", [f"x/new{at}"], lambda at=at: sites.send("n1", f"x/new{at}", [str(at)], 1), limit=30.0
        )
        sites.world.run(30)
    sites.world.run(30)
    assert sorted(sites.got["n3"], key=int) == [str(at) for at in range(10)]


def test_what_a_suback_waits_for() -> None:
    api: Any = FakeApi()
    known: list[tuple[str, float]] = []
    advertising = Advertising(api, lambda name, since: known.append((name, since)), api.count)
    granted: list[str] = []

    def suback(name: str, in_time: bool = True) -> Callable[[], bool]:
        def done() -> bool:
            granted.append(name)
            return in_time

        return done

    assert advertising.wait(["a"], suback("nothing"))
    for name in "abcd":
        advertising.begin(name, fresh=name != "d")
    assert not advertising.wait(["a", "b", "other"], suback("both"))
    assert not advertising.wait(["c"], suback("late", in_time=False))
    assert not advertising.wait(["d"], suback("restored"))
    advertising.end("a", known=True)
    api.run(APART)
    assert granted == []
    assert known == []
    for name in "bcd":
        advertising.end(name, known=True)
    api.run(APART)
    assert sorted(granted) == ["both", "late", "restored"]
    # what is older than that is fetched neither of a session that was there, nor of one that had to go on
    assert sorted(known) == [("a", APART / 2), ("b", APART * 1.5)]
    assert advertising.wait("abcd", suback("again"))


def test_a_filter_that_has_gone_keeps_no_suback() -> None:
    api: Any = FakeApi()
    known: list[str] = []
    advertising = Advertising(api, lambda name, since: known.append(name), api.count)
    granted: list[int] = []

    def suback() -> bool:
        granted.append(len(granted))
        return True

    advertising.begin("a", fresh=True)
    assert not advertising.wait(["a"], suback)
    advertising.end("a", known=True)
    advertising.end("a")  # it goes before SUBACK
    assert granted == [0]
    api.run(1)
    assert granted == [0]
    assert known == []


def test_subacks_that_wait_are_bounded() -> None:
    api: Any = FakeApi()
    advertising = Advertising(api, lambda name, since: None, api.count)
    advertising.begin("a", fresh=True)
    assert not any(advertising.wait(["a"], lambda: True) for _ in range(MOST))
    assert advertising.wait(["a"], lambda: True)
    assert api.counters["tellings_full"] == 1

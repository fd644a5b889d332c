"""Sites in virtual time whose nodes are pairs: who owns them, and what claims cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ildm_bench.chaos.drawing import draw
from ildm_bench.chaos.evidence import BY_TOPIC
from ildm_bench.chaos.schedule import Client, Fault, Operation, Schedule, Setting
from ildm_bench.chaos.virtual.pair import CLAIM_AFTER, Pair
from ildm_bench.chaos.virtual.run import Warm

SETTING = Setting("sf", ("a", "b", "c"), (("b", "a"), ("c", "b")), ("mosquitto",) * 3, pairs=True)
NODE = ("node/b",)


def schedule(*faults: Fault, count: int = 200, setting: Setting = SETTING) -> Schedule:
    """A client at a publishes 20 messages of QoS 2 a second, from 8 s on, for one at c."""
    clients = Client("s", "c", clean=False), Client("p", "a", clean=False)
    made = [Operation(0.0, "s", "connect"), Operation(0.5, "s", "subscribe", topic="t", qos=2)]
    made += [Operation(0.0, "p", "connect")]
    made += [Operation(8 + number * 0.05, "p", "publish", topic="t", qos=2) for number in range(count)]
    return Schedule(setting, clients, tuple(made), faults)


def claims(warm: Warm, site: str = "b") -> tuple[Pair, int]:
    """The pair, and how often one of its members has claimed the site."""
    pair = warm.sites[site]
    assert isinstance(pair, Pair)
    return pair, pair.counters["pair_claims"]


@pytest.mark.parametrize(
    ("fault", "owner", "claimed", "fenced"),
    [
        (Fault(10.0, "kill", NODE, 2.0), "b", 2, 0),
        (Fault(10.0, "deposed", NODE, 2.0), "b", 2, 1),
        (Fault(10.0, "deposed", NODE, CLAIM_AFTER / 2), "a", 1, 0),
        (Fault(10.0, "deposed", NODE, 2.0, 1.0), "b", 2, 0),
        (Fault(10.0, "both", NODE, 2.0), "a", 2, 0),
        (Fault(10.0, "both", NODE, 2.0, 1.0), "b", 2, 0),
    ],
)
def test_who_owns_the_site_and_that_nothing_is_lost(
    fault: Fault, owner: str, claimed: int, fenced: int
) -> None:
    warm = Warm(SETTING)
    epoch = warm.sites["b"].node.epoch
    result, _ = warm.run(schedule(fault))
    pair, counted = claims(warm)
    assert result.failures == []
    assert not result.trouble
    assert result.verdict.owed == 200
    assert (pair.owner, counted, pair.counters["pair_fenced"]) == (owner, claimed, fenced)
    assert sorted(pair.up) == ["a", "b"]
    assert (pair.node.epoch > epoch) is (claimed > 1)
    assert [member.state.shown for name, member in pair.members.items() if name != owner] == ["standby"]


def test_the_owner_ends_while_the_other_member_is_away() -> None:
    """The first that is back claims the site."""
    faults = Fault(9.0, "kill", NODE, 5.0), Fault(10.0, "kill", NODE, 1.0)
    warm = Warm(SETTING)
    result, _ = warm.run(schedule(*faults))
    pair, counted = claims(warm)
    assert not result.failed
    assert (pair.owner, counted) == ("b", 3)


@pytest.mark.parametrize("algorithm", ["sf", "pf"])
def test_neighbours_follow_an_owner_whose_machine_went_in_silence(algorithm: str) -> None:
    """They would keep the link of the former one for three times its keep alive."""
    warm = Warm(replace(SETTING, algorithm=algorithm))
    result, _ = warm.run(schedule(Fault(10.0, "deposed", NODE, 8.0, 1.0)))
    assert not result.failed
    totals = {name: site.totals() for name, site in warm.sites.items()}
    assert totals["a"]["pair_followed"] == 1
    link = warm.sites["a"].node.links.links["b"]
    assert link.epoch == warm.sites["b"].node.epoch


@pytest.mark.parametrize("algorithm", sorted(BY_TOPIC))
def test_overlays_of_pairs(algorithm: str) -> None:
    links = ("b", "a"), ("c", "a")
    warm = Warm(replace(SETTING, algorithm=algorithm, links=links))
    result, _ = warm.run(schedule(Fault(11.0, "deposed", NODE, 2.0), Fault(13.5, "both", ("node/a",), 0.5)))
    assert result.failures == []
    assert not result.trouble
    assert (claims(warm)[1], claims(warm, "a")[1]) == (2, 2)


def test_only_what_happens_to_a_pair_is_drawn() -> None:
    for seed in range(100):
        made = draw(seed, "sf", fault="pair")
        assert made.setting.pairs
        assert made.problem() is None
    wrong = replace(made, faults=(Fault(5.0, "power", ("node/a",), 1.0),))
    assert wrong.problem() == "fault at 5.0: power does not happen to a pair"
    wrong = replace(
        wrong, setting=replace(made.setting, pairs=False), faults=(Fault(5.0, "both", NODE, 1.0),)
    )
    assert wrong.problem() == "fault at 5.0: both needs setting.pairs"

"""The advice held against the simulator, at small scale."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ildm.advice import Network, Topic
from ildm_bench.cli import app
from ildm_bench.sim.advising import METHODS, checked, costs, drawn, lines, share, simulated


def small(seed: int) -> Network:
    topic = Topic(name="t", subscribers=3, rate=1)
    return Network(sites=6, regions=2, near_ms=2, far_ms=20, topics=[topic])


def test_the_named_algorithm_is_the_best_of_a_small_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ildm_bench.sim.advising.drawn", small)
    rows = list(simulated([7]))
    (delay, traffic) = checked(rows)
    assert delay.named == "atm_tbps"
    assert delay.factor <= 1.1
    assert traffic.named in METHODS
    direct = rows[0]["costs"]["atm_tbps"]["delay"]
    assert 2 < direct < 25  # one hop of 2 or 20 ms, and 1 ms at the site
    assert rows[0]["costs"]["sf"]["traffic"] == 1


def test_networks_are_drawn_again_from_their_seeds() -> None:
    found = [drawn(seed) for seed in range(50)]
    assert found == [drawn(seed) for seed in range(50)]
    assert len({each.regions for each in found}) == 5
    assert all(topic.subscribers < each.sites for each in found for topic in each.topics)


def test_what_was_simulated_is_judged_and_not_simulated_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = {name: {"delay": 10.0, "traffic": 5.0} for name in METHODS}
    bad = {**good, "sg_tbps": {"delay": 1.0, "traffic": 5.0}}
    rows = [
        {"seed": seed, "network": small(seed).model_dump(), "costs": given}
        for seed, given in ((1, good), (2, bad))
    ]
    store = tmp_path / "advise.jsonl"
    store.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr("ildm_bench.sim.advising.costs", lambda *_: pytest.fail("simulated again"))
    assert list(simulated([1, 2], store)) == rows
    assert share(checked(rows), "delay") == 0.5
    assert "network 2, delay: named atm_tbps, 10.00 times sg_tbps" in lines(rows)
    words = ["sim", "advise", "--out", str(tmp_path), "--seed", "1", "--networks", "3", "--no-simulate"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "delay: best or within 10% in 50.0% of 2 networks" in done.output
    assert CliRunner().invoke(app, [*words, "--seed", "9"]).exit_code == 2


def test_costs_are_those_of_the_topics_by_their_rates() -> None:
    topics = [Topic(name="a", subscribers=1, rate=1e6), Topic(name="b", subscribers=4, rate=0.001)]
    network = Network(sites=6, near_ms=2, topics=topics)
    assert costs(network, "sg_tbps", 3)["traffic"] == pytest.approx(1, abs=0.01)

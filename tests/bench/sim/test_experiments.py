"""The experiments at small scale: each shows the relation that the paper claims."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ildm_bench.sim import cli
from ildm_bench.sim.experiments import experiments, scribe_topics, topics
from ildm_bench.sim.experiments.framework import Line, Result, Setting, carry_out, in_all, table
from ildm_bench.sim.experiments.report import page, tally
from ildm_bench.sim.experiments.seeds import parsed
from ildm_bench.sim.experiments.summary import fisher_interval
from ildm_bench.sim.experiments.thesis import (
    forwarding,
    paths,
    suspension,
    t3_13,
    t3_14,
    t3_15,
    t4_9,
    table_sizes,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KNOWN = experiments()
OTHER_AT_SMALL_SCALE = {
    # Ratios to Scribe grow with N, and are the paper's at N = 100,000 only.
    "T3.10": {"Scribe / SG-TBPS for delta, epsilon, zeta at N = 4,000"},
    "T3.11": {"the two curves", "no undesirable effect of SG-TBPS on the distribution"},
    # Fewer nodes to forward for, and three graphs.
    "T3.12": {"Scribe: r of sending and forwarding, 99 % interval"},
    "T3.13": {
        "Scribe: forwards per message received, at most",
        "SG-TBPS: r of receiving and forwarding, counts of whole ticks",
    },
}
NOTHING_AT_SMALL_SCALE = {"T3.11"}
"""Its curves are alike at N = 10,000 alone."""
DIFFERS_AT_ANY_SCALE = {
    "T3.13": {"SG-TBPS: r of receiving and forwarding, 99 % interval"},
    "T4.3": {"hops of SFB over those of broadcast, 512 nodes"},
    "T4.6": {"mean hops, random vectors", "SFB / MRF, random vectors"},
}
THESIS = [name for name, experiment in KNOWN.items() if experiment.section.startswith("Thesis")]
ATM_TBPS = [name for name, experiment in KNOWN.items() if experiment.section == "ATM-TBPS"]


def setting(out: Path, seed: int = 1) -> Setting:
    return Setting("small", seed, out, "ildm-bench sim run", "a machine", "2026-01-01")


@pytest.mark.parametrize("name", [*THESIS, *ATM_TBPS])
def test_the_relations_of_the_paper_hold(name: str, spark: SparkSession, tmp_path: Path) -> None:
    said: list[str] = []
    result = carry_out(KNOWN[name], setting(tmp_path), spark, said.append)
    verdicts = {line.quantity: line.verdict for line in result.lines}
    assert len(verdicts) == len(result.lines)
    excused = OTHER_AT_SMALL_SCALE.get(name, set()) | DIFFERS_AT_ANY_SCALE.get(name, set())
    assert excused <= verdicts.keys()
    assert {quantity for quantity, verdict in verdicts.items() if verdict == "differs"} <= excused
    assert name in NOTHING_AT_SMALL_SCALE or {"agree", "agrees under", "check"} & {*verdicts.values()}
    assert all(
        (tmp_path / "figures" / f"{figure.name}.png").stat().st_size > 5_000 for figure in result.figures
    )
    assert result.figures
    assert said
    assert Result.read(tmp_path / name) == result
    assert all(line.why for line in result.lines if line.verdict == "differs")


def test_all_experiments_of_the_thesis_are_there() -> None:
    chapter_3 = [f"T3.{number}" for number in range(7, 16)]
    assert [*chapter_3, "T4.3", "T4.5", "T4.6", "T4.9"] == THESIS


def test_all_experiments_of_atm_tbps_are_there() -> None:
    assert ATM_TBPS == ["A10", "A11", "A12"]


def test_sections_come_in_the_order_of_the_papers() -> None:
    sections = list(dict.fromkeys(experiment.section for experiment in KNOWN.values()))
    assert sections[0] == "Thesis, chapters 3 and 4"
    assert sections[-1] == "Beyond the papers"
    assert {"side-by-side", "churn"} <= {
        name for name, experiment in KNOWN.items() if experiment.section == sections[-1]
    }


def test_the_same_seed_gives_the_same_rows() -> None:
    for name in ("T3.11", "T3.15"):
        first, again, other = (KNOWN[name].run("small", seed, lambda text: None) for seed in (1, 1, 2))
        assert first == again
        assert first != other


# Table 3.3: coefficient, pairs, and the interval that the thesis prints.
@pytest.mark.parametrize(
    ("r", "pairs", "interval"),
    [
        (0.1310, 100, (-0.1290, 0.3742)),
        (0.5483, 100_000, (0.5426, 0.5540)),
        (-0.0045, 100_000, (-0.0126, 0.0037)),
    ],
)
def test_intervals_of_table_3_3(r: float, pairs: int, interval: tuple[float, float]) -> None:
    assert fisher_interval(r, pairs) == pytest.approx(interval, abs=1e-4)


def test_there_is_no_interval_of_a_perfect_correlation() -> None:
    assert fisher_interval(1.0, 100) is None
    assert fisher_interval(-1.0, 100) is None
    assert fisher_interval(0.5, 3) is None


def test_the_expected_correlation_is_that_of_children_drawn_independently() -> None:
    generator = np.random.default_rng(1)
    received = np.repeat(np.arange(1, 101), 10_000)
    children = generator.choice([0, 1, 2], received.size, p=[0.3, 0.4, 0.3])
    r = np.corrcoef(received, received * children)[0, 1]
    assert t3_13.expected(0.3) == pytest.approx(r, abs=0.002)


def test_periods_of_whole_ticks_make_more_of_most_counts() -> None:
    found = forwarding.ticked(np.array([1, 2, 3, 60, 67, 100]))
    assert found.tolist() == [1, 2, 3, 66, 100, 100]


class TestAssignment:
    """T4.9."""

    def test_each_case_is_the_printed_equation(self) -> None:
        m, total = 10_000, 20_000_000
        s_t = np.array([7.0, 5_000.0, 100_000.0])
        expected = [
            (1 - math.log2(7)) + 0.01 * (7 - 1),  # 4.1
            math.log2((m * 5_000 + total) / (5_000 * total)) + 0.01 * (total / m - 1),  # 4.3
            math.log2(100_000 / total + 1 / m) + 0.01 * (total - 100_000) / m,  # 4.4
        ]
        assert t4_9.difference(s_t, total) == pytest.approx(expected)
        wide = 200_000_000
        between = np.array([15_000.0])  # s_t >= m, s_t < S / m
        assert t4_9.difference(between, wide) == pytest.approx(
            [(1 - math.log2(m)) + 0.01 * 15_000 * (m - 1) / m]  # 4.2
        )

    def test_one_subscriber_is_the_same_under_both_only_when_corrected(self) -> None:
        one = np.array([1.0])
        assert t4_9.intensive(one, 20_000_000) - t4_9.extensive(one) == pytest.approx([1.0])
        assert t4_9.intensive(one, 20_000_000) - t4_9.extensive(one, corrected=True) == pytest.approx([0.0])
        assert t4_9.difference(one, 20_000_000, corrected=True) == pytest.approx([0.0])

    def test_the_maximum_is_the_thesis_one(self) -> None:
        assert round(t4_9.largest_at(20_000_000)) == 1_440_695
        around = 1_440_695.0 + np.array([-50_000, 0, 50_000])
        low, best, high = t4_9.difference(around, 20_000_000)
        assert best > max(low, high)


class TestTopics:
    def test_subscribers_are_left_of_publishers_and_all_are_reached(self) -> None:
        made = topics.topics_in(np.random.default_rng(5), 60, 4, 3, 10)
        found = topics.lengths_by_topic(made, made.publish("mrf"))
        assert found.sum(axis=1).tolist() == [30] * 4
        assert found[:, 0].sum() == 0
        lengths = made.publish("mrf").path_lengths().tolist()
        assert np.trim_zeros(found.sum(axis=0), "b").tolist() == lengths

    def test_publishers_are_suspended_without_subscribers_alone(self) -> None:
        generator = np.random.default_rng(5)
        assert topics.topics_in(generator, 50, 1, 5, 0).suspended(0)
        assert not topics.topics_in(generator, 50, 1, 5, 1).suspended(0)
        # With no other key in the graph the rendezvous point has no neighbour there at all.
        assert topics.topics_in(generator, 5, 1, 5, 0).suspended(0)
        assert topics.topics_in(generator, 50, 1, 5, 0).signal(0, "mrf") == 4

    def test_topics_must_fit(self) -> None:
        with pytest.raises(ValueError, match="do not fit"):
            topics.topics_in(np.random.default_rng(5), 10, 2, 3, 3)

    def test_base_4_has_every_other_level(self) -> None:
        made = topics.topics_in(np.random.default_rng(5), 64, 1, 1, 63)
        wider = made.of_base_4()
        assert wider.graph.levels == (made.graph.levels + 1) // 2
        assert topics.lengths_by_topic(wider, wider.publish("mrf")).sum() == 63


def test_sg_tbps_sends_nothing_without_subscribers_and_all_to_one() -> None:
    found = suspension.Suspension(5, seed=1).run()
    assert found["messages_without"] == 0
    assert found["delivered_with"] == found["delivered_again"] == found["publishers"] == 5
    assert found["messages_with"] >= 5
    assert found["signals"] >= 4


def test_what_holds_in_some_graphs_alone_is_open() -> None:
    assert [in_all([True, True]), in_all([True, False]), in_all([False])] == ["agree", "open", "differs"]


def test_every_subscriber_counts_once_in_scribe_paths() -> None:
    pattern = paths.Pattern("p", 3, 7)
    found, inside = scribe_topics.scribe_lengths(np.random.default_rng(2), pattern, 100)
    assert found.sum(axis=1).tolist() == inside.sum(axis=1).tolist() == [21] * 10
    hops = np.arange(found.shape[1])
    assert ((found - inside) @ hops <= 21).all()


def test_topics_of_a_node_are_different() -> None:
    found = t3_14.chosen(np.random.default_rng(3), 500, 12, 10)
    assert all(len(set(row)) == 10 for row in found.tolist())
    assert set(found.ravel().tolist()) == set(range(12))


def test_interests_are_apart_or_shared() -> None:
    generator = np.random.default_rng(3)
    apart, wanted = t3_15.interests(generator, 20, t3_15.APART)
    assert sorted(wanted.tolist()) == list(range(1, 21))
    assert len(set(apart.topic.tolist())) == apart.node.size == 210
    shared, _ = t3_15.interests(generator, 20, t3_15.SHARED)
    assert shared.topics == 20
    assert len(set(zip(shared.node.tolist(), shared.topic.tolist(), strict=True))) == 210


def test_tables_of_scribe_count_children_roots_and_neighbours() -> None:
    # Two nodes: one of them is the root of the only topic, the other subscribes or publishes.
    node = np.array([0, 1])
    asked = table_sizes.Interests(2, 1, node, np.array([0, 0]), np.array([True, False]))
    found = table_sizes.scribe_entries(np.random.default_rng(1), asked)
    entries, different = found["topics"]
    whole, whole_different = found["with DHT"]
    # Either the subscriber is the root and the publisher knows it, or the root has the subscriber as child.
    assert entries.sum() == different.sum() == 1
    assert whole.sum() > entries.sum()
    assert whole_different.tolist() == [1, 1]


class TestPage:
    def result(self, name: str = "T0", **changes: Any) -> Result:
        values: dict[str, Any] = {
            "name": name,
            "section": "A paper",
            "introduction": "About it.",
            "title": "A title",
            "parameters": "N = 3",
            "scale": "small",
            "seed": 4,
            "command": "ildm-bench sim run T0",
            "machine": "a machine",
            "date": "2026-01-01",
            "rows": 1234,
            "seconds": 2.5,
            "cpu": 30.0,
            "began": 1_000.0,
            "ended": 1_090.0,
            "lines": [
                Line(quantity="|T|", paper="1", ours="2", verdict="check", band="equal", why="because")
            ],
            "figures": [],
            "notes": ["a note"],
        }
        return Result.model_validate(values | changes)

    def test_has_values_verdict_band_reason_and_how_it_was_made(self) -> None:
        text = page([self.result(commit="abc1234", runs="plugin sf")])
        assert "| \\|T\\| | 1 | 2 | check | equal | because |" in text
        assert "| A title | 1 check | plugin sf | small, 4 | 1,234 | 2.5 |" in text
        assert "[T0](#t0-a-title)" in text
        assert "## A paper\n\nAbout it.\n" in text
        assert "### T0 A title" in text
        assert "`ildm-bench sim run T0` at commit abc1234 on a machine, 2026-01-01, in 1.5 minutes; " in text
        assert "minutes; 0.5 minutes of CPU" in text
        assert "1,234 rows, 2.5 s, scale small, seed 4." in text
        assert "- a note" in text

    def test_needs_results(self) -> None:
        with pytest.raises(ValueError, match="no results"):
            page([])

    def test_what_has_no_value_to_compare_with_is_not_counted(self) -> None:
        lines = [
            Line(quantity="a", paper="", ours="", verdict=verdict, band="b")
            for verdict in ("agree", "agree", "beyond", "check")
        ]
        assert tally(lines) == "2 agree, 1 check"
        assert tally(lines[2:3]) == "nothing to compare with"

    @pytest.mark.parametrize(("scale", "verdict"), [("small", "\N{EN DASH}"), ("full", "differs")])
    def test_a_verdict_needs_the_papers_parameters(self, scale: str, verdict: str) -> None:
        lines = [
            Line(quantity="a", paper="1", ours="2", verdict="differs", band="1", why="2 is more"),
            Line(quantity="b", paper="1", ours="2", verdict="differs", band="1", any_scale=True),
        ]
        text = page([self.result(scale=scale, lines=lines)])
        assert f"| a | 1 | 2 | {verdict} | 1 | " in text
        assert ("2 is more" in text) == (scale == "full")
        assert "| b | 1 | 2 | differs | 1 |  |" in text


def test_rows_without_any_are_refused() -> None:
    with pytest.raises(ValueError, match="without rows"):
        table([])


class TestCommand:
    @pytest.fixture
    def runner(self) -> CliRunner:
        return CliRunner()

    def test_lists_all(self, runner: CliRunner) -> None:
        done = runner.invoke(cli.sim, ["list"])
        assert done.exit_code == 0
        assert [line.split()[0] for line in done.output.splitlines()] == [*KNOWN]

    def test_runs_stores_and_publishes(
        self, runner: CliRunner, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        public = tmp_path / "public"
        (public / "figures").mkdir(parents=True)
        (public / "figures" / "of_old.png").write_text("")
        monkeypatch.setattr(cli, "HERE", public)
        out = tmp_path / "out"
        arguments = ["run", "T4.9", "--scale", "small", "--seed", "3", "--out", str(out), "--publish"]
        done = runner.invoke(cli.sim, arguments)
        assert done.exit_code == 0, done.output
        assert [result.name for result in cli.stored(out)] == ["T4.9"]
        assert (public / "RESULTS.md").read_text() == (out / "RESULTS.md").read_text()
        assert [path.name for path in (public / "figures").iterdir()] == ["T4.9.png"]
        assert "sim run T4.9 --scale small --seed 3" in (out / "RESULTS.md").read_text()
        rows = pq.read_table(out / "T4.9" / "rows.parquet")
        assert rows.num_rows == cli.stored(out)[0].rows

    def test_several_at_once_give_what_each_gives_alone(
        self, runner: CliRunner, spark: SparkSession, tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        done = runner.invoke(cli.sim, ["run", "T4.9", "T4.5", "--scale", "small", "--out", str(out)])
        assert done.exit_code == 0, done.output
        alone = carry_out(KNOWN["T4.5"], setting(tmp_path / "alone"), spark, lambda text: None)
        (beside,) = (result for result in cli.stored(out) if result.name == "T4.5")
        assert beside.lines == alone.lines
        assert {result.name for result in cli.stored(out)} == {"T4.5", "T4.9"}

    def test_runs_seeds_and_shows_the_verdicts_of_all(
        self, runner: CliRunner, spark: SparkSession, tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        done = runner.invoke(
            cli.sim, ["run", "T4.9", "--scale", "small", "--seeds", "3,5-6", "--out", str(out)]
        )
        assert done.exit_code == 0, done.output
        text = (out / "SEEDS.md").read_text()
        assert "| over all seeds | paper | ours | 3 | 5 | 6 |" in text
        assert "| T_d grows with S | check | yes |" in text
        assert [Result.read(out / f"seed-{seed}" / "T4.9").seed for seed in (3, 5, 6)] == [3, 5, 6]
        assert not (out / "seed-3" / "figures").exists()

    @pytest.mark.parametrize("seeds", ["", "x", "3-", "5-4", "1,1-2"])
    def test_refuses_seeds_that_are_none(self, seeds: str) -> None:
        with pytest.raises(ValueError, match="seed"):
            parsed(seeds)

    def test_refuses_names_that_are_none(self, runner: CliRunner, tmp_path: Path) -> None:
        done = runner.invoke(cli.sim, ["run", "T9.9", "--out", str(tmp_path / "out")])
        assert done.exit_code == 2
        assert not (tmp_path / "out").exists()

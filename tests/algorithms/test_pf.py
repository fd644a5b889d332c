"""Publication flooding, thesis 5.3.1."""

from __future__ import annotations

from ildm_algorithms.pf import PublicationFlooding
from tests.algorithms.trees import FIGURE_5_5, Tree
from tests.support.transcripts import check_transcript


def test_figure_5_5() -> None:
    tree = Tree(PublicationFlooding, FIGURE_5_5)
    tree.step("1. C1 subscribes to t at I2")
    tree.subscribe("I2", "t")
    tree.step("2. C2 subscribes to t at I3")
    tree.subscribe("I3", "t")
    tree.step("3. C3 publishes to t at I5")
    tree.publish("I5", "t")
    assert sorted(tree.transfers()) == ["I2>I1", "I2>I4", "I3>I2", "I5>I3"]
    check_transcript("pf_figure_5_5", tree.lines)


def test_nothing_is_sent_back_and_each_broker_gets_one_copy() -> None:
    tree = Tree(PublicationFlooding, FIGURE_5_5)
    for name in tree.nodes:
        tree.publish(name, f"from/{name}")
    for name in tree.nodes:
        assert sorted(tree.injected(name)) == sorted(f"from/{other}" for other in tree.nodes if other != name)

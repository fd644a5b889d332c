"""Publication flooding, thesis 5.3.1."""

from __future__ import annotations

from algorithms.pf import PublicationFlooding
from ildm.testing.fake_node import FakeNetwork
from tests.support.transcripts import check_transcript


def figure_5_5() -> FakeNetwork:
    """Five nodes: I2 joins I1, I3 and I4; I3 joins I5."""
    network = FakeNetwork(PublicationFlooding)
    network.add("I1", "I2", "I3", "I4", "I5")
    for a, b in (("I1", "I2"), ("I2", "I3"), ("I2", "I4"), ("I3", "I5")):
        network.join(a, b)
    return network


def test_figure_5_5() -> None:
    network = figure_5_5()
    network.step("1. C1 subscribes to t at I2")
    network.nodes["I2"].subscribe("t")
    network.step("2. C2 subscribes to t at I3")
    network.nodes["I3"].subscribe("t")
    network.step("3. C3 publishes to t at I5")
    network.nodes["I5"].publish("t")
    assert sorted(network.transfers()) == ["I2>I1", "I2>I4", "I3>I2", "I5>I3"]
    check_transcript("pf_figure_5_5", network.lines)


def test_nothing_is_sent_back_and_each_broker_gets_one_copy() -> None:
    network = figure_5_5()
    for name, node in network.nodes.items():
        node.publish(f"from/{name}")
    for name, node in network.nodes.items():
        assert sorted(node.topics) == sorted(f"from/{other}" for other in network.nodes if other != name)

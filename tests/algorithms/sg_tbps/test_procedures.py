"""The procedures of thesis 3.2.1, each with a golden transcript (over a perfect list)."""

from __future__ import annotations

from ildm_algorithms.tbps.publishers.publisher import PublisherState
from tests.algorithms.tbps.world import Node, World
from tests.support.transcripts import check_transcript

IDLE = 1000.0


def state(node: Node, segment: str) -> PublisherState:
    member = next(m for m in node.algorithm.segments.members.values() if m.segment.text == segment)
    return member.publisher.state


def publishers(world: World, *names: str) -> list[Node]:
    """Nodes that publish to t, one after another."""
    nodes = world.start(*names)
    for node in nodes:
        node.publish("t", "first")
        world.settle()
    return nodes


def test_a_publisher_joins_alone_and_with_others() -> None:
    """Fig. 3.6: alone it judges by itself; else the status rides on the acknowledgement."""
    world = World(status_interval=IDLE)
    one, two, zero, s = world.start("n1", "n2", "n0", "s1")
    world.step("n1 publishes to t: first publisher, no subscriber")
    one.publish("t", "1")
    world.states("t")
    assert state(one, "t") is PublisherState.SUSPENDED
    world.step("n2 publishes to t: it is told by its neighbour")
    two.publish("t", "2")
    world.states("t")
    assert state(two, "t") is PublisherState.SUSPENDED
    world.step("s1 subscribes to t")
    s.subscribe("t")
    world.states("t")
    assert state(one, "t") is state(two, "t") is PublisherState.ACTIVE
    world.step("n0 publishes to t: it takes the place of the rendezvous point")
    zero.publish("t", "3")
    world.states("t")
    assert [delivery.payload for delivery in s.deliveries] == [b"3"]
    check_transcript("sg_tbps_joining", world.line.lines)


def test_suspending_and_resuming() -> None:
    """Figures 3.4 and 3.5: the rendezvous point notices, and tells the publishers."""
    world = World(status_interval=IDLE)
    one, two, three = publishers(world, "n1", "n2", "n3")
    (s,) = world.start("s1")
    world.line.lines.clear()
    world.step("s1 subscribes to t")
    s.subscribe("t")
    world.states("t")
    world.step("n3 publishes")
    three.publish("t", "heard")
    world.step("s1 unsubscribes from t")
    s.unsubscribe("t")
    world.states("t")
    world.step("n3 publishes in vain")
    before = world.line.messages
    three.publish("t", "not heard", qos=2)
    world.settle()
    assert world.line.messages == before
    assert [delivery.payload for delivery in s.deliveries] == [b"heard"]
    assert {state(node, "t") for node in (one, two, three)} == {PublisherState.SUSPENDED}
    check_transcript("sg_tbps_suspend_resume", world.line.lines)


def test_handover() -> None:
    """The rendezvous point leaves; its neighbour takes over and judges (also after a crash)."""
    world = World(status_interval=IDLE)
    one, two, three, four = publishers(world, "n1", "n2", "n3", "n4")
    (s,) = world.start("s1")
    s.subscribe("t")
    world.settle()
    world.line.lines.clear()
    world.step("n1, the rendezvous point, leaves")
    one.algorithm.on_ildm_stop()
    world.states("t")
    world.step("the subscriber and n2, the rendezvous point, crash at once")
    world.kill(s.node_id)
    world.kill(two.node_id)
    world.states("t")
    assert state(three, "t") is state(four, "t") is PublisherState.SUSPENDED
    check_transcript("sg_tbps_handover", world.line.lines)


def test_inconsistency_1_publishing_without_subscribers() -> None:
    """A publisher misses SUSPEND. It is put right by its question, or by its own reliable message."""
    world = World(status_interval=20.0)
    _, two, three = publishers(world, "n1", "n2", "n3")
    (s,) = world.start("s1")
    s.subscribe("t")
    world.settle()
    world.line.lines.clear()
    world.step("SUSPEND does not reach n2 and n3")
    world.line.lose = lambda node, text: text.startswith("SUSPEND")
    s.unsubscribe("t")
    world.settle()
    world.line.lose = lambda node, text: False
    world.states("t")
    assert state(two, "t") is state(three, "t") is PublisherState.ACTIVE
    world.step("n3 publishes with QoS 1 and learns that nobody has got it")
    three.publish("t", "in vain", qos=1)
    world.states("t")
    assert state(three, "t") is PublisherState.SUSPENDED
    assert state(two, "t") is PublisherState.ACTIVE
    world.step("n2 publishes with QoS 0, and asks its neighbour when it is time to")
    two.publish("t", "in vain", qos=0)
    world.run(31)
    world.states("t")
    assert state(two, "t") is PublisherState.SUSPENDED
    check_transcript("sg_tbps_inconsistency_1", world.line.lines)


def test_inconsistency_2_suspended_with_subscribers() -> None:
    """Publishers miss RESUME; one asks its neighbour, reports the conflict, and all are resumed."""
    world = World(status_interval=20.0)
    _, two, three = publishers(world, "n1", "n2", "n3")
    (s,) = world.start("s1")
    world.run(2)
    world.line.lines.clear()
    world.step("RESUME does not reach n2 and n3")
    world.line.lose = lambda node, text: text.startswith("RESUME t ")
    s.subscribe("t")
    world.settle()
    world.line.lose = lambda node, text: False
    # the query of the new subscriber has told them, too; as if they had missed it as well
    for node in (two, three):
        member = next(m for m in node.algorithm.segments.members.values() if m.segment.text == "t")
        member.publisher.suspended = True
    world.states("t")
    world.step("they ask their neighbours when it is time to")
    world.run(31)
    world.states("t")
    assert state(two, "t") is state(three, "t") is PublisherState.ACTIVE
    check_transcript("sg_tbps_inconsistency_2", world.line.lines)


def test_a_publisher_that_is_subscriber_has_one_key_and_is_exempt() -> None:
    world = World(status_interval=IDLE)
    one, two = world.start("n1", "n2")
    world.step("n1 publishes to t, then subscribes to it")
    one.publish("t")
    world.settle()
    one.subscribe("t")
    world.states("t")
    world.step("n2 publishes")
    two.publish("t", "for n1")
    world.states("t")
    world.step("n1 unsubscribes: it is publisher again, and nobody subscribes")
    one.unsubscribe("t")
    world.states("t")
    assert state(one, "t") is state(two, "t") is PublisherState.SUSPENDED
    assert [delivery.payload for delivery in one.deliveries] == [b"for n1"]
    check_transcript("sg_tbps_both", world.line.lines)


def test_a_lost_rendezvous_point_that_nobody_followed() -> None:
    """All signals are lost, and the rendezvous point crashes in between: the states converge."""
    world = World(status_interval=5.0)
    one, two, three = publishers(world, "n1", "n2", "n3")
    s1, s2 = world.start("s1", "s2")
    world.line.lose = lambda node, text: text.startswith(("RESUME", "SUSPEND", "REPORT"))
    s1.subscribe("t")
    world.settle()
    world.kill(one.node_id)
    s1.unsubscribe("t")
    world.settle()
    s2.subscribe("t")
    world.settle()
    world.line.lose = lambda node, text: False
    world.run(20)
    assert state(two, "t") is state(three, "t") is PublisherState.ACTIVE
    s2.unsubscribe("t")
    world.settle()
    three.publish("t", "in vain", qos=1)
    world.run(20)
    assert state(two, "t") is state(three, "t") is PublisherState.SUSPENDED

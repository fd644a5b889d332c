"""What several nodes tell of messages, put together."""

from __future__ import annotations

from ildm.core.transfer.watch import Event
from ildm.net.watches import messages_of


def event(at: float, node: str, what: str, peer: str, topic: str = "t") -> Event:
    return Event(at, node, what, peer, "00ff", topic, 8, 1)


def test_a_message_comes_from_where_a_client_had_it_whatever_the_clocks_say() -> None:
    """The second node's clock is a hundredth of a second behind what the first takes it for."""
    told = [
        event(10.000, "a", "received", "", "site/t"),
        event(10.001, "a", "sent", "b", "site/t"),
        event(9.992, "b", "received", "a"),
        event(9.993, "b", "sent", ""),
    ]
    (message,) = messages_of(told)
    assert (message["node"], message["topic"], message["at"]) == ("a", "site/t", 9.992)
    assert [(step["node"], step["what"]) for step in message["steps"]] == [
        ("b", "received"),
        ("b", "sent"),
        ("a", "received"),
        ("a", "sent"),
    ]
    assert [round(step["seconds"], 3) for step in message["steps"]] == [0, 0.001, 0.008, 0.009]


def test_where_nobody_tells_of_its_client_it_comes_from_where_it_was_seen_first() -> None:
    (message,) = messages_of([event(2.0, "c", "received", "b"), event(1.0, "b", "received", "a")])
    assert message["node"] == "b"

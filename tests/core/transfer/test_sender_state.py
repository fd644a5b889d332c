"""The tables of a sender's states: the documentation, the code and the sender itself say the same."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import ildm
from ildm.core.transfer.sender_state import (
    ALL,
    AWAY,
    KEPT,
    OPEN,
    STATES,
    TAKES,
    SenderEvent,
    SenderState,
    Takes,
)
from ildm.mqtt import Publish
from ildm.testing.virtual.world import World
from tests.support.senders import Sink, make, send_message


def documented(words: type[Enum], place: int) -> dict[Enum, dict[SenderEvent, Enum]]:
    path = Path(ildm.__file__).parent / "core/transfer/sender_state.py"  # what is compiled has no source
    rows = path.read_text().split("\n\n")[place].splitlines()[1:-1]
    events = [SenderEvent[name.upper()] for name in rows[0].split()[1:]]
    table: dict[Enum, dict[SenderEvent, Enum]] = {}
    for row in rows[2:]:
        name, *cells = row.split()
        to = dict(zip(events, cells, strict=True))
        table[words[name]] = {event: words[cell] for event, cell in to.items() if cell != "-"}
    return table


def test_the_tables_are_the_documented_ones() -> None:
    assert documented(SenderState, 2) == STATES
    assert documented(Takes, 3) == TAKES


def test_a_sender_opens_only_when_it_is_resumed_on_a_connection() -> None:
    opens = [(state, event) for state, leads in STATES.items() for event, to in leads.items() if to is OPEN]
    assert opens == [(SenderState.HELD, SenderEvent.RESUMED)]
    assert set(STATES) == set(SenderState)
    assert set(TAKES) == set(Takes)


@given(st.lists(st.sampled_from(SenderEvent), max_size=30))
def test_whatever_happens_the_state_is_what_the_events_say(events: list[SenderEvent]) -> None:
    sender, counters = make(World())
    connected = open_ = passed_by = expired = False
    for event in events:
        match event:
            case SenderEvent.ATTACHED:
                if expired:
                    continue  # its neighbour returns first
                sender.attach(Sink())  # type: ignore[arg-type]
                connected, open_ = True, False
            case SenderEvent.RESUMED:
                sender.resume()
                if connected and not open_:
                    open_, passed_by = True, False
            case SenderEvent.SUSPENDED:
                sender.suspend()
                open_ = False
            case SenderEvent.DETACHED:
                sender.detach()
                connected = open_ = False
            case SenderEvent.PASSED_BY:
                sender.step(event)
                passed_by = True
            case SenderEvent.EXPIRED:
                if connected:
                    continue  # a neighbour that is there does not expire
                sender.step(event)
                expired = True
            case SenderEvent.RETURNED:
                sender.step(event)
                expired = False
            case SenderEvent.FORGOTTEN:
                sender.step(event)
                passed_by = expired = False
        assert (sender.state is not AWAY, sender.state is OPEN, sender.open) == (connected, open_, open_)
        assert (sender.takes is ALL) == (not passed_by and not expired)
        assert (sender.takes is KEPT) == (passed_by and not expired)
        before = {name: counters[f"link_dropped_{name}_qos0"] for name in ("neighbor_expired", "other_path")}
        send_message(sender, Publish(topic="t", payload=b""), 0, None)
        after = {name: counters[f"link_dropped_{name}_qos0"] - count for name, count in before.items()}
        waits = not open_
        assert after == {"neighbor_expired": waits and expired, "other_path": waits and passed_by > expired}

"""The table of a link's states: no event leads to a combination that must not be."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ildm.core.link.state as module
from ildm.core.link.state import TRANSITIONS, LinkEvent, LinkState, LinkStateError, Stateful


@given(st.lists(st.sampled_from(LinkEvent), max_size=40))
def test_whatever_happens_the_state_is_what_the_events_say(events: list[LinkEvent]) -> None:
    link = Stateful()
    connected = here = there = False
    for event in events:
        before = link.state
        try:
            link.step(event)
        except LinkStateError:
            assert link.state is before
            assert (before, event) not in TRANSITIONS
            continue
        match event:
            case LinkEvent.CONNECTED:
                connected, here, there = True, False, False
            case LinkEvent.LOST | LinkEvent.FORGOTTEN:
                connected = here = there = False
            case LinkEvent.OFFERED:
                here = True
            case LinkEvent.INVITED:
                there = True
            case LinkEvent.WITHDRAWN:
                here = False
            case LinkEvent.DECLINED:
                there = False
        assert (link.connected, link.ready_here, link.ready_there) == (connected, here, there)
        if here and there:
            assert link.state is LinkState.ACTIVE
        if event in (LinkEvent.LEFT, LinkEvent.FORGOTTEN):
            assert not link.in_cooperation
            assert event is LinkEvent.FORGOTTEN or before.cooperating
        elif before.cooperating:
            assert link.in_cooperation  # it leaves for no other reason
        elif link.in_cooperation:
            assert link.state in (LinkState.ACTIVE, LinkState.DOWN)  # it joins in no other way


@pytest.mark.parametrize("state", LinkState)
def test_a_connected_link_can_meet_with_anything_but_its_restoration(state: LinkState) -> None:
    possible = {event for found, event in TRANSITIONS if found is state}
    if state.connected:
        left = {LinkEvent.LEFT} if state.cooperating and state is not LinkState.ACTIVE else set()
        assert possible == set(LinkEvent) - {LinkEvent.RESTORED, LinkEvent.LEFT} | left
    else:
        restored = {LinkEvent.RESTORED} if state is LinkState.ABSENT else set()
        assert possible == {LinkEvent.CONNECTED, LinkEvent.FORGOTTEN} | restored


def test_every_state_can_be_reached() -> None:
    assert set(TRANSITIONS.values()) == set(LinkState)


def test_nothing_else_writes_the_state_of_a_link() -> None:
    wing = Path(module.__file__).parent
    writers = {
        path.name
        for path in wing.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "state" and isinstance(node.ctx, ast.Store)
    }
    assert writers == {"state.py", "dialer.py", "discovery.py"}  # addresses have states of their own

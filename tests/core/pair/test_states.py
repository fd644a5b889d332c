"""Every cell of the table of states, and what a member knows of the owner."""

from __future__ import annotations

import itertools

import pytest

from ildm.core.pair.states import TRANSITIONS, Member, MemberEvent, MemberState, MemberStateError

S, E = MemberState, MemberEvent

CELLS = {
    (S.STARTING, E.REFUSED): S.STANDBY,
    (S.STARTING, E.LOCKED): S.CLAIMING,
    (S.STARTING, E.ENDED): S.LEFT,
    (S.STANDBY, E.LOCKED): S.CLAIMING,
    (S.STANDBY, E.HEARD): S.STANDBY,
    (S.STANDBY, E.SILENT): S.FENCING,
    (S.STANDBY, E.ENDED): S.LEFT,
    (S.FENCING, E.LOCKED): S.CLAIMING,
    (S.FENCING, E.HEARD): S.STANDBY,
    (S.FENCING, E.SILENT): S.FENCING,
    (S.FENCING, E.SPARED): S.STANDBY,
    (S.FENCING, E.ENDED): S.LEFT,
    (S.CLAIMING, E.OPENED): S.OWNER,
    (S.CLAIMING, E.ENDED): S.LEFT,
    (S.OWNER, E.ENDED): S.LEFT,
    (S.LEFT, E.ENDED): S.LEFT,
}
"""Said once more, in other words than the module's."""


@pytest.mark.parametrize(("state", "event"), list(itertools.product(S, E)))
def test_every_cell_of_the_table(state: MemberState, event: MemberEvent) -> None:
    member = Member("a")
    member.state = state
    expected = CELLS.get((state, event))
    assert TRANSITIONS.get((state, event)) is expected
    if expected is None:
        with pytest.raises(MemberStateError, match=f"{state.name} cannot be {event.name}"):
            member.step(event)
        assert member.state is state
    else:
        assert member.step(event) is (expected is not state)
        assert member.state is expected


def test_nobody_owns_a_site_without_the_lock_and_an_open_spool() -> None:
    ways = {before for (before, _), after in TRANSITIONS.items() if after is S.OWNER}
    assert ways == {S.CLAIMING}
    locked = {event for (_, event), after in TRANSITIONS.items() if after is S.CLAIMING}
    assert locked == {E.LOCKED}

"""The table of a client's states says the same in the documentation and in the code."""

from __future__ import annotations

from pathlib import Path

import ildm
from ildm.core.local.client_state import ENDED, NEXT, RELAYING, ClientState


def documented() -> dict[ClientState, dict[str, ClientState]]:
    source = (
        Path(ildm.__file__).parent / "core/local/client_state.py"
    ).read_text()  # what is compiled has none
    rows = source.split("\n\n")[1].splitlines()[1:-1]
    events = rows[0].split()[1:]
    table = {}
    for row in rows[2:]:
        name, *cells = row.split()
        to = dict(zip(events, cells, strict=True))
        table[ClientState[name]] = {event: ClientState[cell] for event, cell in to.items() if cell != "-"}
    return table


def test_the_table_is_the_documented_one() -> None:
    assert documented() == {
        state: {event: to for event, to in leads.items() if event != "ends"} for state, leads in NEXT.items()
    }


def test_every_state_ends_and_no_end_leads_on() -> None:
    assert set(NEXT) == set(ClientState)
    assert all(leads["ends"] is ENDED for leads in NEXT.values())
    assert set(NEXT[ENDED]) == {"ends"}


def test_a_client_is_served_only_after_its_connack() -> None:
    found = [(state, event) for state, leads in NEXT.items() for event, to in leads.items() if to is RELAYING]
    assert found == [(ClientState.AWAITING_CONNACK, "accepted")]

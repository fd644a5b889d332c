"""The states of another node, as README.md has them: each event in each state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ildm_algorithms.octopia.grid.contacts import Contact, ContactState

U, UP, S, R, D = ContactState

EVENTS: dict[str, Callable[[Contact], None]] = {
    "hello": lambda contact: contact.hello(True, 5, 1.0),
    "hello by another": lambda contact: contact.hello(False, 5, 1.0),
    "data": lambda contact: contact.data(1.0),
    "link lost": lambda contact: contact.lost(certain=False),
    "cannot be reached": lambda contact: contact.lost(certain=True),
    "silence": lambda contact: contact.silent(),
    "bye": lambda contact: contact.said_bye(),
    "new life": lambda contact: contact.restarted(9),
    "another hears it": lambda contact: contact.relayed(True),
    "no other hears it": lambda contact: contact.relayed(False),
}
TABLE: dict[str, tuple[ContactState, ...]] = {
    # from       unknown, up, suspect, relayed, down
    "hello": (UP, UP, UP, UP, UP),
    "hello by another": (R, UP, S, R, R),
    "data": (U, UP, UP, R, D),
    "link lost": (U, S, D, R, D),
    "cannot be reached": (U, D, D, R, D),
    "silence": (U, D, D, D, D),
    "bye": (U, D, D, D, D),
    "new life": (U, D, D, D, D),
    "another hears it": (U, UP, S, R, R),
    "no other hears it": (U, UP, S, D, D),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("before", ContactState)
def test_every_event_in_every_state(event: str, before: ContactState) -> None:
    contact = Contact("b", 1)
    contact.state = before
    EVENTS[event](contact)
    assert contact.state is TABLE[event][list(ContactState).index(before)]


def test_who_relays_a_node_must_have_received_its_hello_after_it_was_lost() -> None:
    contact = Contact("b", 1)
    contact.hello(True, 7, 1.0)
    contact.reported("c", 8, 1.0)
    contact.lost(certain=True)
    usable = {"c", "d"}
    contact.reported("c", 9, 2.0)  # the round in which it died may have reached c and not this node
    assert contact.relay(usable, 0.0) is None
    contact.reported("d", 10, 3.0)
    assert contact.relay(usable, 0.0) == "d"
    assert contact.relay(usable, 4.0) is None
    assert contact.relay({"c"}, 0.0) is None

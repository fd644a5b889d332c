"""Which of several addresses of the broker is used."""

from __future__ import annotations

from ildm.config import Address
from ildm.core.broker.broker_choice import FAILURES, BrokerChoice

A, B, C = (Address(name, 1) for name in "abc")
LASTING = 5.0


class Chooser:
    """A choice among addresses, its clock, and what it has told."""

    def __init__(self, *addresses: Address) -> None:
        self.time = 0.0
        self.told: list[object] = []
        self.choice = BrokerChoice(
            addresses, lambda: self.time, LASTING, lambda: self.told.append("moved"), self.told.append
        )

    @property
    def current(self) -> Address:
        return self.choice.current


def test_one_address_is_all_there_is() -> None:
    chooser = Chooser(A)
    for _ in range(2 * FAILURES):
        chooser.choice.failed(A)
        chooser.time += LASTING
    assert (chooser.current, chooser.told) == (A, [])


def test_all_are_tried_in_their_order_and_the_first_comes_after_the_last() -> None:
    chooser = Chooser(A, B, C)
    tried = []
    for _ in range(4):
        tried.append(chooser.current)
        chooser.choice.failed(chooser.current)
    assert tried == [A, B, C, A]
    assert chooser.told == ["moved"] * 4
    assert chooser.choice.failovers == 0  # nobody was there


def test_another_one_counts_when_it_is_reached() -> None:
    chooser = Chooser(A, B)
    chooser.choice.failed(A)
    chooser.time = 7.0
    chooser.choice.reached(B)
    assert chooser.told == ["moved", A]
    assert (chooser.choice.used, chooser.choice.failovers, chooser.choice.since) == (B, 1, 7.0)
    chooser.choice.reached(B)
    assert chooser.choice.failovers == 1


def test_the_same_one_again_is_no_failover() -> None:
    chooser = Chooser(A, B)
    chooser.choice.failed(A)
    chooser.choice.failed(B)
    chooser.choice.reached(A)
    assert (chooser.choice.failovers, chooser.choice.since) == (0, None)


def test_what_comes_late_of_an_address_that_was_left_changes_nothing() -> None:
    chooser = Chooser(A, B)
    chooser.choice.failed(A)
    chooser.choice.failed(A)
    assert chooser.current == B
    chooser.choice.reached(A)
    assert (chooser.current, chooser.choice.used, chooser.choice.failovers) == (B, A, 0)


def test_an_address_with_sessions_is_left_after_several_failures_that_last() -> None:
    chooser = Chooser(A, B)
    chooser.choice.reached(A)
    for _ in range(3 * FAILURES):
        chooser.choice.failed(A)
    assert chooser.current == A  # all at once: as when too many connect
    chooser.time += LASTING
    chooser.choice.reached(A)
    for _ in range(FAILURES):
        chooser.choice.failed(A)
    assert chooser.current == A  # one has been made meanwhile
    chooser.time += LASTING
    chooser.choice.failed(A)
    assert chooser.current == B


def test_an_address_without_sessions_is_left_at_once() -> None:
    chooser = Chooser(A, B)
    chooser.choice.reached(A)
    chooser.choice.reached(A)
    chooser.choice.ended(A)
    chooser.choice.failed(A)
    assert chooser.current == A
    chooser.choice.ended(A)
    chooser.choice.failed(A)
    assert chooser.current == B


def test_another_list_keeps_the_one_in_use_if_it_is_there() -> None:
    chooser = Chooser(A, B)
    chooser.choice.failed(A)
    chooser.choice.reached(B)
    chooser.told.clear()
    chooser.choice.replace([C, B])
    assert (chooser.current, chooser.told) == (B, [])
    chooser.choice.failed(B)
    chooser.time += LASTING
    for _ in range(FAILURES):
        chooser.choice.failed(B)
    assert chooser.current == C  # the next of the new list


def test_the_first_of_another_list_is_tried_if_it_is_not_and_that_is_no_failover() -> None:
    chooser = Chooser(A, B)
    chooser.choice.reached(A)
    chooser.choice.replace([C])
    assert (chooser.current, chooser.choice.used, chooser.told) == (C, A, ["moved"])
    chooser.choice.ended(A)
    chooser.choice.failed(A)  # late news of where nobody goes any more
    assert chooser.current == C
    chooser.choice.reached(C)
    assert (chooser.told, chooser.choice.failovers) == (["moved", A], 0)


def test_where_connections_lead_to_is_known_of_addresses_in_numbers() -> None:
    local = Address("127.0.0.1", 1)
    known = {local: "127.0.0.1:1", Address("10.0.0.1", 2, "mqtts"): "10.0.0.1:2"}
    unknown = (Address("0.0.0.0", 1), Address("::1", 1), Address("127.0.0.1", 0, "unix"))
    choice = Chooser(A, *known, *unknown).choice
    assert choice.places == known
    choice.replace((B, local))
    assert choice.places == {local: "127.0.0.1:1"}

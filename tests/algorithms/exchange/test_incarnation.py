"""A node's incarnation grows, whatever its clock, its state and its messages say."""

from __future__ import annotations

import pytest

from ildm_algorithms.exchange.incarnation import next_incarnation


@pytest.mark.parametrize(
    ("saved", "clock", "known", "incarnation"),
    [
        pytest.param(b"", 0, 0, 1, id="nothing is known"),
        pytest.param(b"", 500, 0, 500, id="a state that is lost"),
        pytest.param((40).to_bytes(4), 500, 0, 500, id="an ordinary start"),
        pytest.param((500).to_bytes(4), 500, 0, 501, id="two starts within one reading of the clock"),
        pytest.param((900).to_bytes(4), 500, 0, 901, id="a clock that was set back"),
        pytest.param((900).to_bytes(4), 500, 950, 951, id="messages of a later incarnation"),
        pytest.param((900).to_bytes(8), 500, 0, 500, id="a state of another length"),
    ],
)
def test_the_incarnation_grows(saved: bytes, clock: int, known: int, incarnation: int) -> None:
    assert next_incarnation(saved, 4, clock, known) == incarnation

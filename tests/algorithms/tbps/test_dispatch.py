"""What other nodes send goes to the part that it is for; what is in error does no harm."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ildm.api import Peer
from ildm_algorithms.exchange.messages import Message
from ildm_algorithms.overlay.graph import Arrival
from ildm_algorithms.tbps.dispatch import Dispatch, Guard
from ildm_algorithms.tbps.messages import Answer, Merged, Query, Want
from tests.algorithms.fake_api import FakeApi

OTHER = Peer("n1", "n1:1")
PARTS = ("inbox", "outbox", "suspension", "retained", "missing", "offers", "merges", "forgotten")


def dispatch() -> tuple[FakeApi, Dispatch, Any]:
    api: Any = FakeApi()
    parts = {name: Mock() for name in PARTS}
    return api, Dispatch(api.node_id, Guard(api), **parts), SimpleNamespace(**parts)


def cast(payload: bytes, origin: Peer = OTHER) -> Arrival:
    return Arrival((origin.node_id, 1), origin, [b"key"], payload, 1)


def test_a_message_goes_into_the_inbox() -> None:
    _, one, parts = dispatch()
    message = Message(7, 0, 0, b"frame")
    one.delivered(cast(message.encode()))
    parts.inbox.take.assert_called_once_with("n1", message)


def test_what_this_node_has_cast_itself_concerns_its_aggregates_alone() -> None:
    api, one, parts = dispatch()
    one.delivered(cast(Message(7, 0, 0, b"frame").encode(), Peer("n0", "n0:1")))
    one.delivered(cast(Query("a/#").encode(), Peer("n0", "n0:1")))
    assert not parts.inbox.mock_calls
    assert not parts.retained.mock_calls
    parts.suspension.surveys.announced.assert_called_once_with([b"key"], ["a/#"])
    assert not api.counters


@pytest.mark.parametrize("payload", [b"?", b"", Answer("t", True, []).encode(), Want(1, [2]).encode()])
def test_what_is_not_for_casting_is_dropped_and_counted(payload: bytes) -> None:
    api, one, parts = dispatch()
    one.delivered(cast(payload))
    assert api.counters == {"malformed": 1}
    assert not any(getattr(parts, name).mock_calls for name in PARTS)


def test_what_is_only_for_casting_is_dropped_and_counted() -> None:
    api, one, parts = dispatch()
    one.received(OTHER, Merged().encode())
    assert api.counters == {"malformed": 1}
    assert not parts.merges.mock_calls

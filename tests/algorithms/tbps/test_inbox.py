"""Messages of other nodes: into the broker once, at the QoS that is wanted."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from ildm.mqtt import FilterTable, IldmError, PingReq, Property, Publish, Version
from ildm_algorithms.exchange.messages import Message
from ildm_algorithms.exchange.receipts import Receipts
from ildm_algorithms.sg_tbps import SgTbps
from ildm_algorithms.tbps.inbox import Inbox
from tests.algorithms.fake_api import FakeApi


class Api(FakeApi):
    def __init__(self) -> None:
        super().__init__()
        self.injected: list[Any] = []

    def inject(self, message: Publish, identity: tuple[str, int] | None = None) -> bool:
        self.injected.append((message.qos, identity))
        return True

    def inject_frame(self, frame: bytes, identity: tuple[str, int] | None = None) -> bool:
        self.injected.append((frame, identity))
        return True


def inbox(wanted: int = 2) -> tuple[Api, Inbox]:
    api: Any = Api()
    filters: FilterTable[None] = FilterTable()
    filters.add("t", None, wanted)
    receipts = Receipts(api.now, 300.0, 1 << 20, api.count)
    return api, Inbox(api, SgTbps.Config(), filters, receipts, Mock(), Mock(), Mock())


def message(number: int, topic: str = "t", qos: int = 1, **fields: Any) -> Message:
    packet = Publish(topic=topic, payload=b"x", qos=qos, packet_id=1 if qos else None, **fields)
    return Message(number, 0, 0, packet.encode(Version.V5))


def test_a_plain_message_is_passed_on_as_it_is_and_once() -> None:
    api, one = inbox()
    carried = message(7)
    one.take("n1", carried)
    one.take("n1", carried)
    assert api.injected == [(carried.frame, ("n1", 7))]
    assert api.counters == {"injected": 1, "duplicates": 1}


def test_nobody_wants_it() -> None:
    api, one = inbox()
    one.take("n1", message(7, "u"))
    one.take("n1", message(8, "u", properties={Property.CONTENT_TYPE: "x"}))
    assert api.injected == []
    assert api.counters == {"unmatched": 2}


def test_a_lower_qos_is_wanted() -> None:
    api, one = inbox(wanted=0)
    one.take("n1", message(7, properties={Property.CONTENT_TYPE: "x"}))
    assert api.injected == [(0, None)]


def test_what_is_no_publish_is_refused() -> None:
    _, one = inbox()
    with pytest.raises(IldmError):
        one.take("n1", Message(7, 0, 0, PingReq().encode(Version.V5)))


def test_a_late_message_waits_for_none_before_it() -> None:
    api, one = inbox()
    one.take("n1", message(7))
    one.take_late("n1", message(9)._replace(behind=1))
    assert len(api.injected) == 2
    one.take("n1", message(11)._replace(behind=1))
    assert len(api.injected) == 2  # number 10 may be under way
    assert api.counters["order_held"] == 1

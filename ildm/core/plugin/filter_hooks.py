"""What filters are asked, and which answers they may give.

The chain (:mod:`ildm.core.plugin.filtering`) asks; here is what differs between a message, an entry of a
SUBSCRIBE and a CONNECT.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

from ildm.api import Filter, Session, Source
from ildm.mqtt import Connect, PacketType, Property, Publish, PublishView, ReasonCode, Subscription, decode
from ildm.mqtt.constants import REASON_CODES

T = TypeVar("T")


class Hook(ABC, Generic[T]):
    """One of the questions a filter is asked."""

    name: ClassVar[str]
    default: ClassVar[ReasonCode]
    """Reason of a rejection that has none."""
    possible: ClassVar[frozenset[int]]
    """Reasons of a rejection which the answer to the client can carry."""
    rejected_by_none: ClassVar[bool] = False
    """None rejects without a reason."""

    @abstractmethod
    def call(self, plugin: Filter, session: Session, value: T, packet: Any) -> object:
        """Ask; what is handed out is not the value itself if that can be changed."""

    @abstractmethod
    def accept(self, session: Session, value: T, answer: Any) -> T:
        """What passes: the value itself if nothing is changed. Raises: whatever is wrong with the answer."""


class MessageHook(Hook[bytes]):
    name = "filter"
    default = ReasonCode.PAYLOAD_FORMAT_INVALID
    possible = REASON_CODES[PacketType.PUBACK]
    rejected_by_none = True

    def __init__(self, source: Source) -> None:
        self.source = source

    def call(self, plugin: Filter, session: Session, value: bytes, packet: Any) -> object:
        return plugin.filter(session, value)

    def accept(self, session: Session, value: bytes, answer: Any) -> bytes:
        if not isinstance(answer, bytes):
            raise TypeError(f"filter returned {type(answer).__name__}, expected bytes, Reject or None")
        version = session.version
        old, new = PublishView(value, version), decode(answer, version)
        if not isinstance(new, Publish) or old.qos != new.qos or old.packet_id != new.packet_id:
            raise ValueError("filter changed the packet type, QoS or packet identifier of a PUBLISH")
        if Property.TOPIC_ALIAS in new.properties:
            raise ValueError("filter set a topic alias, which belongs to one connection")
        if Property.SUBSCRIPTION_IDENTIFIER in new.properties and self.source is not Source.BROKER:
            raise ValueError("filter set a subscription identifier, which only a broker does (MQTT-3.3.4-6)")
        return bytes(answer)


class SubscriptionHook(Hook[Subscription]):
    name = "admit_subscription"
    default = ReasonCode.NOT_AUTHORIZED
    possible = frozenset(code for code in REASON_CODES[PacketType.SUBACK] if code >= 0x80)

    def call(self, plugin: Filter, session: Session, value: Subscription, packet: Any) -> object:
        return plugin.admit_subscription(session, replace(value), packet)

    def accept(self, session: Session, value: Subscription, answer: Any) -> Subscription:
        if not isinstance(answer, Subscription):
            raise TypeError(
                f"admit_subscription returned {type(answer).__name__}, expected Subscription or Reject"
            )
        if answer.topic_filter != value.topic_filter:
            raise ValueError(f"admit_subscription changed the filter {value.topic_filter!r}")
        # read as they are sent: whatever stands for them in the answer
        changed = Subscription.parse(value.topic_filter, answer.options(session.version), session.version)
        return value if changed == value else changed


class ClientHook(Hook[Connect]):
    name = "admit_client"
    default = ReasonCode.NOT_AUTHORIZED
    possible = frozenset(code for code in REASON_CODES[PacketType.CONNACK] if code >= 0x80)

    def call(self, plugin: Filter, session: Session, value: Connect, packet: Any) -> object:
        return plugin.admit_client(session, deepcopy(value))

    def accept(self, session: Session, value: Connect, answer: Any) -> Connect:
        if not isinstance(answer, Connect):
            raise TypeError(f"admit_client returned {type(answer).__name__}, expected Connect or Reject")
        if answer.version is not value.version:
            raise ValueError(f"admit_client changed the MQTT version to {answer.version!r}")
        if answer == value:
            return value
        changed = decode(answer.encode(), value.version)
        assert isinstance(changed, Connect)
        return changed


MESSAGES = {source: MessageHook(source) for source in Source}
SUBSCRIPTION = SubscriptionHook()
CLIENT = ClientHook()

"""Retained messages that come again: how they are marked, and by what they are known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ildm.api import STAMP_PROPERTY, Stamp
from ildm.mqtt import Property, Publish

if TYPE_CHECKING:
    from ildm.api import NodeApi

__all__ = ["deleted", "identity_of", "inject_known", "is_repeated", "repeated"]


def repeated(message: Publish) -> Publish:
    """A copy marked as a repetition: where something newer is known, nobody gets to see it."""
    users = [
        (name, f"{value}:sync" if name == STAMP_PROPERTY and not value.endswith(":sync") else value)
        for name, value in message.properties.get(Property.USER_PROPERTY, ())
    ]
    return replace(message, properties={**message.properties, Property.USER_PROPERTY: users})


def deleted(message: Publish) -> Publish:
    """A copy for those who subscribe: it is retained no more."""
    users = message.properties.get(Property.USER_PROPERTY, ())
    properties = {
        **message.properties,
        Property.USER_PROPERTY: [(name, value) for name, value in users if name != STAMP_PROPERTY],
    }
    return replace(message, retain=False, properties=properties)


def identity_of(message: Publish) -> tuple[str, int] | None:
    """Of a retained message of QoS 1 or 2, by its stamp, so that it is the same however the message comes;
    None: it has none."""
    stamp = Stamp.of(message)
    return (f"{stamp.node}/retained", stamp.time) if message.qos and stamp is not None else None


def inject_known(api: NodeApi, message: Publish) -> bool:
    """Give the local broker an answer or a repetition, also if it has had that message before. The message is
    known when it comes by itself then."""
    return api.inject(message, identity_of(message)) or api.inject(message)


def is_repeated(message: Publish) -> bool:
    """Whether a message is so marked."""
    users = message.properties.get(Property.USER_PROPERTY, ())
    return any(name == STAMP_PROPERTY and Stamp.parse(value)[1] for name, value in users)

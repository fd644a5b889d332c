"""Stock brokers by name: `new_broker` makes one, which runs in the foreground below a directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ildm.testing.live.brokers.base import Broker, BrokerError
from ildm.testing.live.brokers.kinds import ActiveMQ, Amqtt, Moquette, Mosquitto, RabbitMQ

__all__ = [
    "KINDS",
    "ActiveMQ",
    "Amqtt",
    "Broker",
    "BrokerError",
    "Moquette",
    "Mosquitto",
    "RabbitMQ",
    "broker_class",
    "new_broker",
]

_CLASSES: Mapping[str, type[Broker]] = {
    kind.name: kind for kind in (Mosquitto, RabbitMQ, ActiveMQ, Moquette, Amqtt)
}
KINDS = tuple(_CLASSES)
"""The names of all makes: ``mosquitto``, ``rabbitmq``, ``activemq``, ``moquette``, ``amqtt``."""


def broker_class(kind: str) -> type[Broker]:
    """The class of a make; KeyError for a name that is not in KINDS."""
    return _CLASSES[kind]


def new_broker(kind: str, directory: Path, **options: Any) -> Broker:
    """A broker of that make, not started yet. `options` are those of its class."""
    return _CLASSES[kind](directory, **options)

"""Real brokers for the tests: `new_broker` makes one, `Fleet` starts them and leaves none behind."""

from __future__ import annotations

from ildm.testing.live.brokers import (
    KINDS,
    ActiveMQ,
    Amqtt,
    Broker,
    BrokerError,
    Moquette,
    Mosquitto,
    RabbitMQ,
    new_broker,
)
from ildm.testing.live.client import PahoClient, RefusedError
from ildm.testing.live.fleet import Fleet, broker_pairs, require_broker

__all__ = [
    "KINDS",
    "ActiveMQ",
    "Amqtt",
    "Broker",
    "BrokerError",
    "Fleet",
    "Moquette",
    "Mosquitto",
    "PahoClient",
    "RabbitMQ",
    "RefusedError",
    "broker_pairs",
    "new_broker",
    "require_broker",
]

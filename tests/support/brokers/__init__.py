"""Real brokers for the tests: `new_broker` makes one, `Fleet` starts them and leaves none behind."""

from __future__ import annotations

from tests.support.brokers.base import Broker, BrokerError
from tests.support.brokers.client import PahoClient, RefusedError
from tests.support.brokers.fleet import KINDS, Fleet, broker_pairs, new_broker, require_broker
from tests.support.brokers.kinds import ActiveMQ, Amqtt, Moquette, Mosquitto, RabbitMQ

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

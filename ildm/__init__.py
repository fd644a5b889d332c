"""ILDM: the interworking layer of distributed MQTT brokers."""

__version__ = "0.1.0"

"""ILDM: the interworking layer of distributed MQTT brokers."""

from ildm import compiled

__version__ = "0.2.0"

compiled.install()

"""ILDM: the interworking layer of distributed MQTT brokers."""

from ildm import compiled

__version__ = "0.1.0"

compiled.install()

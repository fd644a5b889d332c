"""ILDM: the interworking layer of distributed MQTT brokers."""

from ildm import compiled

__version__ = "0.3.0.dev0"

compiled.install()

"""What is fuzzed. A target is imported when it is asked for, so that what it imports can be instrumented."""

from __future__ import annotations

import importlib

from tests.fuzz.engine import Target

TARGETS = {
    "codec": "codec:Codec",
    "frames": "frames:Frames",
    "client": "client:Client",
    "broker": "broker:Broker",
    "link": "link:Link",
    "durable-client": "client:DurableClient",
    "durable-broker": "broker:DurableBroker",
    "durable-link": "link:DurableLink",
    "chunks": "chunks:Chunks",
    "handshake": "link:Handshake",
    "spool": "spool:Spool",
    "config": "config:Configuration",
    "admin": "admin:Admin",
}


def make(name: str) -> Target:
    """The target of that name. Raises: KeyError when there is none."""
    module, _, cls = TARGETS[name].partition(":")
    target: Target = getattr(importlib.import_module(f"tests.fuzz.targets.{module}"), cls)()
    assert target.name == name
    return target

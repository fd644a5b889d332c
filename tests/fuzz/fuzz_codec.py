"""Fuzzing of the codec, coverage-guided by atheris where that is installed.

``python -m tests.fuzz.fuzz_codec CORPUS_DIRECTORY`` runs until it finds something. ``one_input`` is also
what the property tests call, so a finding becomes a test by pasting its bytes.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ildm.mqtt import Framer, MqttError, Packet, PublishView, Version, decode

LIMIT = 1 << 16


def one_input(data: bytes) -> None:
    """Read ``data`` as a stream of every version: nothing but MqttError may come out.

    Raises:
        AssertionError: a packet read here changes when it is written and read again.
    """
    framer = Framer(LIMIT)
    try:
        frames = framer.feed(data)
        assert framer.pending == len(data) - sum(map(len, frames))
    except MqttError as error:
        frames = list(error.frames)
    assert data.startswith(b"".join(frames))
    for frame in [*frames, data]:
        for version in Version:
            one_frame(frame, version)


def one_frame(frame: bytes, version: Version) -> None:
    """Decode one frame; what is accepted must survive another round, and the view must agree."""
    try:
        packet = decode(frame, version)
    except MqttError as refused:
        check_clause(refused)
        look_at(frame, version)
        return
    again = Version(packet.version) if hasattr(packet, "version") else version
    assert decode(packet.encode(again), version) == packet
    if frame[0] >> 4 == 3:
        check_view(PublishView(frame, version), packet)


def look_at(frame: bytes, version: Version) -> None:
    """Ask a view of a frame that may be broken for everything."""
    if not frame:
        return
    for name in ("topic_bytes", "topic", "packet_id", "properties", "properties_bytes", "payload"):
        try:
            getattr(PublishView(frame, version), name)
        except MqttError as refused:
            check_clause(refused)


def check_clause(error: MqttError) -> None:
    """Every refusal names the rule it rests on."""
    assert error.clause.startswith("MQTT-")


def check_view(view: PublishView, packet: Packet) -> None:
    """The lazy view says of a PUBLISH what ``decode`` says."""
    for name in ("topic", "payload", "qos", "retain", "dup", "packet_id", "properties"):
        assert getattr(view, name) == getattr(packet, name), name


def main(arguments: list[str]) -> None:
    """Hand over to atheris. Raises: ModuleNotFoundError where it is not installed."""
    atheris: Any = importlib.import_module("atheris")
    atheris.instrument_all()
    atheris.Setup(arguments, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)

"""The table of answers in the README of the codec, packet by packet, at a node."""

from __future__ import annotations

from pathlib import Path

import pytest

import ildm.mqtt
from ildm.mqtt import ConnAck, Connect, Disconnect, MqttError, Version, decode
from ildm.testing.virtual.world import World
from tests.support.site import Site

README = Path(ildm.mqtt.__file__).with_name("README.md")


def table() -> list[tuple[str, bytes, int, str]]:
    """Packet, its bytes, answer and rule of each row."""
    rows = []
    for line in README.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[1].startswith("`"):
            rows.append((cells[0], bytes.fromhex(cells[1].strip("`")), int(cells[2], 16), cells[3]))
    return rows


ROWS = table()
OF_STATE = {"MQTT-3.1.0-2", "MQTT-4.13.1-1", "MQTT-3.14.2.2.2"}
"""Rules that hold between packets, not within one."""
each_row = pytest.mark.parametrize(("name", "data", "answer", "rule"), ROWS, ids=[row[0] for row in ROWS])


def test_the_table_is_read() -> None:
    assert len(ROWS) > 35
    assert {answer for _, _, answer, _ in ROWS} == {0x81, 0x82}


@each_row
def test_the_node_answers_as_the_table_says(name: str, data: bytes, answer: int, rule: str) -> None:
    world = World()
    site = Site(world, "a", "sf")
    client = site.client("c", version=Version.V5, clean_start=True)
    client.transport.write(data)
    world.run(1)
    connack, *rest = client.packets
    assert isinstance(connack, ConnAck)
    assert [packet.reason_code for packet in rest if isinstance(packet, Disconnect)] == [answer]
    assert len(rest) == 1
    assert client.closed


@each_row
def test_before_mqtt_5_the_connection_is_closed(name: str, data: bytes, answer: int, rule: str) -> None:
    """Without an answer, as DISCONNECT is the client's alone; some of it is allowed there."""
    world = World()
    site = Site(world, "a", "sf")
    client = site.client("c", connect=Connect(client_id="c", version=Version.V311))
    client.transport.write(data)
    world.run(1)
    assert [type(packet) for packet in client.packets if isinstance(packet, Disconnect)] == []


@pytest.mark.parametrize(
    ("name", "data", "answer", "rule"), [row for row in ROWS if row[3] not in OF_STATE], ids=str
)
def test_the_codec_names_the_rule(name: str, data: bytes, answer: int, rule: str) -> None:
    with pytest.raises(MqttError) as caught:
        decode(data, Version.V5)
    assert (caught.value.reason, caught.value.clause) == (answer, rule)

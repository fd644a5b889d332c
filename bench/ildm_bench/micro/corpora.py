"""Messages as sites send them, made from a seed: topic and payload, each unlike the ones before.

============== ============================================================================================
``readings``   JSON of 100 sensors that drift, about 120 bytes
``sparkplug``  DDATA of Sparkplug B from 20 devices: protobuf, five metrics by alias, about 100 bytes
``discovery``  what Home Assistant is told of 300 entities, about 600 bytes of JSON
============== ============================================================================================
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from random import Random

from ildm.mqtt.framing import encode_varint

Message = tuple[str, bytes]
START = 1_764_000_000_000
"""Milliseconds of Unix time at the first message."""
VARINT, FIXED_64, BYTES, FIXED_32 = 0, 1, 2, 5
"""Wire types of protobuf."""
INT_32, INT_64, FLOAT_TYPE, DOUBLE_TYPE, BOOLEAN = (bytes((code,)) for code in (3, 4, 9, 10, 11))
"""Data types of Sparkplug B."""


def readings(random: Random) -> Iterator[Message]:
    """One sensor after the other, ten milliseconds apart."""
    values = [(random.gauss(20, 5), random.uniform(30, 60)) for _ in range(100)]
    number = 0
    while True:
        sensor = number % len(values)
        temperature, humidity = values[sensor]
        values[sensor] = temperature + random.gauss(0, 0.05), humidity + random.gauss(0, 0.1)
        document = {
            "device": f"sensor-{sensor:03}",
            "ts": START + 10 * number + random.randrange(10),
            "temperature": round(temperature, 2),
            "humidity": round(humidity, 1),
            "battery": 100 - number // 10_000,
            "status": "ok" if random.random() < 0.99 else "low",
        }
        yield f"plant/line-{sensor % 4}/sensor-{sensor:03}/reading", json.dumps(document).encode()
        number += 1


def varint(number: int) -> bytes:
    """As protobuf has it, which is as MQTT has it but of any size."""
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def field(number: int, kind: int, value: bytes) -> bytes:
    return encode_varint(number << 3 | kind) + (varint(len(value)) if kind == BYTES else b"") + value


def sparkplug(random: Random) -> Iterator[Message]:
    """Five metrics of a device in each message, a tenth of a second apart."""
    pressures = [random.gauss(100, 30) for _ in range(20)]
    number = 0
    while True:
        device = number % len(pressures)
        pressures[device] += random.gauss(0, 0.5)
        now = varint(START + 100 * number + random.randrange(100))
        values = (
            (DOUBLE_TYPE, field(13, FIXED_64, struct.pack("<d", round(pressures[device], 3)))),
            (FLOAT_TYPE, field(12, FIXED_32, struct.pack("<f", round(random.gauss(50, 2), 1)))),
            (INT_32, field(10, VARINT, varint(1450 + random.randrange(-20, 20)))),
            (INT_64, field(11, VARINT, varint(8_000_000 + 3 * number))),
            (BOOLEAN, field(14, VARINT, varint(number % 300 < 250))),
        )
        metrics = b"".join(
            field(
                2,
                BYTES,
                field(2, VARINT, varint(alias)) + field(3, VARINT, now) + field(4, VARINT, kind) + value,
            )
            for alias, (kind, value) in enumerate(values)
        )
        payload = field(1, VARINT, now) + metrics + field(3, VARINT, varint(number % 256))
        yield f"spBv1.0/plant-7/DDATA/edge-{device % 4}/device-{device:02}", payload
        number += 1


QUANTITIES = (("temperature", "°C"), ("humidity", "%"), ("power", "W"), ("energy", "kWh"), ("voltage", "V"))


def discovery(random: Random) -> Iterator[Message]:
    """One entity after the other, over and over."""
    devices = [random.randbytes(6).hex() for _ in range(60)]
    number = 0
    while True:
        identity = devices[number // len(QUANTITIES) % len(devices)]
        quantity, unit = QUANTITIES[number % len(QUANTITIES)]
        document = {
            "name": quantity.capitalize(),
            "unique_id": f"{identity}_{quantity}",
            "object_id": f"plug_{identity}_{quantity}",
            "device_class": quantity,
            "state_class": "total_increasing" if quantity == "energy" else "measurement",
            "unit_of_measurement": unit,
            "state_topic": f"zigbee2mqtt/0x{identity}",
            "value_template": f"{{{{ value_json.{quantity} }}}}",
            "availability": [
                {"topic": "zigbee2mqtt/bridge/state"},
                {"topic": f"zigbee2mqtt/0x{identity}/availability"},
            ],
            "device": {
                "identifiers": [f"zigbee2mqtt_0x{identity}"],
                "name": f"plug {identity}",
                "manufacturer": "Example Works",
                "model": "Smart plug (EW-100)",
                "sw_version": f"1.{number // 5 % 7}.{number // 35 % 10}",
            },
            "enabled_by_default": True,
        }
        payload = json.dumps(document, ensure_ascii=False).encode()
        yield f"homeassistant/sensor/0x{identity}/{quantity}/config", payload
        number += 1


CORPORA: dict[str, Callable[[Random], Iterator[Message]]] = {
    "readings": readings,
    "sparkplug": sparkplug,
    "discovery": discovery,
}


def messages(corpus: str, count: int, seed: int = 1) -> list[Message]:
    """The first of a corpus."""
    made = CORPORA[corpus](Random(seed))
    return [next(made) for _ in range(count)]

"""Mutations that know what an input consists of: packets of a stream, or lines and words of a text.

Blind changes of bytes mostly break the first length they meet; these also change, repeat, move and splice
whole packets, correct lengths, and move the borders of chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from typing import TypeVar

from ildm.mqtt import decode_varint, encode_varint
from ildm.mqtt.errors import MqttError
from tests.fuzz.streams import MOST_CUTS, Case, id_place, split

T = TypeVar("T")
LARGEST = 6 << 10
"""Bytes of an input: larger ones cost time and find nothing new."""
USUAL = 768
"""The same of most streams: what one packet can find takes as long as all others with it."""
LONG = 16
"""One of so many streams may be longer than usual."""
INTERESTING = (0, 1, 2, 0x0F, 0x10, 0x7F, 0x80, 0xFF)
WORDS = tuple(
    bytes.fromhex(word)
    for line in (
        "0000 0001 ffff 00ff 7f ff7f ffff7f ffffff7f ffffffff 8000 808001 23 2b 2f 24 2f23 0123 02ffffffff",
        "0b01 0b00 1100000000 11ffffffff 23000a 230001 230000 210000 210001 2700000001 2600016100016200 c000",
        "d000 e000 c0800000 4002000a 62020001 c3a9 eda080 efbfbf f0908080 00",
    )
    for word in line.split()
)
"""What has a meaning somewhere: lengths, identifiers, properties, small packets, doubtful UTF-8."""

VALUES = (
    b"",
    b"1e999",
    b"-1",
    b"null",
    b"[]",
    b"{}",
    b'"\\u0000"',
    b"true",
    b"0x10",
    b"1_0",
    b"\xc3\xa9",
    b"!!x y",
)
"""What may stand in the place of a word of a text."""


class Chance(Random):
    """Chance that is quick rather than exactly even: a mutation takes twenty numbers."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        if stop is None:
            return int(self.random() * start)
        return start + int(self.random() * (stop - start))

    def choice(self, seq: Sequence[T]) -> T:  # type: ignore[override]
        return seq[int(self.random() * len(seq))]


Mutator = Callable[[bytes, Random, Sequence[bytes]], bytes]
"""An input, chance, and other inputs to take parts of -> another input."""


def mutate_bytes(data: bytes, random: Random, others: Sequence[bytes] = ()) -> bytes:
    """A few bytes changed, put in, removed, repeated, or taken from elsewhere."""
    raw = bytearray(data)
    for _ in range(1 << random.randrange(3)):
        at = random.randrange(len(raw) + 1)
        size = min(len(raw) - at, 1 << random.randrange(6))
        match random.randrange(8):
            case 0 if at < len(raw):
                raw[at] ^= 1 << random.randrange(8)
            case 1 if at < len(raw):
                raw[at] = random.choice(INTERESTING)
            case 2 if at < len(raw):
                raw[at] = random.randrange(256)
            case 3:
                word = random.choice(WORDS)
                raw[at : at + random.choice((0, len(word)))] = word
            case 4:
                del raw[at : at + size]
            case 5:
                raw[at:at] = raw[at : at + size] * random.choice((1, 1, 2, 8))
            case 6 if others:
                other = random.choice(others)
                start = random.randrange(len(other) + 1)
                raw[at : at + random.choice((0, size))] = other[start : start + size]
            case _:
                raw[at:at] = random.randbytes(random.randrange(1, 5))
    return bytes(raw[:LARGEST])


def mutate_stream(data: bytes, random: Random, others: Sequence[bytes] = ()) -> bytes:
    """Packets of a stream changed, moved, repeated, spliced; cuts and the setup as well."""
    case, parts = parts_of(data)
    packets = list(parts)
    setup, cuts = case.setup, list(case.cuts)
    for _ in range(1 << random.randrange(3)):
        at = random.randrange(len(packets)) if packets else 0
        match random.randrange(12):
            case 0 | 1 | 2 if packets:
                packets[at] = change_packet(packets[at], random, others)
            case 3 if len(packets) > 1:
                other = random.randrange(len(packets))
                packets[at], packets[other] = packets[other], packets[at]
            case 4 if packets:
                packets[at:at] = packets[at : at + random.randrange(1, 5)]
            case 5 if packets:
                times = random.choice((1, 2, 3, 4, 5, 8, 40))
                packets[at:at] = [packets[at]] * times
            case 6 if packets:
                del packets[at : at + random.choice((1, 1, 2, 4))]
            case 7 | 8 if others:
                theirs = parts_of(random.choice(others))[1]
                if theirs:
                    start = random.randrange(len(theirs))
                    packets[at:at] = theirs[start : start + random.choice((1, 1, 2, 8))]
            case 9:
                setup = random.choice((setup ^ 1 << random.randrange(8), random.randrange(256)))
            case 10:
                cuts = change_cuts(cuts, random, len(case.stream))
            case _ if packets and not random.randrange(4):
                packets = split(mutate_bytes(b"".join(packets), random, others))
    if random.randrange(4):
        packets = numbered(packets)
    most = USUAL if random.randrange(LONG) else LARGEST
    return Case(setup, tuple(cuts), b"".join(packets)[:most]).encode()


@lru_cache(8192)
def parts_of(data: bytes) -> tuple[Case, tuple[bytes, ...]]:
    """An input, and its packets; most are mutated many times."""
    case = Case.parse(data)
    return case, tuple(split(case.stream))


def numbered(packets: list[bytes]) -> list[bytes]:
    """The packets, of which each PUBLISH of QoS 1 or 2 has an identifier of its own."""
    found = list(packets)
    for number, packet in enumerate(packets, start=1):
        place = id_place(packet) if packet[:1] in WITH_ID else None
        if place is not None:
            found[number - 1] = packet[:place] + number.to_bytes(2) + packet[place + 2 :]
    return found


WITH_ID = frozenset(bytes((first,)) for first in range(0x30, 0x40) if first & 6)
"""How packets begin that may be PUBLISH with an identifier."""


def change_packet(packet: bytes, random: Random, others: Sequence[bytes] = ()) -> bytes:
    """Its flags or its body changed; mostly the remaining length then says what is there."""
    if packet and not random.randrange(6):
        return bytes((packet[0] ^ 1 << random.randrange(8),)) + packet[1:]
    try:
        length = decode_varint(packet, 1)
    except MqttError:
        length = None
    if length is None:
        return mutate_bytes(packet, random, others)
    body = mutate_bytes(packet[length[1] :], random, others)
    if random.randrange(8):
        return packet[:1] + encode_varint(len(body)) + body
    return packet[: length[1]] + body


def change_cuts(cuts: list[int], random: Random, size: int) -> list[int]:
    """Other borders of chunks."""
    match random.randrange(4):
        case 0:
            return []
        case 1:
            return [1] * random.randrange(1, MOST_CUTS + 1)
        case 2 if cuts:
            at = random.randrange(len(cuts))
            cuts[at] = min(max(0, cuts[at] + random.choice((-1, 1))), 65_535)
            return cuts
    return [random.randrange(1, min(size, 65_535) + 2) for _ in range(random.randrange(1, MOST_CUTS + 1))]


def mutate_text(data: bytes, random: Random, others: Sequence[bytes] = ()) -> bytes:
    """Lines and words of a text moved, repeated, exchanged with those of another; bytes as well."""
    lines = data.split(b"\n")
    for _ in range(1 << random.randrange(3)):
        at = random.randrange(len(lines))
        match random.randrange(8):
            case 0:
                lines[at:at] = lines[at : at + random.randrange(1, 4)]
            case 1 if len(lines) > 1:
                del lines[at]
            case 2 if others:
                theirs = random.choice(others).split(b"\n")
                start = random.randrange(len(theirs))
                lines[at:at] = theirs[start : start + random.randrange(1, 4)]
            case 3:
                lines[at] = b" " * random.choice((1, 2)) + lines[at]
            case 4:
                lines[at] = lines[at].lstrip()
            case 5:
                words = lines[at].split(b" ")
                word = random.randrange(len(words))
                theirs = random.choice(others).split() if others else []
                words[word] = random.choice([*theirs, *VALUES])
                lines[at] = b" ".join(words)
            case 6:
                other = random.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case _:
                lines[at] = mutate_bytes(lines[at], random, others)
    return b"\n".join(lines)[:LARGEST]

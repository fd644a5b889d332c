"""Every target takes its corpus, and a number of mutations of it; the same ones wherever it runs.

What runs on for hours, and with coverage, is ``make fuzz``.
"""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from ildm.mqtt import PingReq, Publish, Version
from tests.fuzz import engine
from tests.fuzz.engine import FindError, Runner, Target
from tests.fuzz.mutator import Chance, change_packet, mutate_stream
from tests.fuzz.streams import Case, split
from tests.fuzz.targets import TARGETS, codec, make

RUNS = {
    "codec": 8000,
    "frames": 2500,
    "client": 1000,
    "broker": 500,
    "link": 400,
    "durable-client": 100,
    "durable-broker": 70,
    "durable-link": 70,
    "chunks": 200,
    "handshake": 1000,
    "config": 300,
    "spool": 150,
    "admin": 500,
}
"""Mutations; a second or two of each target. `make fuzz` tries as many as there is time for."""


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_takes_its_corpus_and_mutations_of_it(name: str) -> None:
    target = make(name)

    def found(find: FindError) -> None:
        raise find

    try:
        engine.fuzz(target, 1, engine.times(RUNS[name]), found)
    finally:
        target.close()


class Planted(Target):
    """Fails when the third packet of one life with a payload that begins with B has come."""

    name = "codec"
    inputs_of_a_life = 50
    mutate = staticmethod(mutate_stream)

    def __init__(self) -> None:
        self.seen = 0

    def fresh(self) -> None:
        self.seen = 0

    def take(self, data: bytes) -> list[int]:
        self.seen += data.startswith(b"B")
        if self.seen == 3:
            raise ZeroDivisionError
        return [len(data)]


def test_of_many_inputs_those_are_kept_that_it_takes_to_fail() -> None:
    runner = Runner(Planted())
    inputs = [b"A1", b"B1", b"A2", b"B2", b"A3"]
    for data in inputs:
        runner.take(data)
    with pytest.raises(FindError) as found:
        runner.take(b"B3")
    assert found.value.inputs == [b"B1", b"B2", b"B3"]
    assert "ZeroDivisionError" in str(found.value)


def test_of_a_stream_that_is_known_only_what_has_changed_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[bytes] = []

    def one_frame(frame: bytes, version: Version) -> Hashable:
        looked_at.append(frame)
        if b"wrong" in frame:
            raise ZeroDivisionError
        return frame

    monkeypatch.setattr(codec, "one_frame", one_frame)
    target = codec.Codec()
    ping, right, wrong = (
        packet.encode(Version.V5)
        for packet in (PingReq(), Publish(topic="t", payload=b"x"), Publish(topic="t", payload=b"wrong"))
    )
    target.take(b"\0\0" + ping + ping)
    assert looked_at == [ping] * len(Version) + [ping + ping]
    looked_at.clear()
    target.take(b"\0\0" + ping + right)
    assert looked_at == [right] * len(Version) + [ping + right]
    for _ in range(2):  # what fails is not known
        with pytest.raises(ZeroDivisionError):
            target.take(b"\0\0" + ping + wrong)


def test_what_fails_is_looked_at_in_all_ways_whatever_its_bytes_choose() -> None:
    class Shy(Planted):
        def take(self, data: bytes) -> list[int]:
            if self.thorough:
                raise ZeroDivisionError
            return []

    target = Shy()
    assert Runner(target).take(b"x") == []
    try:
        target.thorough = True
        target.take(b"x")
    except ZeroDivisionError as error:
        place = engine.place_of(error)
    target.thorough = False
    assert engine.fails(target, [b"x"], place)
    assert not target.thorough


def test_an_endless_loop_is_a_find(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loop(Planted):
        def take(self, data: bytes) -> list[int]:
            while True:
                pass

    monkeypatch.setattr(engine, "LONGEST", 0.05)
    with pytest.raises(FindError, match="TimeoutError"):
        Runner(Loop()).take(b"")


def test_an_input_is_shrunk_to_what_fails() -> None:
    class Big(Planted):
        def take(self, data: bytes) -> list[int]:
            if b"x" in data and b"y" in data:
                raise ZeroDivisionError
            return []

    target = Big()
    with pytest.raises(FindError) as found:
        Runner(target).take(b"aaaxbbbbycc")
    assert engine.shrunk(target, b"aaaxbbbbycc", found.value.place) == b"xy"


def test_a_packet_of_which_nothing_was_left_can_be_changed() -> None:
    for seed in range(50):
        change_packet(b"", Chance(seed))


def test_whatever_an_input_is_it_is_a_case_and_its_pieces_are_the_stream() -> None:
    def found(find: FindError) -> None:
        raise find

    class Cases(Planted):
        name = "frames"

        def take(self, data: bytes) -> list[int]:
            case = Case.parse(data)
            assert b"".join(case.pieces()) == b"".join(split(case.stream)) == case.stream
            assert Case.parse(case.encode()) == case
            return [len(case.cuts)]

    engine.fuzz(Cases(), 1, engine.times(3000), found)
    assert Case.parse(b"\1\3\0").pieces() == []

"""Both halves of the handshake against each other, without a socket."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.core.link.handshake import (
    Accepted,
    AcceptorHandshake,
    DialerHandshake,
    Handshake,
    Phase,
    Terms,
)
from ildm.core.link.hello import NONCE, Hello, Refusal, link_key
from ildm.mqtt import Framer, MqttError, ReasonCode, Version, decode

SECRET = "a secret of some length"
NO = Refusal("algorithm", "another algorithm", ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)


def terms(node: str, secret: str | None) -> Terms:
    return Terms(
        node,
        None if secret is None else link_key(secret),
        keep_alive=10,
        inflight=100 + len(node),
        packet_size=5000,
    )


def hello(node: str, **changed: object) -> Hello:
    values: dict[str, object] = {"boot": 7, "algorithm": "sf", "sessions": 2, "index": 1, "token": "t"}
    return Hello(node, **{**values, **changed})  # type: ignore[arg-type]


class Meeting:
    """Two halves, and the bytes on their way between them."""

    def __init__(
        self,
        secrets: tuple[str | None, str | None] = (SECRET, SECRET),
        refused_by: str = "",
        brings: tuple[Terms, Terms] | None = None,
    ) -> None:
        dialing, accepting = brings or (terms("dora", secrets[0]), terms("abe", secrets[1]))
        self.dialer = DialerHandshake(
            dialing,
            hello("dora"),
            b"d" * NONCE,
            lambda answer: NO if refused_by == "dialer" else None,
        )
        self.acceptor = AcceptorHandshake(
            accepting,
            b"a" * NONCE,
            lambda said: NO if refused_by == "acceptor" else hello("abe", age=42),
        )
        self.framers = {self.dialer: Framer(), self.acceptor: Framer()}
        self.log: list[tuple[str, str]] = []

    def give(self, half: Handshake, data: bytes) -> bytes:
        """Bytes that have arrived; answers what is sent in return."""
        sent = b""
        for frame in self.framers[half].feed(data):
            if half.outcome is not None:
                break
            packet = decode(frame, Version.V5)
            sent += half.receive(packet, frame)
            self.log.append((type(packet).__name__, half.phase.value))
        return sent

    def run(self, cuts: tuple[int, ...] = ()) -> None:
        """Carry the bytes to and fro; each flight is cut at the places given."""
        data, half = self.dialer.start(), self.acceptor
        other: Handshake = self.dialer
        while data:
            places = [0, *(cut for cut in cuts if cut < len(data)), len(data)]
            answer = b"".join(self.give(half, data[a:b]) for a, b in itertools.pairwise(places))
            data, half, other = answer, other, half  # type: ignore[assignment]


OLD, NEW = "the old secret", "the new secret"


def renewed(node: str) -> Terms:
    return replace(terms(node, NEW), former=link_key(OLD))


@pytest.mark.parametrize(
    ("dialer", "acceptor", "agree"),
    [
        (terms("dora", OLD), renewed("abe"), True),
        (terms("dora", NEW), renewed("abe"), True),
        (terms("dora", SECRET), renewed("abe"), False),
        (renewed("dora"), terms("abe", OLD), False),
        (renewed("dora").dialing(former=True), terms("abe", OLD), True),
        (renewed("dora"), renewed("abe"), True),
        (terms("dora", NEW).dialing(former=True), terms("abe", NEW), True),
    ],
)
def test_while_a_secret_is_renewed(dialer: Terms, acceptor: Terms, agree: bool) -> None:
    """What the acceptor takes it answers with the same: who has only the old one has to be able to tell."""
    meeting = Meeting(brings=(dialer, acceptor))
    meeting.run()
    for outcome in (meeting.dialer.outcome, meeting.acceptor.outcome):
        assert isinstance(outcome, Accepted if agree else Refusal)
        assert agree or (isinstance(outcome, Refusal) and outcome.kind == "secret")


@pytest.mark.parametrize("secret", [None, SECRET])
def test_two_halves_agree(secret: str | None) -> None:
    meeting = Meeting((secret, secret))
    meeting.run()
    assert meeting.dialer.outcome == Accepted(hello("abe", age=42), 103, 5000)
    assert meeting.acceptor.outcome == Accepted(hello("dora", age=42), 104, 5000)
    flights = [("Connect", "awaiting AUTH"), ("Auth", "awaiting CONNACK"), ("Auth", "established")]
    expected = flights if secret else [("Connect", "established")]
    assert meeting.log == [*expected, ("ConnAck", "established")]


@settings(deadline=None)
@given(st.lists(st.integers(1, 400), max_size=20, unique=True).map(sorted))
def test_where_the_bytes_are_cut_does_not_matter(cuts: list[int]) -> None:
    whole, cut = Meeting(), Meeting()
    whole.run()
    cut.run(tuple(cuts))
    assert cut.log == whole.log
    assert (cut.dialer.outcome, cut.acceptor.outcome) == (whole.dialer.outcome, whole.acceptor.outcome)


def test_byte_by_byte() -> None:
    meeting = Meeting()
    meeting.run(tuple(range(1, 1000)))
    assert isinstance(meeting.dialer.outcome, Accepted)
    assert isinstance(meeting.acceptor.outcome, Accepted)


@pytest.mark.parametrize(
    ("secrets", "dialer", "acceptor"),
    [
        ((SECRET, "another secret"), "secret", "secret"),
        ((None, SECRET), "secret", "secret"),
        ((SECRET, None), "secret", "accepted"),
    ],
)
def test_nodes_without_the_same_secret_do_not_agree(
    secrets: tuple[str | None, str | None], dialer: str, acceptor: str
) -> None:
    meeting = Meeting(secrets)
    meeting.run()
    for half, kind in ((meeting.dialer, dialer), (meeting.acceptor, acceptor)):
        outcome = half.outcome
        assert (outcome.kind if isinstance(outcome, Refusal) else "accepted") == kind


@pytest.mark.parametrize("by", ["dialer", "acceptor"])
def test_a_refusal_ends_the_half_that_hears_of_it(by: str) -> None:
    meeting = Meeting(refused_by=by)
    meeting.run()
    assert isinstance(meeting.dialer.outcome, Refusal)
    assert (meeting.dialer.outcome.kind, meeting.dialer.outcome.text) == ("algorithm", "another algorithm")
    assert meeting.dialer.phase is Phase.ENDED


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_a_handshake_in_which_a_byte_is_changed_never_proves_anything_false(data: st.DataObject) -> None:
    """It fails, or both sides hold what was said: what the proofs cover cannot be changed on the way."""
    meeting = Meeting()
    flight, half, other = meeting.dialer.start(), meeting.acceptor, meeting.dialer
    changed = data.draw(st.integers(0, 3))
    number = 0
    try:
        while flight:
            if number == changed:
                place = data.draw(st.integers(0, len(flight) - 1))
                mask = data.draw(st.integers(1, 255))
                flight = flight[:place] + bytes([flight[place] ^ mask]) + flight[place + 1 :]
            answer = meeting.give(half, flight)
            flight, half, other = answer, other, half  # type: ignore[assignment]
            number += 1
    except MqttError:
        return
    for outcome, name in ((meeting.dialer.outcome, "abe"), (meeting.acceptor.outcome, "dora")):
        if isinstance(outcome, Accepted):
            assert outcome.hello.node == name

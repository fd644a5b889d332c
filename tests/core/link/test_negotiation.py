"""What two nodes agree on in the handshake, whoever alters it, and whichever releases they are of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.config import Address
from ildm.core.link.features import MOST, NAME
from ildm.core.link.handshake import DOWNGRADE, Accepted, AcceptorHandshake, DialerHandshake, Handshake, Terms
from ildm.core.link.hello import NONCE, PROOF, SINCE_RANGES, Hello, Refusal, agreed, link_key
from ildm.core.link.versions import FIRST, PROTOCOLS, Range
from ildm.mqtt import (
    Auth,
    ConnAck,
    Connect,
    Framer,
    MqttError,
    Packet,
    PacketType,
    Property,
    Version,
    decode,
)
from ildm.testing.virtual.pipe import Pipe
from ildm.testing.virtual.world import World
from tests.support.site import Site
from tests.support.transcripts import TRANSCRIPTS

SECRET = "a secret of some length"
KEY = link_key(SECRET)
FEATURES = frozenset(("one", "two"))
ABE = Hello(
    "abe", 8, "sf", 2, 0, "t", age=42, features=FEATURES | {"abe"}, wire=Range(1, 2), release="0.3.0", time=5
)
DORA = Hello(
    "dora", 7, "sf", 2, 0, "t", features=FEATURES | {"dora"}, wire=Range(1, 3), release="0.3.1", time=6
)

Alter = Callable[[bytes], bytes]


def terms(node: str, key: bytes | None, protocols: Range = PROTOCOLS) -> Terms:
    return Terms(node, key, keep_alive=10, inflight=100, packet_size=5000, protocols=protocols)


class Met(NamedTuple):
    """How a meeting has ended at both ends."""

    dialer: Accepted | Refusal | str
    acceptor: Accepted | Refusal | str

    @property
    def kinds(self) -> tuple[str, str]:
        """``accepted``, or the kind of a refusal, or ``broken`` where a packet could not be understood."""
        dialer, acceptor = (_kind(each) for each in self)
        return dialer, acceptor


def _kind(outcome: Accepted | Refusal | str) -> str:
    match outcome:
        case Accepted():
            return "accepted"
        case Refusal():
            return outcome.kind
        case _:
            return "broken"


def meet(
    key: bytes | None = KEY,
    alter: Alter = lambda frame: frame,
    dialer: tuple[Hello, Range] = (DORA, PROTOCOLS),
    acceptor: tuple[Hello, Range] = (ABE, PROTOCOLS),
) -> Met:
    """``alter``: what somebody between them does to each packet."""
    dora, abe = replace(dialer[0], protocols=dialer[1]), replace(acceptor[0], protocols=acceptor[1])
    one = DialerHandshake(terms("dora", key, dialer[1]), dora, b"d" * NONCE, lambda answer: None)
    other = AcceptorHandshake(terms("abe", key, acceptor[1]), b"a" * NONCE, lambda said: abe)
    ends: list[Handshake] = [one, other]
    outcomes: list[Accepted | Refusal | str] = ["", ""]
    frame, at = one.start(), 1
    while frame:
        frame = alter(frame)
        try:
            packet = decode(frame, Version.V5)
            frame = ends[at].receive(packet, frame)
        except MqttError as error:
            outcomes[at] = str(error)
            break
        at = 1 - at
    for place, end in enumerate(ends):
        if end.outcome is not None:
            outcomes[place] = end.outcome
        elif not outcomes[place]:
            outcomes[place] = "the other end has closed"
    return Met(*outcomes)


# versions ------------------------------------------------------------------------------------------

OLD = Range(2, 2)


@pytest.mark.parametrize("key", [KEY, None], ids=["secret", "none"])
@pytest.mark.parametrize(
    ("dialer", "acceptor", "protocol"),
    [
        (PROTOCOLS, PROTOCOLS, 3),
        (OLD, PROTOCOLS, 2),
        (PROTOCOLS, OLD, 2),
        (Range(3, 3), PROTOCOLS, 3),
        (PROTOCOLS, Range(3, 9), 3),
        (Range(3, 9), PROTOCOLS, 3),
        (Range(4, 5), PROTOCOLS, None),
        (PROTOCOLS, Range(4, 5), None),
        (Range(3, 3), OLD, None),
        (OLD, Range(3, 3), None),
    ],
)
def test_the_highest_protocol_that_both_have(
    key: bytes | None, dialer: Range, acceptor: Range, protocol: int | None
) -> None:
    met = meet(key, dialer=(DORA, dialer), acceptor=(ABE, acceptor))
    if protocol is None:
        for outcome in met:
            assert isinstance(outcome, Refusal)
            assert outcome.kind == "version"
            assert dialer.words in outcome.text
            assert acceptor.words in outcome.text
        return
    for outcome, far in zip(met, (ABE, DORA), strict=True):
        assert isinstance(outcome, Accepted), outcome
        assert outcome.protocol == protocol
        said = (far.features, far.wire, far.release) if protocol > 2 else (frozenset(), FIRST, "")
        assert (outcome.hello.features, outcome.hello.wire, outcome.hello.release) == said
        assert outcome.features == (FEATURES if protocol > 2 else frozenset())


@pytest.mark.parametrize(
    "said", ["", "3", "3-2", "2-", "-3", "0-3", "2-3-4", "02-3", "2-100000", "\uff12-\uff13", "x" * 5000]
)
@pytest.mark.parametrize("packet", [Connect, Auth, ConnAck])
def test_what_is_no_range_is_refused_by_name(said: str, packet: type[Packet]) -> None:
    met = meet(alter=altered(packet, "protocol", said))
    refusal = met.acceptor if packet is Connect else met.dialer
    assert isinstance(refusal, Refusal)
    assert refusal.kind == "version"
    assert "does not say its versions of the link protocol: " in refusal.text
    assert "is no range of versions" in refusal.text
    assert len(refusal.text) < 200


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("features", "UPPER"),
        ("features", ",".join(f"f{number}" for number in range(65))),
        ("features", "f" * 33),
        ("algorithm-wire", "2-1"),
        ("algorithm-wire", "x"),
    ],
)
def test_what_is_no_value_is_refused_by_name(name: str, said: str) -> None:
    met = meet(None, altered(Connect, name, said))
    assert isinstance(met.acceptor, str)
    assert name.removesuffix("s") in met.acceptor


@pytest.mark.parametrize("said", ["", "\t", "0.3 beta", "0" * 33])
def test_a_release_that_is_none_is_ignored(said: str) -> None:
    met = meet(None, altered(Connect, "release", said))
    assert isinstance(met.acceptor, Accepted)
    assert met.acceptor.hello.release == ""


def test_unknown_properties_and_features_are_ignored() -> None:
    def alter(frame: bytes) -> bytes:
        packet = decode(frame, Version.V5)
        if not isinstance(packet, Connect):
            return frame
        said = [*packet.properties[Property.USER_PROPERTY], ("future", "thing"), ("features", "one,new-1")]
        return replace(packet, properties={**packet.properties, Property.USER_PROPERTY: said}).encode(
            Version.V5
        )

    met = meet(None, alter)
    assert isinstance(met.acceptor, Accepted)
    assert met.acceptor.features == {"one"}


def test_no_feature_at_all_is_no_error() -> None:
    met = meet(dialer=(replace(DORA, features=frozenset()), PROTOCOLS))
    assert met.kinds == ("accepted", "accepted")
    assert [outcome.features for outcome in met if isinstance(outcome, Accepted)] == [frozenset()] * 2


strings = st.text(
    st.sampled_from("0123456789-,az.\t\u0663") | st.characters(exclude_categories=["Cs"]), max_size=80
)


@settings(deadline=None)
@given(st.fixed_dictionaries({"ildm": strings}, optional=dict.fromkeys(SINCE_RANGES, strings)))
def test_whatever_a_hello_says_is_agreed_refused_or_no_hello(changed: dict[str, str]) -> None:
    """Nothing else is raised, and what is kept has bounds."""
    told = {**dict(DORA.properties()), **changed}
    common = agreed(told, PROTOCOLS, "abe")
    if isinstance(common, Refusal):
        assert common.kind == "version"
        assert len(common.text) < 300
        return
    assert common in range(PROTOCOLS.low, PROTOCOLS.high + 1)
    try:
        hello = Hello.parse({Property.USER_PROPERTY: list(told.items())}, common)
    except MqttError:
        return
    assert len(hello.features) <= MOST
    assert all(NAME.fullmatch(name) for name in hello.features)
    assert len(hello.release) <= 32
    assert 1 <= hello.wire.low <= hello.wire.high


# somebody in between --------------------------------------------------------------------------------


def altered(kind: type[Packet], name: str | Property, value: object) -> Alter:
    """Somebody gives a property another value, or none; names are those of user properties."""

    def alter(frame: bytes) -> bytes:
        packet = decode(frame, Version.V5)
        if not isinstance(packet, kind):
            return frame
        properties = dict(packet.properties)  # type: ignore[attr-defined]
        if isinstance(name, str):
            said = [pair for pair in properties.get(Property.USER_PROPERTY, ()) if pair[0] != name]
            properties[Property.USER_PROPERTY] = said if value is None else [*said, (name, value)]
        elif value is None:
            properties.pop(name, None)
        else:
            properties[name] = value
        changed: bytes = replace(packet, properties=properties).encode(Version.V5)  # type: ignore[type-var]
        return changed

    return alter


def also(*alters: Alter) -> Alter:
    def alter(frame: bytes) -> bytes:
        for each in alters:
            frame = each(frame)
        return frame

    return alter


VALUES = {"ildm": "3", "node": "eve", "features": "one", "protocol": "2-2", "algorithm-wire": "1-9"}


def cases() -> Iterator[tuple[type[Packet], str | Property, object]]:
    for kind in (Connect, ConnAck):
        for name, _ in DORA.properties():
            yield kind, name, None
            yield kind, name, VALUES.get(name, "1")
        for property, value in ((Property.RECEIVE_MAXIMUM, 9), (Property.MAXIMUM_PACKET_SIZE, 999)):
            yield kind, property, None
            yield kind, property, value
    for kind in (Connect, Auth, ConnAck):
        yield kind, Property.AUTHENTICATION_DATA, b"x" * (PROOF if kind is ConnAck else NONCE)
        yield kind, Property.AUTHENTICATION_DATA, None
        yield (
            kind,
            Property.REASON_STRING if kind is not Connect else Property.SESSION_EXPIRY_INTERVAL,
            ("said" if kind is not Connect else 5),
        )
    for name in ("node", "protocol"):
        yield Auth, name, None
        yield Auth, name, VALUES[name]
    yield Auth, "protocol", "3-3"


def test_an_untouched_handshake_is_agreed() -> None:
    assert meet().kinds == ("accepted", "accepted")


@pytest.mark.parametrize(("kind", "name", "value"), list(cases()))
def test_whoever_alters_a_property_does_not_make_a_link(
    kind: type[Packet], name: str | Property, value: object
) -> None:
    """The acceptor takes nobody whose words were altered, and the dialer no altered answer."""
    whole = meet()
    met = meet(alter=altered(kind, name, value))
    assert _kind(met.dialer) != "accepted"
    if kind is ConnAck:
        assert met.acceptor == whole.acceptor, "it has said and taken the whole"
    else:
        assert _kind(met.acceptor) != "accepted"
    if name == "protocol" and value != "3-3":
        assert _kind(met.dialer) == "downgrade"


@pytest.mark.parametrize("kind", [Connect, Auth, ConnAck])
@pytest.mark.parametrize("value", [None, "2-2"])
def test_nobody_makes_two_nodes_talk_the_former_protocol(kind: type[Packet], value: str | None) -> None:
    """Also who takes away all that nodes of the former protocol do not know, everywhere or from there on."""
    kinds = [Connect, Auth, ConnAck]
    later = kinds[kinds.index(kind) :]
    strip = [altered(each, name, None) for each in later for name in SINCE_RANGES if name != "protocol"]
    strip += [altered(each, "protocol", value) for each in later]
    met = meet(alter=also(*strip))
    assert "accepted" not in met.kinds[: 2 if kind is not ConnAck else 1]
    assert "downgrade" in met.kinds


def test_the_mark_is_found_with_either_secret_while_one_is_renewed() -> None:
    for key in (KEY, link_key("the secret of before")):
        dialer = DialerHandshake(terms("dora", key), DORA, b"d" * NONCE, lambda answer: None)
        acceptor = AcceptorHandshake(
            replace(terms("abe", KEY), former=link_key("the secret of before")),
            b"a" * NONCE,
            lambda said: ABE,
        )
        frame = altered(Connect, "protocol", None)(dialer.start())
        acceptor.receive(decode(frame, Version.V5), frame)
        assert isinstance(acceptor.outcome, Refusal)
        assert acceptor.outcome.kind == "downgrade"


def test_without_a_secret_nothing_is_protected_and_both_ends_talk_the_former_protocol() -> None:
    """As TLS is what protects such a link, if anything does."""
    met = meet(None, also(altered(Connect, "protocol", None), altered(ConnAck, "protocol", None)))
    assert met.kinds == ("accepted", "accepted")
    for outcome in met:
        assert isinstance(outcome, Accepted)
        assert (outcome.protocol, outcome.features) == (2, frozenset())


# the former release ---------------------------------------------------------------------------------


def recorded() -> dict[str, list[tuple[str, bytes]]]:
    """What two nodes of release 0.2.0 have said to each other, ``dora`` having dialed ``abe``. In the last
    part the dialer's nonce was the one of a dialer of protocol 3."""
    found: dict[str, list[tuple[str, bytes]]] = {}
    for line in (TRANSCRIPTS / "link_handshake_0_2.txt").read_text().splitlines():
        word, rest = line.split(" ", 1)
        if word == "#":
            frames = found[rest] = []
        else:
            frames.append((word, bytes.fromhex(rest)))
    return found


@pytest.mark.parametrize("key", [None, KEY], ids=["none", "secret"])
def test_a_dialer_of_the_former_release_is_taken(key: bytes | None) -> None:
    frames = recorded()["without a secret" if key is None else "with a secret"]
    acceptor = AcceptorHandshake(terms("abe", key), b"a" * NONCE, lambda said: replace(ABE, boot=7))
    answers = [acceptor.receive(decode(frame, Version.V5), frame) for node, frame in frames if node == "dora"]
    assert isinstance(acceptor.outcome, Accepted), acceptor.outcome
    assert (acceptor.outcome.protocol, acceptor.outcome.features) == (2, frozenset())
    assert acceptor.outcome.hello.address == "dora:1885"
    for answer, before in zip(answers, (frame for node, frame in frames if node == "abe"), strict=True):
        now, then = decode(answer, Version.V5), decode(before, Version.V5)
        assert isinstance(now, Auth | ConnAck)
        assert isinstance(then, Auth | ConnAck)
        assert type(now) is type(then)
        data = Property.AUTHENTICATION_DATA
        assert now.properties.get(data) == then.properties.get(data)


@pytest.mark.parametrize("key", [None, KEY], ids=["none", "secret"])
def test_an_acceptor_of_the_former_release_is_taken(key: bytes | None) -> None:
    said = recorded()
    frames = said["without a secret"]
    if key is not None:
        frames = said["with a secret, from a dialer of the next release"]
    dialer = DialerHandshake(terms("dora", key), DORA, b"d" * NONCE, lambda answer: None)
    sent = [dialer.start()]
    sent += [dialer.receive(decode(frame, Version.V5), frame) for node, frame in frames if node == "abe"]
    assert isinstance(dialer.outcome, Accepted), dialer.outcome
    assert (dialer.outcome.protocol, dialer.outcome.features) == (2, frozenset())
    assert (dialer.outcome.hello.age, dialer.outcome.hello.address) == (42, "abe:1885")
    if key is not None:
        proofs = [frame for node, frame in frames if node == "dora"]
        assert sent[1] == proofs[1]


def test_the_former_release_is_refused_where_the_lowest_protocol_is_a_later_one() -> None:
    frames = recorded()["with a secret"]
    acceptor = AcceptorHandshake(terms("abe", KEY, Range(3, 3)), b"a" * NONCE, lambda said: ABE)
    acceptor.receive(decode(frames[0][1], Version.V5), frames[0][1])
    assert isinstance(acceptor.outcome, Refusal)
    text = "abe speaks version 3 of the link protocol, dora speaks version 2"
    assert (acceptor.outcome.kind, acceptor.outcome.text) == ("version", text)


# whole nodes ------------------------------------------------------------------------------------------


HANDSHAKE = (PacketType.CONNECT, PacketType.CONNACK, PacketType.AUTH)


class Relay:
    """One end of somebody between two nodes, who alters each packet of the handshake."""

    def __init__(self, alter: Alter) -> None:
        self.alter = alter
        self.framer = Framer()
        self.waiting: list[bytes] = []
        self.transport: Pipe | None = None
        self.other: Relay

    def connection_made(self, transport: Pipe) -> None:
        self.transport = transport
        for frame in self.waiting:
            transport.write(frame)

    def data_received(self, data: bytes) -> None:
        for frame in self.framer.feed(data):
            passed = self.alter(frame) if frame[0] >> 4 in HANDSHAKE else frame
            if self.other.transport is None:
                self.other.waiting.append(passed)
            else:
                self.other.transport.write(passed)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other.transport is not None:
            self.other.transport.close()

    def eof_received(self) -> None:
        pass

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass


def between(world: World, alter: Alter) -> Relay:
    """For a dialer's connection: the end that the dialer has."""
    near, far = Relay(alter), Relay(alter)
    near.other, far.other = far, near
    world.connect(Address("a", 2), far)
    return near


def met(world: World, alter: Alter, secret: str | None) -> tuple[Site, Site]:
    """Node b has dialed a past somebody."""
    a, b = (Site(world, name, "sf", secret=secret, link={"sessions": 2}) for name in "ab")
    world.listen(Address("between", 2), lambda: between(world, alter))
    b.node.links.add(Address("between", 2), False)
    world.run(5)
    return a, b


@pytest.mark.parametrize("secret", [SECRET, None], ids=["secret", "none"])
def test_nodes_link_past_somebody_who_only_passes_on(world: World, secret: str | None) -> None:
    a, b = met(world, lambda frame: frame, secret)
    assert (a.links(), b.links()) == ({"b": "active"}, {"a": "active"})
    for site, far in ((a, "b"), (b, "a")):
        link = site.node.links.links[far]
        assert (link.protocol, len(link.open_sessions)) == (PROTOCOLS.high, 2)


@pytest.mark.parametrize("kind", [Connect, Auth, ConnAck])
def test_a_downgrade_is_counted_where_it_is_found_and_told_at_the_dialer(
    world: World, kind: type[Packet]
) -> None:
    a, b = met(world, altered(kind, "protocol", None), SECRET)
    assert "active" not in (*a.links().values(), *b.links().values())
    (neighbor,) = b.node.links.neighbors.values()
    assert (neighbor.state, neighbor.reason) == ("refused", DOWNGRADE.text)
    found_by_acceptor = kind is not ConnAck
    assert (a.node.counters["links_refused_downgrade"] > 0) is found_by_acceptor
    refused = [each.kind for each in a.node.links.turned_away.lately()]
    assert refused == (["downgrade"] if found_by_acceptor else [])


@pytest.mark.parametrize("name", [*SINCE_RANGES, "algorithm", "boot", "address", "sessions"])
@pytest.mark.parametrize("kind", [Connect, ConnAck])
def test_no_node_links_by_a_hello_that_was_altered(world: World, kind: type[Packet], name: str) -> None:
    a, b = met(world, altered(kind, name, None), SECRET)
    assert "active" not in (*a.links().values(), *b.links().values())

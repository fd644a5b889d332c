"""Links whose bytes are compressed: messages cross as on plain ones, and only where both ends want it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from ildm.config import Address, LinkConfig
from ildm.core.counters import Counters
from ildm.core.link.chunks import ANEW, DEFLATE, LARGEST, SHARE, ZSTD, Compressor, Contexts, codecs
from ildm.core.link.compression import MINUTE, CompressedTransport, Compression, LastMinute
from ildm.core.link.features import NONE
from ildm.mqtt import Disconnect, Publish, Version
from ildm.net.neighbors_view import neighbor_rows
from ildm.testing.virtual.pipe import Pipe
from ildm.testing.virtual.world import World
from tests.core.link.test_chunks import CODECS, bomb, head
from tests.core.link.test_features import reload
from tests.support.disk_spool import DiskSite
from tests.support.site import Site, session_of

TEXT = b"a payload that is told from all else, "


def joined(world: World, *modes: str, algorithm: str = "sf", **link: object) -> list[Site]:
    """Sites in a row, each with its own ``link.compression``."""
    sites = [
        Site(world, name, algorithm, link={"compression": mode, **link})
        for name, mode in zip("abcd", modes, strict=False)
    ]
    for before, site in itertools.pairwise(sites):
        site.node.links.add(Address(before.name, 2), False)
    world.run(3)
    return sites


def coded(site: Site, far: str, index: int = 0) -> CompressedTransport:
    transport = session_of(site, far, index).transport
    assert isinstance(transport, CompressedTransport)
    return transport


def pipe(site: Site, far: str) -> Pipe:
    transport = coded(site, far)._transport
    assert isinstance(transport, Pipe)
    return transport


def publish(site: Site, count: int, qos: int, payload: bytes = TEXT * 4, name: str = "p") -> list[str]:
    topics = [f"t/{qos}/{name}/{number}" for number in range(count)]
    client = site.client(name)
    for number, topic in enumerate(topics):
        packet_id = number + 1 if qos else None
        client.send(Publish(topic=topic, payload=payload, qos=qos, packet_id=packet_id))
    return topics


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_cross_in_order_and_once(world: World, algorithm: str, codec: str, qos: int) -> None:
    a, _, c = joined(world, codec, codec, codec, algorithm=algorithm)
    c.subscriber("t/#", qos=2)
    topics = publish(a, 200, qos)
    world.run(5)
    assert c.broker.topics() == topics
    assert (coded(a, "b").codec, coded(c, "b").codec) == (codec, codec)
    assert pipe(a, "b").written.count(TEXT) < 3  # the first chunk has some of it


@pytest.mark.parametrize("codec", CODECS)
def test_both_ends_count_the_same_bytes(world: World, codec: str) -> None:
    a, b = joined(world, codec, codec, algorithm="pf")
    publish(a, 200, 1)
    world.run(5)
    ours, theirs = a.node.counters, b.node.counters
    for kind in ("plain", "coded"):
        assert ours[f"link_{kind}_bytes_out"] == theirs[f"link_{kind}_bytes_in"]
        assert ours[f"link_{kind}_bytes_in"] == theirs[f"link_{kind}_bytes_out"]
    assert ours["link_plain_bytes_out"] > 3 * ours["link_coded_bytes_out"]


@pytest.mark.parametrize("modes", [("off", "deflate"), ("deflate", "off"), ("off", "off")])
def test_a_link_is_plain_unless_both_ends_want_it(world: World, modes: tuple[str, str]) -> None:
    a, b = joined(world, *modes, algorithm="pf")
    topics = publish(a, 20, 1)
    world.run(2)
    assert b.broker.topics() == topics
    assert isinstance(session_of(a, "b").transport, Pipe)
    assert isinstance(session_of(b, "a").transport, Pipe)
    assert a.node.counters["link_plain_bytes_out"] == 0


@pytest.mark.parametrize("dialer_is_old", [True, False])
def test_a_neighbour_that_knows_no_features_gets_a_plain_link(world: World, dialer_is_old: bool) -> None:
    a, b = (Site(world, name, "pf", link={"compression": "deflate"}) for name in "ab")
    judge = (b if dialer_is_old else a).node.links.judge
    hello = judge.hello
    judge.hello = lambda *args: replace(hello(*args), features=NONE)  # type: ignore[method-assign]
    b.node.links.add(Address("a", 2), False)
    world.run(2)
    topics = publish(a, 20, 1)
    world.run(2)
    assert b.broker.topics() == topics
    assert isinstance(session_of(a, "b").transport, Pipe)


@pytest.mark.skipif(ZSTD not in codecs(), reason="no zstandard")
@pytest.mark.parametrize(
    ("modes", "codec"),
    [
        (("zstd", "zstd"), ZSTD),
        (("auto", "zstd"), ZSTD),
        (("deflate", "zstd"), DEFLATE),
        (("auto", "deflate"), DEFLATE),
    ],
)
def test_zstd_is_taken_where_both_ends_have_it(world: World, modes: tuple[str, str], codec: str) -> None:
    a, b = joined(world, *modes)
    assert (coded(a, "b").codec, coded(b, "a").codec) == (codec, codec)


@pytest.mark.parametrize("rate", [1000, 50_000])
def test_the_first_chunk_may_come_in_one_piece_with_connack_or_in_many(world: World, rate: int) -> None:
    def slow(end: Pipe) -> None:
        end.read_rate = end.other.read_rate = rate

    a, b = (Site(world, name, "pf", link={"compression": "deflate", "sessions": 2}) for name in "ab")
    world.joined = slow
    b.node.links.add(Address("a", 2), False)
    world.run(10)
    topics = publish(a, 50, 1)
    world.run(100)
    assert sorted(b.broker.topics()) == sorted(topics)
    assert a.links() == {"b": "active"}
    assert a.node.counters["link_malformed"] == 0


@pytest.mark.parametrize("codec", CODECS)
def test_a_connection_cut_amid_a_chunk_loses_nothing(world: World, codec: str) -> None:
    a, b = joined(world, codec, codec, algorithm="pf")
    world.random.seed(5)
    topics = []
    for cut in range(12):
        payload = world.random.randbytes(3000).hex().encode()
        topics += publish(a, 40, 1 + cut % 2, payload, name=f"p{cut}")
        end = pipe(a, "b").other
        end.read_rate = 3000  # a piece of a chunk at a time
        assert world.run_until(lambda end=end: end.endpoint._coded._decompressor._tail.missing > 1, 5)  # type: ignore[misc]
        end.reset()
        world.run(20)
    assert b.broker.topics() == topics
    assert (a.node.counters["link_malformed"], b.node.counters["link_malformed"]) == (0, 0)
    assert a.node.links.parts.compression.contexts.count == 1


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_ends_the_session_and_is_counted(world: World, codec: str) -> None:
    a, b = joined(world, codec, codec, algorithm="pf")
    made = bomb(codec, 20 << 20)
    pipe(b, "a").write(head(ANEW, len(made)) + made)
    world.run(0.1)
    assert a.node.counters["link_malformed"] == 1
    assert a.links() == {"b": "not"}
    world.run(60)
    assert a.links() == {"b": "active"}
    assert a.node.links.parts.compression.contexts.count == 1


def much(messages: int) -> bytes:
    """More messages than are decoded at once, as one read brings them."""
    frame = Publish(topic="t/much", payload=bytes(LARGEST - 100)).encode(Version.V5)
    sender = Compressor(DEFLATE, Contexts(1, Counters()))
    return b"".join(sender.chunks(frame) for _ in range(messages))


def test_of_what_is_much_the_rest_waits_for_its_turn(world: World) -> None:
    a, b = joined(world, "deflate", "deflate", algorithm="pf")
    session, end = session_of(a, "b"), pipe(a, "b")
    session.data_received(much(30))
    assert (end.reading, coded(a, "b").waits) == (False, True)
    world.run(1)
    assert (end.reading, coded(a, "b").waits) == (True, False)
    assert a.broker.topics() == ["t/much"] * 30
    assert b.links() == {"a": "active"}


def test_the_rest_waits_while_the_session_pauses(world: World) -> None:
    a, _ = joined(world, "deflate", "deflate", algorithm="pf")
    session = session_of(a, "b")
    session.data_received(much(30))
    session.pause("test")
    world.run(1)
    assert 0 < len(a.broker.topics()) <= SHARE // LARGEST + 2
    session.resume("test")
    world.run(1)
    assert a.broker.topics() == ["t/much"] * 30
    assert pipe(a, "b").reading


def test_the_rest_is_not_lost_with_the_connection(world: World) -> None:
    a, _ = joined(world, "deflate", "deflate", algorithm="pf")
    session = session_of(a, "b")
    session.data_received(much(30))
    session.connection_lost(None)
    world.run(1)
    assert a.broker.topics() == ["t/much"] * 30


def test_the_rest_is_thrown_away_where_the_session_has_ended(world: World) -> None:
    a, _ = joined(world, "deflate", "deflate", algorithm="pf")
    session, end = session_of(a, "b"), pipe(a, "b")
    session.data_received(much(30))
    session.part(Disconnect().reason_code, "test")  # type: ignore[arg-type]
    world.run(0.01)
    assert end.reading
    world.run(5)
    assert len(a.broker.topics()) <= SHARE // LARGEST + 2


# when ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rtt", "pays"), [(None, False), (0.0199, False), (0.02, True), (0.6, True)])
def test_auto_compresses_where_the_round_trip_is_long(world: World, rtt: float | None, pays: bool) -> None:
    compression = Compression(LinkConfig(compression="auto"), Counters())
    assert compression.pays(rtt) is pays
    always = Compression(LinkConfig(compression="deflate"), Counters())
    assert always.pays(rtt)


@pytest.mark.parametrize(
    ("mode", "encrypted", "allowed", "unnamed"),
    [
        ("off", False, True, {DEFLATE, ZSTD}),
        ("auto", False, False, set()),
        ("auto", True, False, {DEFLATE, ZSTD}),
        ("auto", True, True, set()),
        ("deflate", True, False, {ZSTD}),
        ("zstd", True, False, set()),
    ],
)
def test_auto_names_no_codec_on_an_encrypted_connection(
    mode: str, encrypted: bool, allowed: bool, unnamed: set[str]
) -> None:
    if mode == ZSTD and ZSTD not in codecs():
        pytest.skip("no zstandard")
    config = LinkConfig.model_validate({"compression": mode, "compression_encrypted": allowed})
    assert Compression(config, Counters()).unnamed(encrypted) == unnamed


def test_beyond_the_bound_of_contexts_a_node_sends_uncompressed(world: World) -> None:
    _, b, c = joined(world, "deflate", "deflate", "deflate", algorithm="pf", compression_contexts=1)
    topics = publish(b, 50, 1)
    world.run(5)
    assert c.broker.topics() == topics
    assert b.node.links.parts.compression.contexts.count == 1
    assert b.node.counters["link_contexts_refused"] > 0
    assert b.node.counters["link_chunks_stored"] >= b.node.counters["link_contexts_refused"]


def test_the_last_minute_is_what_is_told() -> None:
    minute = LastMinute(0.0)
    minute.add(1.0, 1000, 100)
    assert minute.sums(MINUTE - 1) == (1000, 100)
    minute.add(MINUTE + 1, 10, 5)
    assert minute.sums(MINUTE + 2) == (1010, 105)
    assert minute.sums(2 * MINUTE + 2) == (10, 5)
    assert minute.sums(9 * MINUTE) == (0, 0)


def test_the_list_of_neighbours_tells_the_codec_and_how_many_times_fewer_bytes_cross(world: World) -> None:
    a, _, c = joined(world, "deflate", "deflate", "off", algorithm="pf")
    assert neighbor_rows(c.node)[0]["compression"] is None
    publish(a, 200, 0)
    world.run(1)
    row = neighbor_rows(a.node)[0]["compression"]
    assert row is not None
    assert row["codec"] == "deflate"
    assert 3 < row["ratio"] < 50


def test_zstd_is_refused_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ildm.config.link.codecs", lambda: (DEFLATE,))
    with pytest.raises(ValueError, match="zstandard is not installed"):
        LinkConfig(compression="zstd")
    assert LinkConfig(compression="auto").compression == "auto"
    assert LinkConfig.model_validate({"compression": False}).compression == "off"


def test_another_choice_makes_links_anew_and_nothing_else_does(world: World) -> None:
    a, _ = joined(world, "auto", "auto")
    session = session_of(a, "b")
    reload(world, a, subscribe_wait=0.5)
    assert session_of(a, "b") is session
    for mode, codec in (("deflate", DEFLATE), ("off", None), ("auto", codecs()[0])):
        reload(world, a, compression=mode)
        found = session_of(a, "b").coded
        assert (None if found is None else found.codec) == codec
    assert not session.is_open


# what is not to be compressed ---------------------------------------------------------------------

SECRET = b"a secret that nobody is to guess " * 4


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("spooled", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_a_rule_keeps_out_of_the_stream_goes_as_it_is(
    world: World, codec: str, spooled: bool, qos: int
) -> None:
    rules = [{"allow": ["secret/#"], "compress": False}, {"allow": ["#"]}]
    link = {"compression": codec, "rules": rules}
    if spooled:
        made: list[Site] = [DiskSite(world, name, "pf", {"mode": "process"}, link=link) for name in "ab"]
    else:
        made = [Site(world, name, "pf", link=link) for name in "ab"]
    a, b = made
    b.node.links.add(Address("a", 2), False)
    world.run(3)
    client = a.client("p")
    topics = []
    for number in range(30):
        secret = number % 3 == 1
        topics.append(f"secret/{number}" if secret else f"t/{number}")
        payload = SECRET if secret else TEXT * 4
        packet_id = number + 1 if qos else None
        client.send(Publish(topic=topics[-1], payload=payload, qos=qos, packet_id=packet_id))
        if number > 15:  # single ones, after some that go together
            world.run(1)
    world.run(3)
    assert b.broker.topics() == topics
    written = bytes(pipe(a, "b").written)
    assert written.count(SECRET) == 10
    single = written[written.rindex(b"secret/16") :]
    assert single.count(TEXT * 4) == 0
    assert a.node.counters["link_chunks_coded"] > 0


def test_a_rule_that_denies_says_nothing_of_compression() -> None:
    with pytest.raises(ValueError, match="what is denied is not compressed"):
        LinkConfig.model_validate({"rules": [{"deny": ["a"], "compress": False}, {"allow": ["#"]}]})

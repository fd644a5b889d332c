"""How plugins are chosen and refused, and what a plugin that fails does to a node: nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from ildm.api import Algorithm, Filter, Link, NodeApi, Plugin, PluginConfig, PluginError, Session, Source
from ildm.cli import main
from ildm.config import Address, parse_config
from ildm.core import plugins
from ildm.core.node import Node
from ildm.core.plugins import PluginSpecs, load_plugins
from ildm.mqtt import (
    Connect,
    PacketType,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    Version,
    decode,
)
from tests.plugins.node_process import ildm
from tests.support.mini_broker import MiniBroker, MiniClient
from tests.support.world import World, WorldDriver, make_node, plugin_specs

PUBLISH = PacketType.PUBLISH


class Entry:
    """An entry point; what it loads is a class or the error its module raises."""

    def __init__(self, name: str, found: object) -> None:
        self.name = name
        self.found = found

    def load(self) -> object:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


class Choosy(Algorithm):
    class Config(PluginConfig):
        size: int = 1
        color: str


def made(base: type[Plugin], **members: Any) -> type[Plugin]:
    """A subclass with these attributes."""
    return type("Made", (base,), members)


async def coroutine(self: Plugin, link: Link) -> None:
    raise AssertionError("never called")


async def async_generator(self: Plugin, link: Link) -> Any:
    yield link


REFUSALS: list[tuple[str, object, str]] = [
    ("algorithm", ModuleNotFoundError("No module named 'numpy'"), "cannot be imported: ModuleNotFoundError("),
    ("algorithm", SyntaxError("bad"), "cannot be imported: SyntaxError('bad')"),
    ("algorithm", 7, "7 is not a subclass of ildm.api.Algorithm"),
    ("algorithm", made(Filter), "is not a subclass of ildm.api.Algorithm"),
    ("filter", made(Algorithm), "is not a subclass of ildm.api.Filter"),
    ("algorithm", made(Algorithm, on_linkup=lambda self, link: None), "unknown hook on_linkup"),
    ("filter", made(Filter, on_link_up=lambda self, link: None), "unknown hook on_link_up"),
    (
        "algorithm",
        made(Algorithm, route=lambda self, topic: ()),
        "route(self, topic) must accept (self, topic,",
    ),
    ("algorithm", made(Algorithm, on_link_up=lambda self: None), "on_link_up(self) must accept (self, link)"),
    ("algorithm", made(Algorithm, on_ildm_stop=lambda self, *, now: None), "on_ildm_stop(self, *, now) must"),
    ("filter", made(Filter, filter=lambda self, message: message), "must accept (self, session, message)"),
    ("algorithm", made(Algorithm, on_link_up=coroutine), "on_link_up must be a plain method"),
    ("algorithm", made(Algorithm, on_link_up=async_generator), "on_link_up must be a plain method"),
    ("algorithm", made(Algorithm, on_link_up=staticmethod(print)), "on_link_up must be a plain method"),
    ("algorithm", made(Algorithm, route=()), "route must be a plain method"),
    ("filter", made(Filter, wants=None), "wants is None, not a set of (Source, PacketType)"),
    (
        "filter",
        made(Filter, wants={PUBLISH}),
        "wants has <PacketType.PUBLISH: 3>, expected (Source, PacketType)",
    ),
    ("filter", made(Filter, wants={(PUBLISH, Source.CLIENT)}), "expected (Source, PacketType)"),
    ("algorithm", made(Algorithm, wants={("client", PUBLISH)}), "wants has ('client', "),
    ("algorithm", made(Algorithm, wants={(Source.CLIENT, 3)}), "wants has (<Source.CLIENT"),
    ("algorithm", made(Algorithm, Config=dict), "Config must be a subclass of ildm.api.PluginConfig"),
    ("algorithm", made(Algorithm, Config=BaseModel), "Config must be a subclass of ildm.api.PluginConfig"),
    ("algorithm", made(Algorithm, Config=PluginConfig()), "Config must be a subclass"),
    ("algorithm", made(Algorithm, topology="ring"), "topology is 'ring', expected 'tree' or 'any'"),
    ("algorithm", Choosy, "color: Field required"),
]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``install(name=found, ...)`` replaces what is installed, in both groups."""

    def install(**found: object) -> None:
        entries = [Entry(name, each) for name, each in found.items()]
        monkeypatch.setattr(plugins, "entry_points", lambda *, group: entries)

    return install


def choice(kind: str, value: object) -> dict[str, object]:
    return {"algorithm": value} if kind == "algorithm" else {"filters": [value]}


def load(document: dict[str, object]) -> PluginSpecs:
    return load_plugins(parse_config(document, "test", Path()))


@pytest.mark.parametrize(("kind", "found", "complaint"), REFUSALS)
def test_a_wrong_plugin_is_refused_by_name(
    install: Callable[..., None], kind: str, found: object, complaint: str
) -> None:
    install(mine=found)
    with pytest.raises(PluginError) as refused:
        load(choice(kind, "mine"))
    assert str(refused.value).startswith(f"{kind} 'mine'")
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"colour": "red"}, "algorithm 'mine': color: Field required; colour: unknown option"),
        (
            {"color": "red", "size": "big"},
            "algorithm 'mine': size: Input should be a valid integer, unable to parse string as an integer",
        ),
    ],
)
def test_wrong_options_are_all_named(
    install: Callable[..., None], options: dict[str, object], complaint: str
) -> None:
    install(mine=Choosy)
    with pytest.raises(PluginError) as refused:
        load({"algorithm": {"name": "mine", **options}})
    assert str(refused.value) == complaint


def test_an_unknown_name_is_answered_with_those_that_are_installed(install: Callable[..., None]) -> None:
    install(b=Algorithm, a=Algorithm)
    with pytest.raises(PluginError, match=r"^algorithm 'c' is not installed; installed: a, b$"):
        load({"algorithm": "c"})
    install()
    with pytest.raises(PluginError, match=r"^filter 'c' is not installed; installed: none$"):
        load({"filters": ["c"]})


def test_good_plugins_are_chosen_with_their_options(install: Callable[..., None]) -> None:
    def flexible(self: Algorithm, *arguments: object) -> tuple[()]:
        return ()

    install(mine=Choosy, also=made(Filter), free=made(Algorithm, route=flexible, topology="any"))
    specs = load({"algorithm": {"name": "mine", "color": "red"}, "filters": ["also", "also"]})
    assert specs.algorithm is not None
    assert (specs.algorithm.plugin, specs.algorithm.config) == (Choosy, Choosy.Config(color="red"))
    assert [spec.name for spec in specs.filters] == ["also", "also"]
    assert load({"algorithm": "free"}).algorithm is not None
    assert load({}) == PluginSpecs(None, [])


def test_a_constructor_that_raises_is_named(world: World) -> None:
    def fail(self: Plugin, api: NodeApi, config: PluginConfig) -> None:
        raise RuntimeError("no")

    for base, kind in ((Algorithm, "algorithm"), (Filter, "filter")):
        failing = made(base, __init__=fail)
        specs = (
            plugin_specs("mine", failing)
            if base is Algorithm
            else plugin_specs(None, None, [("mine", failing)])
        )
        with pytest.raises(PluginError, match=rf"^{kind} 'mine' cannot be made: RuntimeError\('no'\)$"):
            make_node(world, "a", specs)


@pytest.mark.parametrize(("kind", "found", "complaint"), REFUSALS[:1] + REFUSALS[5:6] + REFUSALS[-1:])
def test_check_refuses_with_one_line_and_status_2(
    install: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    kind: str,
    found: object,
    complaint: str,
) -> None:
    install(mine=found)
    config = tmp_path / "node.yaml"
    config.write_text("algorithm: mine\n")
    monkeypatch.setattr(sys, "argv", ["ildm", "check", str(config)])
    assert main() == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"ildm: {kind} 'mine'")
    assert complaint in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("broken", "algorithm 'broken' cannot be imported: ZeroDivisionError('division by zero')"),
        ("waiting", "algorithm 'waiting': on_ildm_stop must be a plain method"),
        ("unmade", "algorithm 'unmade' cannot be made: KeyError('x')"),
    ],
)
def test_run_refuses_with_one_line_and_status_2(tmp_path: Path, name: str, complaint: str) -> None:
    installed = tmp_path / "installed"
    about = installed / "bad-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[ildm.algorithms]\nbroken = bad_broken:A\nwaiting = bad:Waiting\nunmade = bad:Unmade\n"
    )
    (installed / "bad_broken.py").write_text("1 / 0\n")
    (installed / "bad.py").write_text(
        "from ildm.api import Algorithm\n"
        "class Waiting(Algorithm):\n    async def on_ildm_stop(self): pass\n"
        "class Unmade(Algorithm):\n    def __init__(self, api, config): {}['x']\n"
    )
    config = tmp_path / "node.yaml"
    config.write_text(f"algorithm: {name}\nlisten: 127.0.0.1:0\nlink: {{listen: 127.0.0.1:0}}\n")
    done = ildm(installed, "run", "--config", config)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"ildm: {complaint}\n")


# at work ------------------------------------------------------------------------------------------


@pytest.fixture
def world() -> World:
    return World()


def start(world: World, name: str, specs: PluginSpecs) -> tuple[Node, MiniBroker]:
    broker = MiniBroker()
    world.listen(Address(name, 3), broker.connection)
    node = make_node(world, name, specs)
    node.start({})
    return node, broker


def client(world: World, name: str, client_id: str, version: Version = Version.V311) -> MiniClient:
    one = MiniClient(version)
    world.connect(Address(name, 1), one)
    one.send(Connect(client_id=client_id, version=version))
    world.run(0.1)
    return one


def subscriber(world: World, name: str) -> MiniClient:
    one = client(world, name, f"subscriber-{name}")
    one.send(Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="#")]))
    world.run(0.1)
    assert one.got(SubAck)
    return one


def failures(node: Node) -> list[tuple[object, object, object]]:
    """Plugin, hook and number of each failure that was logged."""
    driver = node.driver
    assert isinstance(driver, WorldDriver)
    entries = [(level, fields) for level, event, fields in driver.logged if event == "plugin failed"]
    assert all(level == "error" and isinstance(fields["exc_info"], Exception) for level, fields in entries)
    return [(fields["plugin"], fields["hook"], fields["failures"]) for _, fields in entries]


class Failing(Algorithm):
    wants = frozenset({(Source.CLIENT, PUBLISH)})

    def on_session_established(self, session: Session) -> None:
        raise RuntimeError("established")

    def route(self, topic: str, retain: bool, source: Link | None) -> Any:
        raise RuntimeError("route")

    def mqtt_message_arrived(self, session: Session, type: PacketType, message: bytes) -> None:
        raise RuntimeError("arrived")


def test_hooks_that_raise_are_logged_and_counted_and_the_relay_goes_on(world: World) -> None:
    node, _ = start(world, "a", plugin_specs("bad", Failing))
    far = subscriber(world, "a")
    publisher = client(world, "a", "p")
    before = node.counters["plugin_errors"]
    assert before >= 4  # two sessions for each client
    for number in range(6):
        publisher.send(Publish(topic=f"t/{number}", payload=b"x"))
    world.run(1)
    assert far.messages == [(f"t/{number}", b"x") for number in range(6)]
    assert not publisher.closed
    errors = before + 2 * 6
    assert node.counters["plugin_errors"] == node.dispatch.loaded[0].errors == errors
    logged = failures(node)
    assert [number for _, _, number in logged] == [1, 2, 4, 8, 16][: errors.bit_length()]
    assert {plugin for plugin, _, _ in logged} == {"bad"}
    assert logged[0][1] == "on_session_established"


@pytest.mark.parametrize("answer", [None, 7, [None], ["link"], [(None, 1)], "ab"])
def test_a_route_that_makes_no_sense_is_nobody(world: World, answer: object) -> None:
    def route(self: Algorithm, topic: str, retain: bool, source: Link | None) -> object:
        return answer

    node, _ = start(world, "a", plugin_specs("bad", made(Algorithm, route=route)))
    far = subscriber(world, "a")
    client(world, "a", "p").send(Publish(topic="t", payload=b"x"))
    world.run(1)
    assert far.messages == [("t", b"x")]
    assert failures(node) == [("bad", "route", 1)]


def test_a_timer_that_raises_is_the_plugins_failure(world: World) -> None:
    class Late(Algorithm):
        def __init__(self, api: NodeApi, config: PluginConfig) -> None:
            super().__init__(api, config)
            api.call_later(1, self.ring)

        def ring(self) -> None:
            raise RuntimeError("late")

    node, _ = start(world, "a", plugin_specs("bad", Late))
    world.run(2)
    assert failures(node) == [("bad", "ring", 1)]


# filters ------------------------------------------------------------------------------------------


def appending(text: bytes, source: Source = Source.CLIENT) -> type[Plugin]:
    """A filter that appends to payloads."""

    class Appending(Filter):
        wants = frozenset({(source, PUBLISH)})

        def filter(self, session: Session, message: bytes) -> bytes:
            packet = decode(message, session.version)
            assert isinstance(packet, Publish)
            packet.payload += text
            return packet.encode(session.version)

    return Appending


class DropsX(Filter):
    wants = frozenset({(source, PUBLISH) for source in Source})

    def filter(self, session: Session, message: bytes) -> bytes | None:
        return None if message.endswith(b"x") else message


class Raising(Filter):
    wants = frozenset({(Source.CLIENT, PUBLISH)})

    def filter(self, session: Session, message: bytes) -> bytes:
        raise RuntimeError("filter")


def filtered(*filters: tuple[str, type[Plugin]], algorithm: Any = None) -> PluginSpecs:
    return plugin_specs("all" if algorithm else None, algorithm, list(filters))


def test_filters_are_chained_in_order(world: World) -> None:
    one, two = ("one", appending(b"1")), ("two", appending(b"2"))
    for name, chain, expected in (("a", (one, two), b"-12"), ("b", (two, one), b"-21")):
        start(world, name, filtered(*chain))
        far = subscriber(world, name)
        client(world, name, "p").send(Publish(topic="t", payload=b"-"))
        world.run(1)
        assert far.messages == [("t", expected)]


def test_after_a_drop_and_a_failure(world: World) -> None:
    """A filter that drops ends the chain; one that raises is passed over."""
    chain = (("bad", Raising), ("one", appending(b"x")), ("drop", DropsX), ("never", Raising))
    node, broker = start(world, "a", filtered(*chain))
    publisher = client(world, "a", "p")
    publisher.send(Publish(topic="t", payload=b"-"))
    world.run(1)
    assert broker.published == []
    assert node.counters["filtered"] == 1
    assert failures(node) == [("bad", "filter", 1)]


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_a_dropped_message_is_acknowledged(world: World, version: Version) -> None:
    reason = 0x99 if version is Version.V5 else 0
    _, broker = start(world, "a", filtered(("drop", DropsX)))
    publisher = client(world, "a", "p", version)
    publisher.send(Publish(topic="t", payload=b"x", qos=1, packet_id=1))
    publisher.send(Publish(topic="t", payload=b"x", qos=2, packet_id=2))
    world.run(1)
    expected: list[object] = [
        PubAck(packet_id=1, reason_code=reason),
        PubRec(packet_id=2, reason_code=reason),
    ]
    if version is Version.V311:  # in MQTT 5 that PUBREC ends the handshake (MQTT-4.3.3-4)
        publisher.send(PubRel(packet_id=2))
        expected.append(PubComp(packet_id=2))
    publisher.send(Publish(topic="t", payload=b"-", qos=2, packet_id=2))
    publisher.send(PubRel(packet_id=2))
    world.run(1)
    assert publisher.packets[1:] == [*expected, PubRec(packet_id=2), PubComp(packet_id=2)]
    assert [message.payload for _, message in broker.published] == [b"-"]


NONSENSE: list[Callable[[Publish, bytes], object]] = [
    lambda packet, frame: "text",
    lambda packet, frame: bytearray(frame),
    lambda packet, frame: b"",
    lambda packet, frame: frame[:-1],
    lambda packet, frame: frame + b"\xc0\x00",
    lambda packet, frame: b"\xc0\x00",
    lambda packet, frame: PubAck(packet_id=5).encode(Version.V311),
    lambda packet, frame: Publish(topic="t").encode(Version.V311),
    lambda packet, frame: Publish(topic="t", qos=1, packet_id=6).encode(Version.V311),
    lambda packet, frame: Publish(topic="t", qos=2, packet_id=5).encode(Version.V311),
    lambda packet, frame: frame.replace(b"t", b"#", 1),
]


@pytest.mark.parametrize("result", NONSENSE)
def test_what_a_filter_may_not_return_is_refused(
    world: World, result: Callable[[Publish, bytes], object]
) -> None:
    """The message goes on as it came, and later filters still see it."""

    class Nonsense(Filter):
        wants = frozenset({(Source.CLIENT, PUBLISH)})

        def filter(self, session: Session, message: bytes) -> Any:
            packet = decode(message, session.version)
            assert isinstance(packet, Publish)
            return result(packet, message)

    node, broker = start(world, "a", filtered(("bad", Nonsense), ("good", appending(b"!"))))
    publisher = client(world, "a", "p")
    publisher.send(Publish(topic="t", payload=b"-", qos=1, packet_id=5))
    world.run(1)
    assert [(p.topic, p.payload, p.qos) for _, p in broker.published] == [("t", b"-!", 1)]
    assert publisher.got(PubAck) == [PubAck(packet_id=5)]
    assert failures(node) == [("bad", "filter", 1)]


class Everywhere(Algorithm):
    def route(self, topic: str, retain: bool, source: Link | None) -> Iterable[tuple[Link, int]]:
        return [(link, 2) for link in self.api.links if link is not source]


@pytest.mark.parametrize("source", [Source.CLIENT, Source.BROKER, Source.LINK])
def test_a_filter_works_where_it_wants_to(world: World, source: Source) -> None:
    """At node b, which gets messages from its own clients, from a neighbour, and from its broker."""
    start(world, "a", filtered(algorithm=Everywhere))
    chain = (("drop", made(DropsX, wants={(source, PUBLISH)})), ("mark", appending(b"!", source)))
    node, broker = start(world, "b", filtered(*chain, algorithm=Everywhere))
    node.links.add(Address("a", 2), False)
    world.run(2)
    at_a, at_b = subscriber(world, "a"), subscriber(world, "b")
    remote, local = client(world, "a", "remote"), client(world, "b", "local")
    for qos in (0, 1):
        for publisher, topic in ((remote, "remote"), (local, "local")):
            for payload in (b"x", b"-"):
                publisher.send(
                    Publish(topic=f"{topic}/{qos}", payload=payload, qos=qos, packet_id=7 if qos else None)
                )
                world.run(1)

    def passing(topic: str, *where: Source) -> list[tuple[str, bytes]]:
        touched = source in where
        return [
            (f"{topic}/{q}", p + b"!" * touched)
            for q in (0, 1)
            for p in (b"x", b"-")
            if not touched or p != b"x"
        ]

    def seen(messages: list[tuple[str, bytes]], topic: str) -> list[tuple[str, bytes]]:
        return [(t, p) for t, p in messages if t.startswith(topic)]

    published = [(message.topic, message.payload) for _, message in broker.published]
    assert seen(published, "remote") == passing("remote", Source.LINK)
    assert seen(published, "local") == passing("local", Source.CLIENT)
    assert seen(at_a.messages, "remote") == passing("remote")
    assert seen(at_a.messages, "local") == passing("local", Source.CLIENT)
    assert seen(at_b.messages, "remote") == passing("remote", Source.LINK, Source.BROKER)
    assert seen(at_b.messages, "local") == passing("local", Source.CLIENT, Source.BROKER)
    assert failures(node) == []

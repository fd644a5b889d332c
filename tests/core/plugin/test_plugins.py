"""How plugins are chosen and refused, and what a plugin that fails does to a node: nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, Field

from ildm.api import (
    Algorithm,
    Filter,
    Link,
    NodeApi,
    OverlayAlgorithm,
    Plugin,
    PluginConfig,
    PluginError,
    Session,
    Source,
    TreeAlgorithm,
)
from ildm.cli import main
from ildm.config import parse_config
from ildm.core.plugin import loading
from ildm.core.plugin.loading import PluginSpecs, load_plugins
from ildm.mqtt import (
    PacketType,
    Publish,
)
from ildm.testing.virtual.node import make_node, plugin_specs
from ildm.testing.virtual.world import World
from tests.plugins.commands import ildm

PUBLISH = PacketType.PUBLISH


class Entry:
    """An entry point; what it loads is a class or the error its module raises."""

    def __init__(self, name: str, found: object, package: str = "one") -> None:
        self.name = name
        self.found = found
        self.value = f"{package}.module:Class"
        self.dist = SimpleNamespace(name=package, version="1.0")

    def load(self) -> object:
        if isinstance(self.found, BaseException):
            raise self.found
        return self.found


class Choosy(TreeAlgorithm):
    class Config(PluginConfig):
        size: int = 1
        color: str
        shades: tuple[str, ...] = Field(default=("dark",), min_length=1)


def made(base: type[Plugin], **members: Any) -> type[Plugin]:
    """A subclass with these attributes."""
    return type("Made", (base,), members)


async def coroutine(self: Plugin, link: Link) -> None:
    raise AssertionError("never called")


async def async_generator(self: Plugin, link: Link) -> Any:
    yield link


def seen(self: Plugin, session: Session, type: PacketType, message: bytes) -> None:
    raise AssertionError("never called")


def passed(self: Filter, session: Session, message: bytes) -> bytes:
    raise AssertionError("never called")


class Either(TreeAlgorithm, OverlayAlgorithm):
    """Both kinds of algorithm."""


class Judging(TreeAlgorithm, Filter):
    """An algorithm that decides about messages, too."""

    wants = frozenset({(Source.CLIENT, PacketType.PUBLISH)})
    filter = passed


Tree = TreeAlgorithm
REFUSALS: list[tuple[str, object, str]] = [
    ("algorithm", ModuleNotFoundError("No module named 'numpy'"), "cannot be imported: ModuleNotFoundError("),
    ("algorithm", SyntaxError("bad"), "cannot be imported: SyntaxError('bad')"),
    ("algorithm", 7, "7 is not a subclass of ildm.api.TreeAlgorithm"),
    ("algorithm", made(Filter), "is not a subclass of ildm.api.TreeAlgorithm"),
    ("filter", made(Tree), "is not a subclass of ildm.api.Filter"),
    ("algorithm", made(Tree, on_linkup=lambda self, link: None), "unknown hook on_linkup"),
    ("filter", made(Filter, on_link_up=lambda self, link: None), "unknown hook on_link_up"),
    (
        "algorithm",
        made(Tree, route=lambda self, topic: ()),
        "route(self, topic) must accept (self, topic,",
    ),
    (
        "algorithm",
        made(Tree, on_link_up=lambda self: None),
        "on_link_up(self) must accept (self, link)",
    ),
    (
        "algorithm",
        made(Tree, on_ildm_stop=lambda self, *, now: None),
        "on_ildm_stop(self, *, now) must",
    ),
    ("filter", made(Filter, filter=lambda self, message: message), "must accept (self, session, message)"),
    ("algorithm", made(Tree, on_link_up=coroutine), "on_link_up must be a plain method"),
    ("algorithm", made(Tree, on_link_up=async_generator), "on_link_up must be a plain method"),
    ("algorithm", made(Tree, on_link_up=staticmethod(print)), "on_link_up must be a plain method"),
    ("algorithm", made(Tree, route=()), "route must be a plain method"),
    ("filter", made(Filter, wants=None), "wants is None, not a set of (Source, PacketType)"),
    (
        "filter",
        made(Filter, wants={PUBLISH}),
        "wants has <PacketType.PUBLISH: 3>, expected (Source, PacketType)",
    ),
    ("filter", made(Filter, wants={(PUBLISH, Source.CLIENT)}), "expected (Source, PacketType)"),
    ("algorithm", made(Tree, wants={("client", PUBLISH)}), "wants has ('client', "),
    ("algorithm", made(Tree, wants={(Source.CLIENT, 3)}), "wants has (<Source.CLIENT"),
    ("algorithm", made(Tree, Config=dict), "Config must be a subclass of ildm.api.PluginConfig"),
    (
        "algorithm",
        made(Tree, Config=BaseModel),
        "Config must be a subclass of ildm.api.PluginConfig",
    ),
    ("algorithm", made(Tree, Config=PluginConfig()), "Config must be a subclass"),
    ("algorithm", Choosy, "color: Field required"),
    ("algorithm", SystemExit(3), "cannot be imported: SystemExit(3)"),
    ("algorithm", made(Tree, api_version=2), "api_version is 2; this node has version 1 of the interface"),
    ("algorithm", made(Tree, api_version=0), "api_version is 0; this node has version 1"),
    ("filter", made(Filter, api_version="1"), "api_version is '1', not a number"),
    ("filter", made(Filter, api_version=True), "api_version is True, not a number"),
    ("filter", Judging, "Judging): it is an algorithm, to be named as such"),
    ("algorithm", Either, "Either): it inherits from TreeAlgorithm and from OverlayAlgorithm"),
    (
        "filter",
        made(Filter, filter=passed),
        "filter is never called, as wants has no (Source, Pack",
    ),
    (
        "filter",
        made(Filter, filter=passed, wants={(Source.PEER, PUBLISH), (Source.CLIENT, PacketType.SUBSCRIBE)}),
        "filter is never called",
    ),
    (
        "filter",
        made(Filter, wants={(Source.CLIENT, PUBLISH)}),
        "wants has (Source.CLIENT, PacketType.PUBLISH), but there is no mqtt_message_arrived to show it to",
    ),
    (
        "filter",
        made(Filter, filter=passed, wants={(Source.LINK, PUBLISH), (Source.CLIENT, PacketType.CONNECT)}),
        "wants has (Source.CLIENT, PacketType.CONNECT), but there is no mqtt_message_arrived",
    ),
    ("algorithm", made(Tree, wants={(Source.BROKER, PacketType.SUBACK)}), "no mqtt_message_arrived to show"),
    ("filter", made(Filter, on_error="drop"), "on_error is 'drop', expected one of pass, reject"),
    ("algorithm", made(Tree, on_error="pass"), "unknown hook on_error"),
    ("algorithm", made(Tree, mqtt_message_arrived=seen), "mqtt_message_arrived is never called"),
]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``install(name=found, ...)`` replaces what is installed, in both groups."""

    def install(**found: object) -> None:
        entries = [Entry(name, each) for name, each in found.items()]
        monkeypatch.setattr(loading, "entry_points", lambda *, group: entries)

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
        ({"colour": "red"}, "algorithm 'mine': color: Field required; colour: unknown option (color?)"),
        (
            {"color": "red", "size": "big"},
            "algorithm 'mine': size: Input should be a valid integer, unable to parse string as an integer",
        ),
        ({"color": "red", "shades": "x"}, "algorithm 'mine': shades: expected a list, in brackets: [x]"),
        ({"color": "red", "shades": []}, "algorithm 'mine': shades: List should have at least 1 item"),
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


def test_a_name_that_two_packages_have_taken_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [Entry("mine", made(Tree), "one"), Entry("other", made(Tree)), Entry("mine", made(Tree), "two")]
    monkeypatch.setattr(loading, "entry_points", lambda *, group: entries)
    with pytest.raises(PluginError) as refused:
        load({"algorithm": "mine"})
    assert str(refused.value) == (
        "algorithm 'mine' is installed 2 times: one 1.0 (one.module:Class), two 1.0 (two.module:Class)"
    )
    assert load({"algorithm": "other"}).algorithm is not None


def test_good_plugins_are_chosen_with_their_options(install: Callable[..., None]) -> None:
    def flexible(self: Algorithm, *arguments: object) -> tuple[()]:
        return ()

    install(mine=Choosy, also=made(Filter), free=made(Tree, route=flexible), judging=Judging)
    specs = load({"algorithm": {"name": "mine", "color": "red"}, "filters": ["also", "also"]})
    assert specs.algorithm is not None
    assert (specs.algorithm.plugin, specs.algorithm.config) == (Choosy, Choosy.Config(color="red"))
    assert [spec.name for spec in specs.filters] == ["also", "also"]
    for name in ("free", "judging"):
        assert load({"algorithm": name}).algorithm is not None
    assert load({}) == PluginSpecs(None, [])


def test_a_constructor_that_raises_is_named() -> None:
    def fail(self: Plugin, api: NodeApi, config: PluginConfig) -> None:
        raise RuntimeError("no")

    for base, kind in ((TreeAlgorithm, "algorithm"), (Filter, "filter")):
        failing = made(base, __init__=fail)
        specs = (
            plugin_specs("mine", failing)
            if base is Algorithm
            else plugin_specs(None, None, [("mine", failing)])
        )
        with pytest.raises(PluginError, match=rf"^{kind} 'mine' cannot be made: RuntimeError\('no'\)$"):
            make_node(World(), "a", specs)


def test_a_constructor_may_say_what_is_wrong_in_its_own_words() -> None:
    def refuse(self: Plugin, api: NodeApi, config: PluginConfig) -> None:
        raise PluginError("this node is not in my list")

    specs = plugin_specs("mine", made(TreeAlgorithm, __init__=refuse))
    with pytest.raises(PluginError, match=r"^algorithm 'mine': this node is not in my list$"):
        make_node(World(), "a", specs)


class Unmade(TreeAlgorithm):
    """Its constructor raises."""

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        raise KeyError("x")


UNMADE = ("algorithm", Unmade, "'mine' cannot be made: KeyError('x')")


@pytest.mark.parametrize(
    ("kind", "found", "complaint"), [*REFUSALS[:1], *REFUSALS[5:6], *REFUSALS[-1:], UNMADE]
)
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
    assert err.startswith(f"ildm: {config}: {kind} 'mine'")
    assert complaint in err
    assert err.count("\n") == 1


def test_a_trial_does_what_plugins_ask_for_nowhere(
    install: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is dialed, called, written or logged, and no state directory is made."""
    called: list[str] = []

    class Eager(TreeAlgorithm):
        def __init__(self, api: NodeApi, config: PluginConfig) -> None:
            super().__init__(api, config)
            api.call_later(0, called.append, "timer").cancel()
            api.call_later(0, called.append, "timer")
            api.create_session("127.0.0.1", 1)
            api.inject(Publish(topic="t", retain=True))
            api.log("made", now=api.now(), drawn=api.random.random())
            called.append("made")

        def on_ildm_start(self) -> None:
            called.append("start")

    install(mine=Eager)
    config = tmp_path / "node.yaml"
    config.write_text("algorithm: mine\nlisten: 127.0.0.1:0\nlink: {listen: 127.0.0.1:0}\n")
    monkeypatch.setattr(sys, "argv", ["ildm", "check", str(config)])
    assert main() == 0
    assert called == ["made"]
    assert list(tmp_path.iterdir()) == [config]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("broken", "algorithm 'broken' cannot be imported: ZeroDivisionError('division by zero')"),
        ("waiting", "algorithm 'waiting' (bad:Waiting): on_ildm_stop must be a plain method"),
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
        "from ildm.api import TreeAlgorithm\n"
        "class Waiting(TreeAlgorithm):\n    async def on_ildm_stop(self): pass\n"
        "class Unmade(TreeAlgorithm):\n    def __init__(self, api, config): {}['x']\n"
    )
    config = tmp_path / "node.yaml"
    config.write_text(f"algorithm: {name}\nlisten: 127.0.0.1:0\nlink: {{listen: 127.0.0.1:0}}\n")
    done = ildm(installed, "run", "--config", config)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"ildm: {config}: {complaint}\n")

"""What is installed: its types reach packages outside, and its fixtures their tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
MODULE = '''
"""A package of somebody else's."""

from ildm_algorithms.sf import SubscriptionFlooding
from ildm.api import Filter, OverlayAlgorithm, TreeAlgorithm
from ildm.api import Link, Peer, PluginConfig, Reject, Route, Session, Source
from ildm.mqtt import PacketType, Publish


class Options(PluginConfig):
    prefix: str = "a/"


class Careful(SubscriptionFlooding):
    def on_link_up(self, link: Link) -> None:
        super().on_link_up(link)
        self.api.log("careful", neighbor=link.node_id)


class Prefixed(TreeAlgorithm[Options]):
    def route(self, topic: str, retain: bool, source: Link | None) -> Route:
        return [(link, 2) for link in self.api.links if topic.startswith(self.config.prefix)]


class Talk(OverlayAlgorithm):
    def on_publish(self, message: Publish, turn: int) -> None:
        if not self.api.send(Peer("b", "b.example:1885"), message.payload, turn):
            self.api.count("not_sent")

    def on_message(self, sender: Peer, data: bytes, turn: int) -> None:
        self.api.inject(Publish(topic=sender.node_id, payload=data))


class Short(Filter[Options]):
    wants = frozenset({(Source.CLIENT, PacketType.PUBLISH)})

    def filter(self, session: Session, message: bytes) -> bytes | Reject | None:
        return message if len(message) < len(self.config.prefix) + 20 else Reject(text="too long")
'''
TEST = '''
"""Its tests."""

from collections.abc import Callable

from ildm.mqtt import Publish
from ildm.testing import FakeNode, LinkModel, Rejected, World, lognormal
from ildm.testing.contract import NodeContract
from ildm.testing.live.client import PahoClient
from ildm.testing.live.site import NodeFactory
from outside import Careful, Prefixed, Short, Talk


def test_units() -> None:
    node = FakeNode(Prefixed, {"prefix": "b/"})
    node.link("b")
    node.publish("b/1")
    assert [gone.message.topic for gone in node.transferred] == [node.plugin.config.prefix + "1"]
    talk = FakeNode(Talk)
    talk.publish("t", b"x")
    assert talk.sent[0].data == b"x"
    assert isinstance(FakeNode(Short).filter(Publish(topic="t", payload=bytes(100))), Rejected)


def test_world() -> None:
    world = World(Careful, model=LinkModel(delay=lognormal(0.01, 0.5)), filters=[(Short, None)])
    world.add("a")
    world.add("b", introducer="a").subscribe("t")
    world.settle()
    world["a"].publish("t", b"x")
    world.settle()
    assert [delivery.payload for delivery in world["b"].deliveries] == [b"x"]


def test_live(ildm_node: NodeFactory, ildm_client: Callable[..., PahoClient]) -> None:
    ildm_client(ildm_node("sf")).publish("t", b"x", 1)


class Part(NodeContract):
    """Not collected by its name."""
'''


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory into which pip has installed the wheel, without a network and without what it needs."""
    directory = tmp_path_factory.mktemp("wheel")
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    run([*pip, "wheel", *offline, "--wheel-dir", directory, PROJECT], directory)
    target = directory / "installed"
    run([*pip, "install", *offline, "--target", target, *directory.glob("*.whl")], directory)
    return target


def run(command: list[str | Path], directory: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside.py").write_text(MODULE)
    (tmp_path / "test_outside.py").write_text(TEST)
    return tmp_path


def test_the_wheel_is_typed_and_complete(installed: Path) -> None:
    for package in ("ildm", "ildm_algorithms", "ildm_bench"):
        assert (installed / package / "py.typed").is_file()
    for file in ("testing/README.md", "testing/live/reaper.py", "testing/live/brokers/amqtt_server.py"):
        assert (installed / "ildm" / file).is_file()
    (entries,) = installed.glob("ildm-*.dist-info/entry_points.txt")
    assert "[pytest11]\nildm = ildm.pytest_plugin" in entries.read_text()


def test_a_package_outside_passes_mypy(installed: Path, outside: Path) -> None:
    said = run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "outside.py", "test_outside.py"],
        outside,
        MYPYPATH="",
        PYTHONPATH=str(installed),
    )
    assert "no issues found in 2 source files" in said


def test_a_package_outside_passes_its_own_tests(installed: Path, outside: Path) -> None:
    """With the plugin that the wheel registers for pytest."""
    said = run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_outside.py"],
        outside,
        PYTHONPATH=os.pathsep.join((str(installed), str(outside))),
    )
    assert "3 passed" in said

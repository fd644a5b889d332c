"""What is installed: its types reach packages outside, and its fixtures their tests."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ildm import __version__, compiled
from tests.support.compiled import directory as compiled_directory

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
from ildm.testing import FakeNode, LinkModel, PluginWorld, Rejected, lognormal
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
    world = PluginWorld(Careful, model=LinkModel(delay=lognormal(0.01, 0.5)), filters=[(Short, None)])
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


PIP: list[str | Path] = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
OFFLINE = ["--no-deps", "--no-index", "--no-build-isolation"]
CONFIG = (
    "listen: 127.0.0.1:0\nbroker: {address: 127.0.0.1:1}\nalgorithm: sg_tbps\nlink: {listen: 127.0.0.1:0}\n"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of the sources alone, built without a network."""
    directory = tmp_path_factory.mktemp("wheel")
    run([*PIP, "wheel", *OFFLINE, "--wheel-dir", directory, PROJECT], directory, HATCH_BUILD_NO_HOOKS="true")
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def compiled_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one for this Python and machine."""
    compiled_directory()
    directory = tmp_path_factory.mktemp("compiled_wheel")
    run(
        [*PIP, "wheel", *OFFLINE, "--wheel-dir", directory, PROJECT],
        directory,
        HATCH_BUILD_HOOKS_ENABLE="true",
    )
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory into which pip has installed the wheel, without what it needs."""
    target = tmp_path_factory.mktemp("installed")
    run([*PIP, "install", *OFFLINE, "--target", target, wheel], target)
    return target


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_environment(tmp_path_factory.mktemp("environment"), wheel)


def new_environment(directory: Path, wheel: Path) -> Path:
    """With the wheel and what it needs itself, in the versions of the lock, and no more."""
    venv.create(directory, symlinks=True)
    (packages,) = directory.glob("lib/python3.*/site-packages")
    locked = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (PROJECT / "requirements.lock").read_text(), re.M))
    for found in needed("ildm"):
        assert found.version == locked[canonicalize_name(found.name)]
        for name in {
            file.parts[0] for file in found.files or () if file.parts[0] not in {"..", "__pycache__"}
        }:
            (packages / name).symlink_to(found.locate_file(name))
    run([*PIP, "--python", directory / "bin" / "python", "install", *OFFLINE, wheel], directory)
    return directory


def needed(name: str) -> list[Distribution]:
    """What is needed by an installed package, extras aside, and by what that needs."""
    seen: dict[str, Distribution] = {}
    waiting = [name]
    while waiting:
        for text in distribution(waiting.pop()).requires or ():
            requirement = Requirement(text)
            key = canonicalize_name(requirement.name)
            if key not in seen and (not requirement.marker or requirement.marker.evaluate({"extra": ""})):
                seen[key] = distribution(key)
                waiting.append(key)
    return list(seen.values())


def run(command: list[str | Path], directory: Path, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != compiled.SWITCH}
    done = subprocess.run(
        command,
        cwd=directory,
        env=kept | environment,
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
    for file in ("testing/README.md", "testing/live/reaper.py", "demo/broker.py"):
        assert (installed / "ildm" / file).is_file()
    pages = installed / "ildm" / "net" / "dashboard" / "pages"
    for file in ("index.html", "app.js", "vendor/uplot.min.js", "vendor/uplot.LICENSE"):
        assert (pages / file).is_file()
    assert not (pages.parent / "pictures").exists()
    (entries,) = installed.glob("ildm-*.dist-info/entry_points.txt")
    assert "[pytest11]\nildm = ildm.pytest_plugin" in entries.read_text()


def test_nothing_else_is_at_its_top(wheel: Path) -> None:
    """As `bench` or `algorithms` would be, which other packages may be called, too."""
    with zipfile.ZipFile(wheel) as opened:
        top = {name.split("/")[0] for name in opened.namelist()}
    assert top == {"ildm", "ildm_algorithms", "ildm_bench", f"ildm-{__version__}.dist-info"}


def test_an_environment_with_it_alone(environment: Path, tmp_path: Path) -> None:
    def ildm(*arguments: str) -> str:
        return run([environment / "bin" / "ildm", *arguments], tmp_path, PYTHONPATH="")

    reason = "nothing is compiled for this Python"
    told = f"ildm {__version__} (interpreted: {reason}; for the fast form: {compiled.REINSTALL})\n"
    assert ildm("--version") == told
    words = ildm("--help").split()
    assert {"run", "check", "neighbor", "content"} <= set(words)
    found = {each["name"]: each["problem"] for each in json.loads(ildm("plugin", "list", "--json"))}
    assert {"sf", "pf", "sg_tbps", "atm_tbps", "stla", "octopia"} <= set(found)
    assert set(found.values()) == {None}
    (tmp_path / "node.yaml").write_text(CONFIG)
    assert "algorithm      sg_tbps" in ildm("check", "node.yaml")
    assert "pytest" in ildm("plugin", "new", "mine")  # made of templates that are no modules
    assert (tmp_path / "mine" / "pyproject.toml").is_file()
    python = environment / "bin" / "python"
    run([python, "-m", "ildm.manual", tmp_path / "pages"], tmp_path, PYTHONPATH="")
    assert (tmp_path / "pages" / "ildm.1").is_file()


def test_the_wheel_for_this_machine_runs_compiled(compiled_wheel: Path, tmp_path: Path) -> None:
    assert re.fullmatch(rf"ildm-{__version__}-cp3\d+-cp3\d+-(?!many|musl)\w+\.whl", compiled_wheel.name)
    environment = new_environment(tmp_path / "environment", compiled_wheel)
    ildm = environment / "bin" / "ildm"
    plain = {"PYTHONPATH": ""}
    assert run([ildm, "--version"], tmp_path, **plain) == f"ildm {__version__} (compiled)\n"
    said = run([ildm, "--version"], tmp_path, **plain, ILDM_COMPILED="0")
    assert said == f"ildm {__version__} (interpreted: ILDM_COMPILED=0)\n"


def test_a_build_asks_for_mypyc_where_a_compiler_is(tmp_path: Path) -> None:
    ask = "from hatchling.build import get_requires_for_build_wheel as needs; print(needs())"
    assert run([sys.executable, "-c", ask], PROJECT) == "['mypy[mypyc]>=1.19']\n"
    for without in ({"PATH": str(tmp_path), "CC": ""}, {"HATCH_BUILD_NO_HOOKS": "true"}):
        assert run([sys.executable, "-c", ask], PROJECT, **without) == "[]\n"


def test_without_a_compiler_the_wheel_is_that_of_the_sources(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for part in ("ildm", "algorithms", "bench/ildm_bench", "configs/release"):
        shutil.copytree(
            PROJECT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__", "_compiled")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, tree)
    build: list[str | Path] = [*PIP, "wheel", *OFFLINE, "--wheel-dir", tmp_path, tree]
    without = {"PATH": str(tmp_path), "CC": ""}
    run(build, tmp_path, **without)
    assert [path.name for path in tmp_path.glob("*.whl")] == [f"ildm-{__version__}-py3-none-any.whl"]
    with pytest.raises(AssertionError, match="no wheel with what is compiled: nothing is compiled"):
        run(build, tmp_path, **without, HATCH_BUILD_HOOKS_ENABLE="true")


def test_benchmarks_say_what_they_need(environment: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [environment / "bin" / "ildm-bench", "--help"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert re.fullmatch(
        r"ildm-bench: \w+ is not installed\. .* pip install 'ildm\[bench\]';.*\n", done.stderr
    )


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

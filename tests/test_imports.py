"""Who may import whom: the layers stay apart, and what decides knows no sockets, clocks or chance."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PROJECT = Path(__file__).parents[1]
OURS = {"ildm": ".", "ildm_algorithms": "algorithms", "ildm_bench": "bench", "tests": "."}
"""Package -> the directory below the project that it is in."""

_TASKS = {"asyncio", "concurrent", "multiprocessing", "queue", "sched", "subprocess", "threading", "uvloop"}
_NETWORK = {"aiohttp", "http", "select", "selectors", "socket", "socketserver", "ssl", "urllib"}
_SYSTEM = {"ctypes", "os", "secrets", "signal", "sqlite3", "sys", "uuid"}
_CLOCK_AND_LOG = {"calendar", "datetime", "logging", "structlog", "time", "warnings"}
IMPURE = frozenset({"_thread"} | _TASKS | _NETWORK | _SYSTEM | _CLOCK_AND_LOG)
"""Modules that reach tasks, the network, the clock, the system, chance or the log."""


class Layer(NamedTuple):
    """Modules below ``inside`` may import of ours only what is below ``allowed``."""

    inside: str
    allowed: tuple[str, ...]
    pure: bool = False


PLUGINS = ("ildm.mqtt", "ildm.api")
"""What an outside author's plugin imports is all that those here import, too."""

SHARED = ("ildm_algorithms.overlay", "ildm_algorithms.exchange")
"""What the algorithms that are overlays have in common."""


def below(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def module_name(path: Path) -> str:
    """``ildm/mqtt/__init__.py`` -> ``ildm.mqtt``."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def project_files() -> dict[Path, str]:
    """Path below the directory that its package is in -> source, of every Python file of ours."""
    return {
        path.relative_to(PROJECT / directory): path.read_text()
        for name, directory in OURS.items()
        for path in sorted((PROJECT / directory / name).rglob("*.py"))
    }


FILES = project_files()
MODULES = frozenset(map(module_name, FILES))


CORE = ("ildm.mqtt", "ildm.api", "ildm.config", "ildm.text")
WINGS = [f"ildm.core.{wing}" for wing in ("plugin", "transfer", "broker", "link", "local", "host")]
"""Each knows the ones before it, for types too."""
ABOVE = ("ildm.core.node", "ildm.core.trial", "ildm.core.guests")
"""These know all wings."""
BASE = tuple(
    module
    for module in sorted(MODULES)
    if module.startswith("ildm.core.") and module.count(".") == 2 and module not in (*WINGS, *ABOVE)
)
"""Modules of the core that know no wing."""

LAYERS = (
    Layer("ildm.mqtt", ("ildm.mqtt",), pure=True),
    Layer("ildm.api", ("ildm.mqtt", "ildm.api"), pure=True),
    Layer("ildm.text", (), pure=True),
    *(Layer(wing, (*CORE, *BASE, *WINGS[: n + 1]), pure=True) for n, wing in enumerate(WINGS)),
    *(Layer(name, (*CORE, *BASE), pure=True) for name in BASE),
    Layer("ildm.core", (*CORE, "ildm.core"), pure=True),
    Layer("ildm", ("ildm",)),
    Layer("ildm_algorithms.overlay", (*PLUGINS, "ildm_algorithms.overlay"), pure=True),
    Layer("ildm_algorithms.exchange", (*PLUGINS, "ildm_algorithms.exchange"), pure=True),
    Layer("ildm_algorithms.tbps", (*PLUGINS, *SHARED, "ildm_algorithms.tbps"), pure=True),
    Layer("ildm_algorithms.octopia", (*PLUGINS, *SHARED, "ildm_algorithms.octopia"), pure=True),
    Layer("ildm_algorithms", (*PLUGINS, *SHARED, "ildm_algorithms.tbps"), pure=True),
    Layer("ildm_bench", ("ildm", "ildm_algorithms", "ildm_bench")),
    Layer("tests", tuple(OURS)),
)
"""The first that a module is below holds for it. An algorithm may also import its own package."""


class Import(NamedTuple):
    line: int
    module: str
    """The module that is imported, or from which ``name`` is."""
    name: str | None = None


def imports(tree: ast.Module, path: Path, modules: frozenset[str] = MODULES) -> Iterator[Import]:
    """Every import of a file, also those in functions, for typing alone, and by a call."""
    package = [*module_name(path).split("."), ""][: len(path.parts) - 1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*parts, node.module] if node.module else parts)
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield (
                    Import(node.lineno, whole) if whole in modules else Import(node.lineno, base, alias.name)
                )
        elif isinstance(node, ast.Call) and _last_name(node.func) in {"__import__", "import_module"}:
            match node.args:
                case [ast.Constant(value=str(name)), *_]:
                    yield Import(node.lineno, name)
                case _:
                    yield Import(node.lineno, "?")


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def parsed(source: str) -> ast.Module:
    # In 3.11 a finalizer that runs within ast.parse and parses, too (as a traceback does), makes it fail.
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        gc.enable()


def violations(path: Path, source: str) -> list[str]:
    """What a file does against the rules, as ``FILE:LINE: WHAT``."""
    module = module_name(path)
    layer = next(layer for layer in LAYERS if below(module, layer.inside))
    allowed = [*layer.allowed]
    if layer.inside == "ildm_algorithms":
        allowed.append(".".join(module.split(".")[:2]))
    tree = parsed(source)
    found = []
    for line, target, name in imports(tree, path):
        root = target.partition(".")[0]
        wrong = (
            (root in OURS and not any(below(target, package) for package in allowed))
            or (layer.pure and root in IMPURE)
            # a generator may be seeded or handed in; the functions share one that is neither
            or (layer.pure and root == "random" and name != "Random")
            or (target == "?" and layer.inside != "tests")
        )
        if wrong:
            found.append(f"{path}:{line}: {module} must not import {target}{f'.{name}' if name else ''}")
    if layer.pure:
        found += [
            f"{path}:{node.lineno}: a generator without a seed"
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and _last_name(node.func) == "Random" and not node.args
        ]
    return found


def test_every_file_keeps_to_the_rules() -> None:
    assert [line for path, source in FILES.items() for line in violations(path, source)] == []


def test_all_layers_were_looked_at() -> None:
    for layer in LAYERS:
        assert any(below(module, layer.inside) for module in MODULES), layer.inside


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("ildm/mqtt/x.py", "from ildm.api import Link"),
        ("ildm/mqtt/x.py", "from ildm import api"),
        ("ildm/mqtt/x.py", "from ..core import node"),
        ("ildm/mqtt/__init__.py", "from .. import config"),
        ("ildm/api/__init__.py", "from ildm.core.node import Node"),
        ("ildm/api/__init__.py", "from .. import core"),
        ("ildm/core/x.py", "from ildm.net.run import run_node"),
        ("ildm/core/x.py", "def f():\n    import asyncio"),
        ("ildm/core/x.py", "import asyncio.events as e"),
        ("ildm/core/x.py", "from time import monotonic"),
        ("ildm/core/x.py", "import random"),
        ("ildm/core/x.py", "from random import choice"),
        ("ildm/core/x.py", "from random import Random\nr = Random()"),
        ("ildm/core/x.py", "if TYPE_CHECKING:\n    import socket"),
        ("ildm/core/plugin/x.py", "from ildm.core.transfer.router import Router"),
        ("ildm/core/link/x.py", "if TYPE_CHECKING:\n    from ildm.core.node import Node"),
        ("ildm/core/link/x.py", "from ildm.core.local.clients import ClientRegistry"),
        ("ildm/core/session.py", "from ildm.core.transfer.queue import Entry"),
        ("ildm/net/x.py", "import ildm_algorithms"),
        ("ildm/net/x.py", "from ildm_algorithms import sf"),
        ("ildm/net/x.py", "__import__('ildm_algorithms.sf')"),
        ("ildm/net/x.py", "import importlib\nimportlib.import_module(name)"),
        ("ildm/demo/x.py", "from ildm_bench.micro import load"),
        ("ildm/demo/x.py", "import tests.support"),
        ("ildm_algorithms/x.py", "from ildm.core.node import Node"),
        ("ildm_algorithms/x.py", "import ildm"),
        ("ildm_algorithms/x.py", "from ildm_algorithms.sf import SubscriptionFlooding"),
        ("ildm_algorithms/x.py", "from . import pf"),
        ("ildm_algorithms/x/rings.py", "from ..sf import SubscriptionFlooding"),
        ("ildm_algorithms/overlay/keys.py", "from ildm_algorithms.x.rings import Ring"),
        ("ildm_algorithms/overlay/graph.py", "from ildm_algorithms.tbps import TopicBased"),
        ("ildm_algorithms/exchange/log.py", "from ildm_algorithms.overlay.wire.codec import U32"),
        ("ildm_algorithms/tbps/publishers/outbox.py", "from ildm_algorithms.sg_tbps import SgTbpsConfig"),
        ("ildm_algorithms/octopia/delivery/missed.py", "from ildm_algorithms.tbps.messages import Missed"),
        ("ildm_algorithms/x/rings.py", "from ildm_algorithms.sg_tbps import SgTbps"),
        ("ildm_algorithms/x.py", "import logging"),
        ("ildm_bench/x.py", "from tests.support.ports import free_port"),
    ],
)
def test_what_is_forbidden_is_found(path: str, source: str) -> None:
    assert len(violations(Path(path), source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("ildm/mqtt/x.py", "import struct\nfrom . import wire\nfrom ildm.mqtt.wire import put_frame"),
        (
            "ildm/api/__init__.py",
            "from ildm.mqtt import Publish\nfrom random import Random\ndef f(r: Random): 0",
        ),
        ("ildm/core/x.py", "from random import Random\nr = Random(7)\nfrom ildm.config import Address"),
        (
            "ildm/core/link/x.py",
            "from ildm.core.session import BaseSession\nfrom ildm.core.broker import parts",
        ),
        ("ildm/net/x.py", "import asyncio, random\nfrom ildm import admin"),
        (
            "ildm_algorithms/x.py",
            "from ildm.api import Algorithm\nfrom ildm_algorithms.overlay.keys import Key",
        ),
        (
            "ildm_algorithms/x/rings.py",
            "from .keys import Key\nfrom ildm_algorithms.x import keys\nfrom ..overlay import sfb",
        ),
        ("ildm_algorithms/x/__init__.py", "from ildm_algorithms.tbps import TopicBased"),
        (
            "ildm_algorithms/tbps/keys/encoding.py",
            "from ildm_algorithms.overlay.keys import Range\nfrom . import segments",
        ),
        ("ildm_algorithms/overlay/keys.py", "from . import tables"),
        ("ildm_bench/x.py", "import ildm_algorithms.sf, ildm.net.run, ildm_bench.micro, time"),
        ("tests/x.py", "import ildm_bench, tests.support, ildm_algorithms, ildm, random"),
    ],
)
def test_what_is_allowed_is_left_alone(path: str, source: str) -> None:
    assert violations(Path(path), source) == []


# circles ----------------------------------------------------------------------------------------------------

CIRCLES = {"ildm.core": 10, "ildm_algorithms.overlay": 8}
"""Package -> the most modules in one circle of imports, also for types. It only falls."""
FEW = 3
"""So many, in every other package."""


def graph(files: dict[Path, str]) -> dict[str, set[str]]:
    """Module -> the modules of these files that it imports."""
    modules = frozenset(map(module_name, files))
    return {
        module_name(path): {each.module for each in imports(parsed(source), path, modules)} & modules
        for path, source in files.items()
    }


def reached(edges: dict[str, set[str]], start: str) -> set[str]:
    """What a module imports, and what that does, and so on."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = edges[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def circles(edges: dict[str, set[str]]) -> set[frozenset[str]]:
    """Modules that reach each other, without those that only reach others."""
    reach = {module: reached(edges, module) for module in edges}
    return {
        frozenset(other for other in reach[module] if module in reach[other])
        for module in edges
        if module in reach[module]
    }


def test_circles_of_imports_do_not_grow() -> None:
    product = {path: source for path, source in FILES.items() if path.parts[0] != "tests"}
    for circle in circles(graph(product)):
        packages = [package for package in CIRCLES if all(below(module, package) for module in circle)]
        most = CIRCLES[packages[0]] if packages else FEW
        assert len(circle) <= most, f"{len(circle)} modules import each other: {' '.join(sorted(circle))}"


def test_a_circle_is_found() -> None:
    files = {
        Path("ildm/mqtt/a.py"): "from ildm.mqtt import b",
        Path("ildm/mqtt/b.py"): "def f():\n    from .c import C",
        Path("ildm/mqtt/c.py"): "if TYPE_CHECKING:\n    from ildm.mqtt.a import A\nimport ildm.mqtt.d",
        Path("ildm/mqtt/d.py"): "import struct",
    }
    assert circles(graph(files)) == {frozenset({"ildm.mqtt.a", "ildm.mqtt.b", "ildm.mqtt.c"})}

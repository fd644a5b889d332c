"""The documents for authors of plugins: their code is that of files, and they leave nothing out."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ildm.api
from ildm.api import Algorithm, Filter, Link, NodeApi, OverlayAlgorithm, Plugin, TreeAlgorithm
from ildm.config import LimitsConfig, LinkConfig
from ildm.scaffold import named, rendered
from ildm.testing import FakeLink, FakeNode, PluginWorld
from ildm.testing.live.node import NodeProcess
from tests.plugins.commands import PROJECT

GUIDE = PROJECT / "algorithms" / "README.md"
DOCUMENTS = (PROJECT / "README.md", GUIDE)
MARKER = re.compile(
    r"^<!-- (?P<kind>example|template): (?P<what>.+?) -->\n+```\w*\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def blocks(text: str) -> dict[tuple[str, str], str]:
    """Kind and what of each marked block -> its code."""
    found = {(match["kind"], match["what"]): match["code"] for match in MARKER.finditer(text)}
    marked = text.count("<!-- example:") + text.count("<!-- template:")
    assert len(found) == marked, f"{marked} markers, but {len(found)} with a code block of their own"
    return found


def original(kind: str, what: str) -> str:
    """What a block is a copy of: a file, or a template's file for a plugin of some name."""
    if kind == "example":
        return (PROJECT / what).read_text()
    place, name = what.split()
    template, _, file = place.partition("/")
    names = named(name)
    return rendered(names, template)[f"{names.package}/{file}"]  # type: ignore[arg-type]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.parent.name)
def test_the_code_shown_is_that_of_files(document: Path) -> None:
    shown = blocks(document.read_text())
    assert shown
    for (kind, what), code in shown.items():
        assert code == original(kind, what), f"{document}: the block does not equal {kind} {what}"


def test_blocks_are_found_and_lost_ones_noticed() -> None:
    assert blocks("a\n<!-- example: x.py -->\n```python\none\n\ntwo\n```\nb\n```\nno\n```\n") == {
        ("example", "x.py"): "one\n\ntwo\n"
    }
    for text in ("<!-- example: x.py -->\nno block\n", "<!-- example: x.py-->\n```\ncode\n```\n"):
        with pytest.raises(AssertionError, match="1 markers, but 0"):
            blocks(text)


def members() -> Iterator[str]:
    for interface in (Plugin, Algorithm, TreeAlgorithm, OverlayAlgorithm, Filter, NodeApi, Link):
        for name, member in vars(interface).items():
            if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                yield name


@pytest.mark.parametrize("name", sorted(set(members())))
def test_the_guide_speaks_of_every_hook_and_call(name: str) -> None:
    assert re.search(rf"\b{name}\b", GUIDE.read_text())


def found(pattern: str) -> set[str]:
    return set(re.findall(pattern, GUIDE.read_text()))


def test_the_guide_promises_nothing_that_is_not_there() -> None:
    calls = found(r"(?<!ildm\.)\bapi\.(\w+)")
    assert calls
    assert calls <= set(vars(NodeApi))
    assert found(r"\b(on_\w+)\(") <= set(members())
    assert found(r"\blink\.(\w+)") <= set(vars(Link)) | set(LinkConfig.model_fields) | set(dir(FakeLink))
    assert found(r"\blimits\.(\w+)") <= set(LimitsConfig.model_fields)
    assert found(r"`(plugin_\w+|decision_\w+)`") <= set(LimitsConfig.model_fields)
    assert found(r"\bworld\.(\w+)") <= set(dir(PluginWorld))
    nodes = {*dir(FakeNode), *dir(NodeProcess), "plugin", "transferred", "sent", "yaml", "py"}
    assert found(r"\bnode\.(\w+)") <= nodes
    assert found(r"from ildm\.api import (\w+)") <= set(ildm.api.__all__)

"""What the node counts is declared, and what is declared is counted."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ildm
from ildm.core.counters import Counters, Tally, UndeclaredError
from ildm.core.declared import COUNTED, REFUSALS
from ildm.core.metrics import counter, counters, united

SOURCE = Path(ildm.__file__).parent
WAITS = {"subscribe_waits_expired", "save_waits_expired", "retained_waits_expired"}
BEHIND = {"sent_counter": {"injected"}, "_counter": WAITS}
"""Attributes that hold the name of a counter, and which."""
PLUGINS = ("ildm/core/plugin/account.py", "ildm/testing/", "ildm/cli/render/", "ildm/demo/")
"""Where names are those of plugins."""


def patterns(name: ast.expr) -> Iterator[str]:
    """What an expression for a name can be, as regular expressions."""
    match name:
        case ast.Constant(value=str(text)):
            yield re.escape(text)
        case ast.IfExp(body=one, orelse=other):
            yield from patterns(one)
            yield from patterns(other)
        case ast.JoinedStr(values=parts):
            yield "".join(re.escape(p.value) if isinstance(p, ast.Constant) else "[a-z0-9_-]+" for p in parts)
        case ast.Attribute(attr=attribute) if attribute in BEHIND:
            yield from sorted(BEHIND[attribute])
        case _:
            raise AssertionError(f"line {name.lineno}: what is counted by {ast.unparse(name)}?")


def counted() -> Iterator[tuple[str, str]]:
    """Where something is counted, and the pattern of its name."""
    for path in sorted(SOURCE.rglob("*.py")):
        where = str(path.relative_to(SOURCE.parent))
        if where.startswith(PLUGINS):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Store):
                continue
            of = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if of.strip("_") == "counters" and ast.unparse(node.slice) != "key":
                for pattern in patterns(node.slice):
                    yield f"{where}:{node.lineno}", pattern


def test_whatever_is_counted_is_declared_and_the_other_way_round() -> None:
    found = list(counted())
    assert len(found) > 100
    undeclared = {place for place, pattern in found if not any(re.fullmatch(pattern, n) for n in COUNTED)}
    assert undeclared == set()
    whole = re.compile("|".join(pattern for _, pattern in found))
    assert [name for name in COUNTED if not whole.fullmatch(name)] == []


def test_every_refusal_of_a_neighbour_is_declared() -> None:
    """Those that a session says of itself (``session.py``) are of connections that were accepted."""
    found = set()
    for path in (SOURCE / "core" / "link").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                path.name != "session.py"
                and isinstance(node, ast.Call)
                and ast.unparse(node.func) == "Refusal"
            ):
                assert isinstance(node.args[0], ast.Constant)
                found.add(node.args[0].value)
    assert found == set(REFUSALS)


def test_an_undeclared_name_is_an_error_where_it_is_first_used() -> None:
    counters = Counters()
    counters["messages_in"] += 2
    assert (counters["messages_in"], counters["messages_out"], dict(counters)) == (2, 0, {"messages_in": 2})
    with pytest.raises(UndeclaredError, match="'mesages_in' is not declared"):
        counters["mesages_in"] += 1
    with pytest.raises(UndeclaredError):
        assert counters["mesages_in"]
    assert "mesages_in" not in counters
    tally = Tally()
    tally["whatever a plugin likes"] += 1
    assert tally["whatever a plugin likes"] == 1


def test_families_follow_the_conventions() -> None:
    for key, (metric, values) in COUNTED.items():
        assert re.fullmatch(r"[a-z][a-z_]*_total", metric.name), key
        assert len(metric.labels) == len(values), key
        assert metric.kind == "counter"
        assert re.fullmatch("[A-Z].*[^.]", metric.help), key
    series = [(metric.name, values) for metric, values in COUNTED.values()]
    assert len(set(series)) == len(series)


def test_nothing_is_declared_twice() -> None:
    one = counter("things", "things", "Things")
    with pytest.raises(ValueError, match="things: declared twice"):
        united(one, one)
    with pytest.raises(ValueError, match="others: declared twice"):
        united(one, counters("things", "things", "Other things", ("kind",), {"others": "other"}))

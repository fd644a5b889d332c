"""``ildm content explain``: whether and why a message matches an expression."""

from __future__ import annotations

import json
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ildm_algorithms.octopia.command import CommandError, app
from ildm_algorithms.octopia.content.content import ContentError

CONFIG = """
algorithm:
  name: octopia
  routing: spr
  root: content
  expressions: {hot: price>80}
  attributes: {levels: {"stock/+": ["", market]}}
"""


@pytest.fixture
def payload(tmp_path: Path) -> Path:
    file = tmp_path / "payload.json"
    file.write_text('{"price": 79, "sym": "IBM", "odd\\u001b": true}')
    return file


def explain(*words: str | Path, given: str | None = None) -> Result:
    return CliRunner().invoke(app, [*map(str, words)], input=given)


def test_each_predicate_is_shown_with_the_value_it_was_tried_on(payload: Path) -> None:
    done = explain("price>80&sym=IBM&!x", "--message", payload)
    assert done.exit_code == 0
    assert done.stdout == (
        "expression  price>80&sym=IBM&!x\n"
        "attributes  price 79, sym 'IBM', 'odd\\x1b' true\n"
        "\n"
        "  ✕  price > 80      it is 79\n"
        "  ✓  sym = 'IBM'     it is 'IBM'\n"
        "  ✓  x is not there  not there\n"
        "\n"
        "The message does not match.\n"
    )


def test_a_message_that_matches(payload: Path) -> None:
    assert explain("price<80", "--message", payload).stdout.endswith("\nThe message matches.\n")
    done = explain("filter/price<80/stock/#", "--message", payload, "--topic", "stock/nyse")
    assert "topics      stock/#" in done.stdout
    assert "✓  topic stock/nyse" in done.stdout
    assert done.stdout.endswith("\nThe message matches.\n")
    done = explain("filter/price<80/stock/#", "--message", payload, "--topic", "other")
    assert "✕  topic other" in done.stdout
    assert done.stdout.endswith("\nThe message does not match.\n")


def test_standard_input_and_user_properties() -> None:
    done = explain("a=1&b=2", "--message", "-", "--property", "b=2", given='{"a": 1, "b": 7}')
    assert "attributes  b 2, a 1" in done.stdout
    assert "The message matches." in done.stdout


def test_without_a_message_it_says_what_is_asked_for() -> None:
    assert explain("b^=x&?a").stdout == "expression  !!a&b^=x\n\n  a is there\n  b ^= 'x'\n"
    assert "No message matches it: what it says of a contradicts itself." in explain("a>5&a<3").stdout


def test_json(payload: Path) -> None:
    said = json.loads(explain("price>80&sym=IBM", "--message", payload, "--json").stdout)
    assert said == {
        "expression": "price>80&sym=IBM",
        "topic_filter": None,
        "contradictions": [],
        "matches": False,
        "topic": None,
        "topic_matches": True,
        "predicates": [
            {"predicate": "price > 80", "holds": False, "value": 79.0},
            {"predicate": "sym = 'IBM'", "holds": True, "value": "IBM"},
        ],
        "attributes": {"price": 79.0, "sym": "IBM", "odd\x1b": True},
        "complete": True,
        "payload_problem": None,
    }


def test_names_and_sources_come_from_a_configuration(tmp_path: Path, payload: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text(CONFIG)
    words = ("content/hot&market=nyse/stock/+", "--config", config, "--topic", "stock/nyse")
    done = explain(*words, "--message", payload)
    assert "✕  price > 80       it is 79" in done.stdout
    assert "✓  market = 'nyse'  it is 'nyse'" in done.stdout
    config.write_text("algorithm: sf")
    assert "a = 1" in explain("a=1", "--config", config).stdout


def test_what_lies_beyond_a_bound_is_said(tmp_path: Path, payload: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text("algorithm: {name: octopia, attributes: {most: 1}}")
    assert "and more, beyond a bound" in explain("a=1", "--config", config, "--message", payload).stdout


@pytest.mark.parametrize(
    ("payload", "part"),
    [
        ("{'price': 81}", "none of the payload: it is not JSON: Expecting property name"),
        ("[81]", "none of the payload: it is JSON, but not an object"),
    ],
)
def test_a_payload_without_attributes_is_explained(tmp_path: Path, payload: str, part: str) -> None:
    file = tmp_path / "payload"
    file.write_text(payload)
    assert part in explain("price>80", "--message", file).stdout
    assert "payload" not in explain("price>80", "--property", "price=81").stdout


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("price>",), "a value is missing; an empty text is written '' (at character 7)"),
        (("hot",), "no expression has the name 'hot'"),
        (("filter/a=1",), "no topic filter follows"),
        (("a=1", "--property", "x"), "--property x: expected NAME=VALUE"),
        (("a=1", "--config", "missing.yaml"), "missing.yaml: cannot be read"),
    ],
)
def test_mistakes_are_named(words: tuple[str, ...], part: str) -> None:
    error = explain(*words).exception
    assert isinstance(error, ContentError | CommandError)
    assert part in str(error)


def test_a_wrong_configuration_is_named(tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text("algorithm: {name: octopia, root: $x}")
    error = explain("a=1", "--config", config).exception
    assert isinstance(error, CommandError)
    assert "algorithm.root: Value error, '$x' must not begin with $" in str(error)


def test_the_project_declares_it() -> None:
    declared = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    target = declared["project"]["entry-points"]["ildm.commands"]["content"]
    assert EntryPoint("content", target, "ildm.commands").load() is app

"""Attributes of messages: where they come from, and what is left out."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ildm.api import STAMP_PROPERTY
from ildm.mqtt import Property, Publish
from ildm_algorithms.octopia.content.attributes import AttributeConfig, AttributeReader
from ildm_algorithms.octopia.content.content import Value


def message(payload: bytes | str = b"", topic: str = "a/b", **properties: str) -> Publish:
    data = payload.encode() if isinstance(payload, str) else payload
    pairs = {Property.USER_PROPERTY: list(properties.items())} if properties else {}
    return Publish(topic=topic, payload=data, properties=pairs)


def read(sent: Publish, **options: Any) -> dict[str, Value]:
    return AttributeReader(AttributeConfig(**options), Counter[str]().update).read(sent)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ('{"price": 80.5, "sym": "IBM", "open": true}', {"price": 80.5, "sym": "IBM", "open": True}),
        (' \n{"n": 5}', {"n": 5.0}),
        ('{"a": {"b": 1, "c": {"d": "x"}}, "e": 2}', {"a.b": 1.0, "a.c.d": "x", "e": 2.0}),
        ('{"a": [1, 2], "b": null, "c": 1}', {"c": 1.0}),
        ('{"a": "80"}', {"a": "80"}),
        ('{"": 1, "b": 2}', {"b": 2.0}),
        ('{"a.b": 1, "a": {"b": 2}}', {"a.b": 1.0}),
        ('{"a": NaN, "b": Infinity, "c": -Infinity, "d": 1e999, "e": 1}', {"e": 1.0}),
        ('{"a": ' + "9" * 5000 + "}", {}),
        ("21.5", {}),
        ("", {}),
        ("[1]", {}),
        ('{"a": 1', {}),
        ("{'a': 1}", {}),
        (b'{"a": "\xff"}', {}),
        ('{"a": 1}'.encode("utf-16"), {}),
    ],
)
def test_payloads(payload: bytes | str, expected: dict[str, Value]) -> None:
    found = read(message(payload))
    assert found == expected
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in expected.items()
    }


def test_user_properties_are_numbers_where_they_look_so() -> None:
    found = read(message(price="80.5", sym="IBM", ok="true", code="007", far="1e999"))
    assert found == {"price": 80.5, "sym": "IBM", "ok": True, "code": "007", "far": "1e999"}
    twice = Publish(topic="a", properties={Property.USER_PROPERTY: [("a", "1"), ("a", "2"), ("", "3")]})
    assert read(twice) == {"a": 1.0}


def test_what_the_node_adds_is_no_attribute() -> None:
    stamped = Publish(topic="a", properties={Property.USER_PROPERTY: [(STAMP_PROPERTY, "1:n"), ("a", "1")]})
    assert read(stamped) == {"a": 1.0}


def test_levels_have_names() -> None:
    levels = {"site/+/+/temp": ["", "building", "room"], "site/#": ["kind", "place"]}
    assert read(message(topic="site/north/12/temp"), levels=levels) == {
        "building": "north",
        "room": 12.0,
        "kind": "site",
        "place": "north",
    }
    assert read(message(topic="site"), levels=levels) == {"kind": "site"}
    assert read(message(topic="other/north"), levels=levels) == {}


def test_of_one_name_the_topic_counts_before_properties_and_these_before_the_payload() -> None:
    sent = message('{"a": 3, "b": 3, "c": 3}', topic="one", a="2", b="2")
    assert read(sent, levels={"+": ["a"]}) == {"a": "one", "b": 2.0, "c": 3.0}
    assert read(sent, user_properties=False) == {"a": 3.0, "b": 3.0, "c": 3.0}
    assert read(sent, json=False) == {"a": 2.0, "b": 2.0}
    assert read(sent, json=False, user_properties=False) == {}


@pytest.mark.parametrize(
    ("sent", "options", "expected"),
    [
        (message('{"a": 1, "b": "' + "x" * 100 + '"}'), {"payload_bytes": 50}, {}),
        (message('{"a": 1, "b": 2, "c": 3}'), {"most": 2}, {"a": 1.0, "b": 2.0}),
        (message('{"c": 3}', a="1", b="2"), {"most": 2}, {"a": 1.0, "b": 2.0}),
        (message(a="1", b="2", c="3"), {"most": 2}, {"a": 1.0, "b": 2.0}),
        (message(topic="x/y/z"), {"most": 2, "levels": {"#": ["a", "b", "c"]}}, {"a": "x", "b": "y"}),
        (message('{"a": {"b": {"c": 1}, "d": 2}, "e": 3}'), {"depth": 2}, {"a.d": 2.0, "e": 3.0}),
        (message('{"a":' * 20_000), {"payload_bytes": 1_000_000}, {}),
    ],
)
def test_what_goes_beyond_a_bound_is_left_out_and_counted(
    sent: Publish, options: dict[str, Any], expected: dict[str, Value]
) -> None:
    counted: list[str] = []
    assert AttributeReader(AttributeConfig(**options), counted.append).read(sent) == expected
    assert counted == ["attributes_left_out"]


@pytest.mark.parametrize(
    ("levels", "part"),
    [
        ({"a/#/b": ["x"]}, "no topic filter"),
        ({"a/+": ["x", "y", "z"]}, "fewer levels than the 3 names"),
        ({"a/+": []}, "at least 1"),
    ],
)
def test_wrong_levels_are_refused(levels: dict[str, list[str]], part: str) -> None:
    with pytest.raises(ValidationError, match=part):
        AttributeConfig(levels=levels)


scalars = st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text())
documents = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(st.one_of(st.binary(), st.text().map(str.encode), documents.map(lambda d: json.dumps(d).encode())))
def test_any_payload_gives_attributes(payload: bytes) -> None:
    for name, value in read(message(payload)).items():
        assert name
        assert isinstance(value, bool | str) or (isinstance(value, float) and abs(value) < float("inf"))

"""The algebra of the rules of a link: names, filters, prefixes and their inverse."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ildm.config import TopicRule
from ildm.core.frames import id_offset, publish_run, renamed
from ildm.core.link.translation import Translation
from ildm.core.transfer.rules import LinkRules, flaw
from ildm.mqtt import Publish, Version, decode, encode_varint, topic_matches
from tests.support.examples import examples

LEVELS = st.sampled_from(["a", "b", "x", ""])
NAMES = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
PREFIXES = st.sampled_from(["", "a/", "a/b/", "x/", "x/a/", "/"])


@st.composite
def filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(st.sampled_from(["a", "b", "x", "", "+"]), max_size=3))
    if draw(st.booleans()) or not levels:
        levels.append("#")
    return "/".join(levels) or "+"


@st.composite
def documents(draw: st.DrawFn, directions: tuple[str, ...] = ("in", "out", "both")) -> dict[str, Any]:
    kind = draw(st.sampled_from(["allow", "allow", "deny"]))
    found: dict[str, Any] = {
        kind: draw(st.lists(filters(), min_size=1, max_size=2)),
        "direction": draw(st.sampled_from(directions)),
        "local": draw(PREFIXES),
        "remote": draw(PREFIXES),
    }
    return found | ({"qos": draw(st.integers(0, 2))} if kind == "allow" else {})


def rules(*documents: dict[str, Any]) -> list[TopicRule]:
    return [TopicRule.model_validate(document) for document in documents]


def compiled(*documents: dict[str, Any]) -> LinkRules:
    return LinkRules(rules(*documents))


def out(found: LinkRules, *topics: str) -> list[str | None]:
    ways = [found.outgoing.find(topic.encode()) for topic in topics]
    return [None if way is None else way.name for way in ways]


def into(found: LinkRules, *topics: str) -> list[str | None]:
    ways = [found.incoming.find(topic.encode()) for topic in topics]
    return [None if way is None else way.name for way in ways]


def test_the_first_rule_that_matches_decides_and_the_rest_is_denied() -> None:
    found = compiled({"allow": ["a/b"]}, {"deny": ["a/#", "+/secret"]}, {"allow": ["a/#", "x/#"]})
    assert out(found, "a/b", "a/c", "a", "x/secret", "x/y", "y") == ["a/b", None, None, None, "x/y", None]


def test_direction_and_qos() -> None:
    found = compiled({"allow": ["t"], "direction": "out", "qos": 1}, {"allow": ["u"], "direction": "in"})
    assert (out(found, "t", "u"), into(found, "t", "u")) == (["t", None], [None, "u"])
    way = found.outgoing.find(b"t")
    assert way is not None
    assert way.qos == 1
    assert found.received("#") == {"t": 1}
    assert found.interest("#") == {"u": 2}


def test_a_prefix_is_exchanged() -> None:
    found = compiled({"allow": ["+/temp", "state/#"], "local": "plant1/", "remote": "hq/plant1/"})
    assert out(found, "plant1/a/temp", "plant1/state", "plant1/other", "a/temp") == [
        "hq/plant1/a/temp",
        "hq/plant1/state",
        None,
        None,
    ]
    assert into(found, "hq/plant1/a/temp", "plant1/a/temp", "hq/plant1") == ["plant1/a/temp", None, None]
    assert found.interest("plant1/#") == {"hq/plant1/+/temp": 2, "hq/plant1/state/#": 2}
    assert found.interest("+/a/temp") == {"hq/plant1/a/temp": 2}
    assert found.received("hq/#") == {"plant1/+/temp": 2, "plant1/state/#": 2}
    assert found.received("other/#") == {}
    assert found.answer_wire("plant1/a/temp") == "hq/plant1/a/temp"
    assert found.answer_local("hq/plant1/a/temp") == "plant1/a/temp"


def test_no_name_beginning_with_dollar_is_made() -> None:
    found = compiled({"allow": ["#"], "local": "", "remote": "hq/"})
    assert into(found, "hq/$SYS/x", "hq/$share/g/x", "hq/x", "hq/") == [None, None, "x", None]
    assert out(found, "$SYS/x") == [None]
    assert found.received("hq/$SYS/#") == {}
    assert found.received("hq/+/x") == {"+/x": 2}


def test_what_is_denied_as_a_whole_is_not_asked_for() -> None:
    found = compiled({"deny": ["secret/#"]}, {"allow": ["#"]})
    assert found.interest("secret/x") == {}
    assert found.interest("secret/#") == {}
    assert found.interest("+/x") == {"+/x": 2}
    assert into(found, "secret/x", "y/x") == [None, "y/x"]


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        ([{"allow": ["#"], "local": "a/"}, {"allow": ["#"], "local": "b/"}], "both become"),
        ([{"allow": ["#"], "local": "a/", "remote": "b/"}, {"allow": ["b/#"]}], "both become"),
        ([{"deny": ["x"]}], "no rule allows anything"),
        ([{"allow": ["#"], "local": "a/"}, {"deny": ["#"]}, {"allow": ["#"], "local": "b/"}], None),
        ([{"deny": ["b/#"]}, {"allow": ["#"], "local": "a/", "remote": "b/", "direction": "out"}], None),
        ([{"allow": ["x/#"], "qos": 2}, {"allow": ["#"], "qos": 0}], None),
        (
            [
                {"allow": ["#"], "local": "a/b/", "remote": "x/b/"},
                {"allow": ["#"], "local": "a/", "remote": "x/"},
            ],
            None,
        ),
        ([], None),
    ],
)
def test_rules_that_would_merge_topics_are_refused(documents: list[dict[str, Any]], said: str | None) -> None:
    found = flaw(rules(*documents))
    assert (found is None) if said is None else (found is not None and said in found)


@examples(100)
@given(st.lists(documents(), min_size=1, max_size=4), filters(), NAMES)
def test_all_that_is_wanted_is_asked_for(given_rules: list[dict[str, Any]], wanted: str, name: str) -> None:
    found = compiled(*given_rules)
    for side, ask in ((found.incoming, found.interest), (found.outgoing, found.received)):
        way = side.find(name.encode())
        asked = ask(wanted)
        if way is not None and topic_matches(wanted, way.name):
            matching = [qos for topic_filter, qos in asked.items() if topic_matches(topic_filter, name)]
            assert matching
            assert max(matching) >= way.qos


@examples(100)
@given(documents(), filters(), NAMES)
def test_of_one_rule_nothing_else_is_asked_for(document: dict[str, Any], wanted: str, name: str) -> None:
    found = compiled(document)
    for side, ask in ((found.incoming, found.interest), (found.outgoing, found.received)):
        way = side.find(name.encode())
        if way is not None and any(topic_matches(asked, name) for asked in ask(wanted)):
            assert topic_matches(wanted, way.name)


@examples(100)
@given(st.lists(documents(), min_size=1, max_size=4), NAMES, NAMES)
def test_accepted_rules_give_no_two_topics_one_name(
    given_rules: list[dict[str, Any]], one: str, other: str
) -> None:
    assume(one != other and flaw(rules(*given_rules)) is None)
    found = compiled(*given_rules)
    for side in (found.incoming, found.outgoing):
        ways = [side.find(name.encode()) for name in (one, other)]
        assert None in ways or len({way.name for way in ways if way is not None}) == 2


@examples(100)
@given(documents(("both",)), NAMES)
def test_one_rule_for_both_directions_is_its_own_inverse(document: dict[str, Any], name: str) -> None:
    found = compiled(document)
    (wire,) = out(found, name)
    if wire is not None:
        assert into(found, wire) == [name]
        assert found.wire(name) == wire
        assert found.answer_local(wire) == name


@examples(100)
@given(st.lists(documents(), min_size=1, max_size=4), NAMES)
def test_the_first_match_by_definition(given_rules: list[dict[str, Any]], name: str) -> None:
    expected = None
    for rule in rules(*given_rules):
        below = name.startswith(rule.local) and name != rule.local
        if (
            rule.direction != "in"
            and below
            and any(topic_matches(rule.local + f, name) for f in rule.filters)
        ):
            expected = rule.remote + name[len(rule.local) :] if rule.allows else None
            break
    assert out(compiled(*given_rules), name) == [expected]


@examples(100)
@given(
    st.lists(
        st.tuples(st.sampled_from(["#", "a/#", "a/b", "+/b", "x/#", "y"]), st.sampled_from([None, 0, 1, 2]))
    ),
    st.lists(documents(), min_size=1, max_size=3),
)
def test_a_translation_is_what_its_filters_become(
    steps: list[tuple[str, int | None]], given_rules: list[dict[str, Any]]
) -> None:
    found = compiled(*given_rules)
    translation = Translation(found.interest)
    told: dict[str, int] = {}
    wanted: dict[str, int] = {}
    for topic_filter, qos in steps:
        if qos is None:
            wanted.pop(topic_filter, None)
            translation.remove(topic_filter)
        else:
            wanted[topic_filter] = qos
            translation.put(topic_filter, qos)
        for changed, now in translation.take_changes().items():
            assert told.get(changed) != now
            if now is None:
                del told[changed]
            else:
                told[changed] = now
        expected: dict[str, int] = {}
        for each, qos_of in wanted.items():
            for made, most in found.interest(each).items():
                expected[made] = max(expected.get(made, 0), min(qos_of, most))
        assert translation.made == expected == told
        assert translation.given == wanted


@examples(100)
@given(st.integers(1, 6), st.integers(0, 200), st.sampled_from([1, 60, 120, 20000]), st.sampled_from([0, 1]))
def test_runs_are_renamed(count: int, payload: int, length: int, qos: int) -> None:
    packets = [
        Publish(topic="a/b", payload=bytes([n]) * payload, qos=qos, packet_id=n + 7 if qos else None)
        for n in range(count)
    ]
    frames = b"".join(packet.encode(Version.V5) for packet in packets)
    size = len(frames) // count
    topic = "n" * length
    changed, new_size = renamed(frames, size, topic.encode())
    assert len(changed) == count * new_size
    for n, packet in enumerate(packets):
        packet.topic = topic
        assert decode(changed[n * new_size : (n + 1) * new_size], Version.V5) == packet
    if qos:
        assert changed[id_offset(changed) :: new_size] == frames[id_offset(frames) :: size]
    header_end = 1 + len(encode_varint(new_size - 5)) if length > 1000 else 0
    assert not header_end or publish_run(changed, 0, header_end, new_size, True) is not None

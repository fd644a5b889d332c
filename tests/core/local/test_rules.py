"""The node's own rules for what may cross, whatever the broker says."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from ildm.config import Config, ConfigError, PublishRule, parse_config
from ildm.core.local.rules import CACHED_TOPICS, ClientRules, PublishRules
from ildm.mqtt import Connect, Disconnect, Property, Publish, Version, Will
from ildm.testing.virtual.world import World
from tests.support.site import Site, row


def rules(*documents: dict[str, Any]) -> PublishRules:
    return PublishRules([PublishRule.model_validate(document) for document in documents])


def verdicts(found: ClientRules | None, *topics: str) -> list[bool]:
    return [found is None or found.allow(topic) for topic in topics]


def test_the_first_rule_that_matches_decides_and_the_rest_may_cross() -> None:
    found = rules({"allow": ["a/b"]}, {"deny": ["a/#", "+/secret"]}).of(None, "c")
    assert verdicts(found, "a/b", "a/c", "a", "x/secret", "x/y") == [True, False, False, False, True]


def test_a_final_rule_may_deny_everything() -> None:
    found = rules({"allow": ["a/#"]}, {"deny": ["#"]}).of(None, "c")
    assert verdicts(found, "a/b", "b", "") == [True, False, False]


def test_rules_are_for_users_and_clients_by_name_or_pattern() -> None:
    all_rules = rules(
        {"allow": ["#"], "user": "admin"},
        {"deny": ["t"], "client_id": "sensor-*"},
        {"deny": ["u"], "user": ""},
    )
    assert all_rules.of("admin", "sensor-1") is None
    assert verdicts(all_rules.of("x", "sensor-1"), "t", "u") == [False, True]
    assert verdicts(all_rules.of(None, "sensor-1"), "t", "u") == [False, False]
    assert verdicts(all_rules.of(None, "other"), "t", "u") == [True, False]
    assert all_rules.of("x", "other") is None
    assert rules().of("x", "c") is None


def test_names_stand_in_for_marks() -> None:
    all_rules = rules({"allow": ["users/%u/#", "clients/%c", "both/%u-%c"]}, {"deny": ["#"]})
    found = all_rules.of("ann", "c1")
    topics = "users/ann/x", "users/bob/x", "clients/c1", "both/ann-c1", "users/%u"
    assert verdicts(found, *topics) == [True, False, True, True, False]
    assert verdicts(all_rules.of("%c", "c1"), "users/%c", "users/c1") == [True, False]
    anonymous = all_rules.of(None, "c1")
    assert verdicts(anonymous, "users//x", "clients/c1", "both/-c1") == [False, True, False]


@pytest.mark.parametrize("name", ["+", "#", "a/b", "a+"])
def test_a_name_that_means_something_in_a_filter_opens_nothing(name: str) -> None:
    all_rules = rules({"allow": ["open"]}, {"allow": ["users/%u/#"]}, {"deny": ["#"]})
    assert verdicts(all_rules.of(name, "c"), "open", "users/a", "users/a/b") == [False] * 3
    assert verdicts(all_rules.of("ann", name), "open", "users/ann") == [True] * 2


def test_verdicts_are_remembered_for_some_topics() -> None:
    found = rules({"deny": ["t/#"]}).of(None, "c")
    assert found is not None
    for number in range(3 * CACHED_TOPICS):
        assert not found.allow_bytes(b"t/%d" % number)
        assert found.allow_bytes(b"u")
    assert len(found._verdicts) <= CACHED_TOPICS


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"allow": ["a/#/b"]}, "publish.1.allow"),
        ({"deny": []}, "publish.1.deny"),
        ({"allow": ["a"], "deny": ["b"]}, "publish.1: give either allow or deny"),
        ({"user": "x"}, "publish.1: give either allow or deny"),
        ({"deny": ["$share/g/t"]}, "publish.1.deny"),
        ({"deny": ["t"], "topic": "x"}, "publish.1.topic: unknown key"),
    ],
)
def test_a_wrong_rule_is_named(document: dict[str, Any], expected: str, tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match=expected):
        parse_config({"publish": [{"allow": ["ok"]}, document]}, "file", tmp_path)
    with pytest.raises(ValidationError):
        Config.model_validate({"publish": [document]})


# at work ----------------------------------------------------------------------------------------

DENY = [{"allow": ["open/#"]}, {"deny": ["#"], "user": "guest"}]


def guest(version: Version = Version.V5, will: str | None = None) -> Connect:
    return Connect(
        client_id="c",
        version=version,
        username="guest",
        will=None if will is None else Will(topic=will, payload=b"gone", retain=True),
    )


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize("algorithm", ["pf", "sf"])
def test_what_the_rules_deny_is_relayed_and_does_not_cross(
    world: World, version: Version, algorithm: str
) -> None:
    a, b = row(world, "ab", algorithm, publish=DENY)
    b.subscriber("#", qos=2)
    world.run(1)
    client = a.client(connect=guest(version))
    for topic in ("open/1", "closed/1"):
        for qos in (0, 1, 2):
            for retain in (False, True):
                number = qos * 2 + retain + 1
                client.send(
                    Publish(
                        topic=topic,
                        payload=b"%d" % number,
                        qos=qos,
                        retain=retain,
                        packet_id=10 * number + len(topic) if qos else None,
                    )
                )
    world.run(1)
    assert sorted(p.payload for i, p in a.broker.published if p.topic == "closed/1") == [
        b"%d" % number for number in range(1, 7)
    ]
    assert set(b.broker.topics()) == {"open/1"}
    assert len(b.broker.topics()) == 6
    assert set(a.node.retained.values) == set(b.node.retained.values) == {"open/1"}
    assert a.node.counters["publish_denied"] == 6
    a.client("other").send(Publish(topic="closed/1", payload=b"x"))
    world.run(1)
    assert "closed/1" in b.broker.topics()


def test_the_rules_hold_for_wills_and_aliases(world: World) -> None:
    a, b = row(world, "ab", "pf", publish=DENY)
    client = a.client(connect=guest(will="closed"))
    client.send(Publish(topic="closed", payload=b"1", properties={Property.TOPIC_ALIAS: 1}))
    client.send(Publish(topic="", payload=b"2", properties={Property.TOPIC_ALIAS: 1}))
    world.run(1)
    client.transport.abort()
    world.run(1)
    assert b.broker.topics() == []
    assert a.node.counters["publish_denied"] == 3
    client = a.client(connect=guest(will="open/will"))
    client.send(Disconnect(reason_code=4))
    world.run(1)
    assert b.broker.topics() == ["open/will"]


def test_without_an_algorithm_rules_are_without_effect(world: World) -> None:
    site = Site(world, "a", None, publish=DENY)
    client = site.client(connect=guest())
    client.send(Publish(topic="closed", payload=b"1"))
    world.run(1)
    assert [p.topic for _, p in site.broker.published] == ["closed"]
    assert site.node.counters["publish_denied"] == 0

"""What is said of the difference between two configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ildm.config import parse_config
from ildm.log import MASK
from ildm.net.reload.difference import LONGEST, differences
from ildm.net.reload.live import LIVE, is_live

TLS = {"cert": "/a.crt", "key": "/a.key"}
SECURE = {"url": "mqtts://127.0.0.1:8883", "name": "public", "tls": TLS}


def lines(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    one, other = (parse_config(each, "test", Path("/")) for each in (before, after))
    return [str(change) for change in differences(one, other)]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({}, {}, []),
        ({}, {"limits": {"clients": 7}}, ["limits.clients: 100000 -> 7"]),
        ({"limits": {"will_grace": 1}}, {"limits": {"will_grace": 2.5}}, ["limits.will_grace: 1 -> 2.5"]),
        ({"node_id": "a"}, {}, ["node_id: a -> null"]),
        (
            {"listen": "127.0.0.1:1"},
            {"listen": "127.0.0.1:2"},
            ["listen: 127.0.0.1:1 -> 127.0.0.1:2"],
        ),
        (
            {},
            {"listeners": [SECURE]},
            ["- listen: 127.0.0.1:1883", "+ listeners[public]: mqtts://127.0.0.1:8883"],
        ),
        (
            {"listeners": [SECURE]},
            {"listeners": [{**SECURE, "tls": {**TLS, "cert": "/b.crt"}}]},
            ["listeners[public].tls.cert: /a.crt -> /b.crt"],
        ),
        (
            {"listeners": [SECURE, {"url": "mqtt://127.0.0.1:2"}]},
            {"listeners": [{"url": "mqtt://127.0.0.1:2"}, SECURE]},
            [],
        ),
        (
            {"listeners": [{**SECURE, "tls": {**TLS, "sni": {"x": TLS}}}]},
            {"listeners": [{**SECURE, "tls": {**TLS, "sni": {"y": TLS}}}]},
            [
                "- listeners[public].tls.sni[x]: {cert: /a.crt, key: /a.key}",
                "+ listeners[public].tls.sni[y]: {cert: /a.crt, key: /a.key}",
            ],
        ),
        (
            {"limits": {"exempt": ["10.0.0.0/8", "::1"]}},
            {"limits": {"exempt": ["::1", "192.0.2.1"]}},
            ["- limits.exempt: 10.0.0.0/8", "+ limits.exempt: 192.0.2.1/32"],
        ),
        (
            {"publish": [{"deny": ["a/#"]}, {"deny": ["b/#"]}]},
            {"publish": [{"deny": ["b/#"], "user": "x"}, {"deny": ["b/#"]}]},
            ["- publish[0]: {deny: [a/#]}", "+ publish[0]: {deny: [b/#], user: x}"],
        ),
        (
            {"algorithm": "sf", "link": {"neighbors": ["b:1885"]}},
            {"algorithm": "sf", "link": {"neighbors": ["c:1885"]}},
            ["- link.neighbors: b:1885", "+ link.neighbors: c:1885"],
        ),
        (
            {"algorithm": "sf", "link": {"neighbors": ["b:1885"]}},
            {"algorithm": "sf", "link": {"neighbors": [{"url": "b:1885", "id": "b"}]}},
            ["- link.neighbors: b:1885", "+ link.neighbors: {id: b, url: b:1885}"],
        ),
        ({}, {"algorithm": "sf"}, ["algorithm: null -> sf"]),
        ({"filters": ["a", "b"]}, {"filters": ["b"]}, ["filters: a, b -> b"]),
        (
            {"filters": [{"name": "a", "size": 1, "token": "x"}]},
            {"filters": [{"name": "a", "size": 1, "token": "y", "more": {}}]},
            [f"filters[a].options.token: {MASK} -> {MASK}", f"+ filters[a].options.more: {MASK}"],
        ),
        (
            {"broker": {"password": "first"}},
            {"broker": {"password": "second"}},
            [f"broker.password: {MASK} -> {MASK}"],
        ),
        (
            {"link": {"secret": "0123456789abcdef"}},
            {"link": {"secret_file": "/s"}},
            [f"link.secret: {MASK} -> null", "link.secret_file: null -> /s"],
        ),
    ],
)
def test_each_kind_of_key(before: dict[str, Any], after: dict[str, Any], said: list[str]) -> None:
    assert lines(before, after) == said


def test_long_values_are_cut() -> None:
    (line,) = lines({"broker": {"username": "x" * 10_000}}, {})
    assert line == f"broker.username: {'x' * (LONGEST - 3)}... -> null"


def test_whatever_is_said_to_be_live_is_a_key() -> None:
    """With what is below it; what nobody has thought of needs a restart."""
    dumped = parse_config({"algorithm": "sf"}, "test", Path("/")).model_dump()
    dumped["filters"] = {"options": {}}
    for path in LIVE:
        within: Any = dumped
        for part in path.split("."):
            assert part in within, path
            within = within[part]
    assert is_live("listeners.tls.cert")
    assert not is_live("limits")
    assert not is_live("node_id")
    assert not is_live("algorithm")
    assert not is_live("limits.that_comes_to_be")

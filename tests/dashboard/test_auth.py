"""Sessions, attempts and names: without a server."""

from __future__ import annotations

import pytest

from ildm.net.dashboard.auth import ADDRESSES, ATTEMPTS, IDLE, SESSIONS, WINDOW, Attempts, Names, Sessions
from ildm.net.dashboard.requests import origin_is


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def test_a_session_ends_when_nobody_comes() -> None:
    clock = Clock()
    sessions = Sessions("t" * 40, clock)
    cookie = sessions.begin()
    clock.time += IDLE - 1
    assert sessions.knows(cookie)
    clock.time += IDLE - 1
    assert sessions.knows(cookie)
    clock.time += IDLE + 1
    assert not sessions.knows(cookie)
    assert len(sessions) == 0


def test_sessions_are_bounded_and_those_in_use_stay() -> None:
    sessions = Sessions("t" * 40, Clock())
    used, first = sessions.begin(), sessions.begin()
    for _ in range(SESSIONS):
        assert sessions.knows(used)
        sessions.begin()
    assert len(sessions) == SESSIONS
    assert sessions.knows(used)
    assert not sessions.knows(first)


def test_only_the_token_is_the_token() -> None:
    sessions = Sessions("t" * 40, Clock())
    assert sessions.is_token("t" * 40)
    for other in ("", "t" * 39, "t" * 41, "ü", "\udcff"):
        assert not sessions.is_token(other)
    assert not any(sessions.knows(cookie) for cookie in (None, "", "x", "y" * 10_000))


def test_attempts_of_one_address_are_limited() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    for _ in range(ATTEMPTS):
        assert attempts.wait("a") == 0
        attempts.failed("a")
        clock.time += 1
    assert attempts.wait("a") == WINDOW - ATTEMPTS
    assert attempts.wait("b") == 0
    clock.time += WINDOW - ATTEMPTS
    assert attempts.wait("a") == 0


def test_one_network_of_ipv6_counts_as_one_address() -> None:
    attempts = Attempts(Clock())
    for number in range(ATTEMPTS):
        attempts.failed(f"2001:db8::{number + 1:x}")
    assert attempts.wait("2001:db8::ffff") == WINDOW
    assert attempts.wait("2001:db8:0:1::1") == 0
    for number in range(ATTEMPTS):
        attempts.failed(f"::ffff:192.0.2.{number}")
    assert attempts.wait("::ffff:192.0.2.200") == 0


def test_addresses_that_are_remembered_are_bounded() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    for number in range(ADDRESSES):
        attempts.failed(str(number))
    assert attempts.wait("one more") == WINDOW
    assert attempts.wait("0") == 0
    clock.time += WINDOW + 1
    assert attempts.wait("one more") == 0


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:80",
        "127.0.0.1:9090",
        "192.0.2.7",
        "[::1]:9090",
        "[2001:db8::1]",
        "node.example:1",
    ],
)
def test_names_it_has(host: str) -> None:
    assert Names(["Node.example", "0.0.0.0"]).allow(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "node.example.evil",
        "localhost.evil:80",
        "localhost:",
        "[::1",
        "127.0.0.1:a",
        "::1",
        "[::1]x",
    ],
)
def test_names_it_has_not(host: str) -> None:
    assert not Names(["node.example"]).allow(host)


@pytest.mark.parametrize(
    ("origin", "same"),
    [
        ("http://a:1", True),
        ("https://A:1", True),
        ("http://a:2", False),
        ("http://b:1", False),
        ("http://b@a:1", False),
        ("null", False),
        ("file://a:1", False),
        (None, False),
        ("http://[", False),
    ],
)
def test_origins(origin: str | None, same: bool) -> None:
    assert origin_is(origin, "a:1") is same

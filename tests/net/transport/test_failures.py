"""Addresses from which clients are refused for who they are, too often."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import pytest

from ildm.config import LimitsConfig
from ildm.mqtt import Connect, Version
from ildm.net.transport import failures as module
from ildm.net.transport.failures import AuthFailures
from ildm.net.transport.proxy import header_v2
from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.ports import free_port
from tests.net.transport.conftest import running, until
from tests.net.transport.pki import Pki
from tests.support.programs import missing, need


class Failures(AuthFailures):
    """With a clock of its own."""

    def __init__(self, **limits: object) -> None:
        self.time = 0.0
        super().__init__(LimitsConfig.model_validate(limits), lambda: self.time)

    def counted(self, key: str, times: int) -> int:
        """How many of so many failures have blocked it."""
        return sum(self.count(key) for _ in range(times))


def test_so_many_within_the_time_block_for_as_long() -> None:
    failures = Failures(auth_failures=3, auth_block=60)
    assert failures.counted("a", 2) == 0
    assert not failures.blocks("a")
    failures.time = 59
    assert failures.counted("a", 1) == 1
    assert failures.blocks("a")
    assert not failures.blocks("b")
    assert failures.counted("a", 9) == 0, "it is blocked once, and not for longer by what goes on"
    failures.time = 118
    assert list(failures.blocked()) == [("a", 1.0)]
    failures.time = 119
    assert not failures.blocks("a")
    assert list(failures.blocked()) == []


def test_failures_of_long_ago_do_not_count() -> None:
    failures = Failures(auth_failures=3, auth_block=60)
    assert failures.counted("a", 2) == 0
    failures.time = 60
    assert failures.counted("a", 2) == 0
    failures.time = 61
    assert failures.counted("a", 1) == 1


def test_none_are_counted_where_any_number_is_allowed() -> None:
    failures = Failures(auth_failures=0)
    assert failures.counted("a", 1000) == 0
    assert not failures.blocks("a")
    assert not failures._failures


def test_a_block_that_is_lifted_leaves_nothing_behind() -> None:
    failures = Failures(auth_failures=2)
    assert failures.counted("a", 2) == 1
    assert failures.lift("a")
    assert not failures.lift("a")
    assert failures.counted("a", 1) == 0


def test_the_table_is_bounded_and_forgets_who_began_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 10)
    failures = Failures(auth_failures=2, auth_block=60)
    assert failures.counted("first", 1) == 0
    assert failures.counted("second", 1) == 0
    failures.time = 1
    assert failures.counted("first", 1) == 1, "blocked later than the second began"
    for number in range(9):
        assert failures.counted(f"{number}", 1) == 0
    assert len(failures._failures) == 10
    assert failures.blocks("first")
    assert "second" not in failures._failures
    failures.time = 61
    assert not failures.blocks("first")
    assert not failures._failures, "the table empties itself"


# with a broker that has passwords ------------------------------------------------------------------

NUMBERS = count()


class Behind(NamedTuple):
    """A node behind a proxy that may say any address, by TCP and by TLS."""

    node: NodeProcess
    plain: int
    secured: int

    def counted(self, name: str) -> int:
        status = self.node.status()
        assert status is not None
        return int(status["counters"].get(name, 0))

    @property
    def refused(self) -> int:
        return self.counted("connections_refused_address_auth")


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory, pki: Pki) -> Iterator[Behind]:
    """Its broker knows the user ``anna``, and takes who names none. Each test has addresses of its own."""
    if reason := Mosquitto.available():
        missing(reason)
    tool = need("mosquitto_passwd")
    directory = tmp_path_factory.mktemp("behind")
    users = directory / "users"
    subprocess.run([tool, "-c", "-b", users, "anna", "right"], check=True, timeout=300)
    plain, secured = free_port(), free_port()
    proxy = {"trust": ["127.0.0.1"]}
    with running(Mosquitto(directory / "broker", extra=[f"password_file {users}"])) as broker:
        extra = {
            "listeners": [
                {"url": f"mqtt://127.0.0.1:{plain}", "proxy": proxy},
                {"url": f"mqtts://127.0.0.1:{secured}", "proxy": proxy, "tls": pki.server()},
            ],
            "limits": {"auth_failures": 4, "auth_block": 3600, "exempt": ["203.0.113.0/24"]},
        }
        with running(NodeProcess(directory / "node", broker.address, None, extra=extra)) as node:
            yield Behind(node, plain, secured)


def said(source: str) -> bytes:
    other = "2001:db8::ffff" if ":" in source else "198.51.100.1"
    return header_v2((source, 40_000), (other, 1883))


def answer(port: int, source: str, password: str, version: Version = Version.V311) -> int | None:
    """The code of the CONNACK; None if there is none."""
    connect = Connect(
        client_id=f"c{next(NUMBERS)}", username="anna", password=password.encode(), version=version
    )
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        try:
            client.sendall(said(source) + connect.encode(version))
            found = client.recv(4)
        except ConnectionError:
            return None
        return found[3] if found else None


@pytest.mark.parametrize(
    ("version", "code", "source"),
    [(Version.V311, 5, "192.0.2.1"), (Version.V5, 0x87, "192.0.2.2")],
)
def test_who_guesses_is_blocked_before_tls_and_others_are_served(
    behind: Behind, version: Version, code: int, source: str
) -> None:
    refused, failures = behind.refused, behind.counted("authentication_failures")
    assert [answer(behind.plain, source, "wrong", version) for _ in range(4)] == [code] * 4
    assert answer(behind.plain, source, "right", version) is None
    assert answer(behind.plain, "192.0.2.99", "right", version) == 0
    with socket.create_connection(("127.0.0.1", behind.secured), 30) as guessing:
        guessing.sendall(said(source))
        assert guessing.recv(1) == b"", "closed before TLS"
    assert behind.refused == refused + 2
    assert behind.counted("authentication_failures") == failures + 4
    assert behind.counted("tls_handshakes_failed") == 0


def test_what_came_before_is_not_tried_after(behind: Behind) -> None:
    refused = behind.refused
    with socket.create_connection(("127.0.0.1", behind.plain), 30) as early:
        early.sendall(said("192.0.2.7"))
        until(lambda: (behind.node.status() or {})["clients"] == 1)
        assert [answer(behind.plain, "192.0.2.7", "wrong") for _ in range(4)] == [5] * 4
        early.sendall(Connect(client_id="early", username="anna", password=b"right").encode())
        assert early.recv(4) == b""
    assert behind.refused == refused + 1


def test_a_network_of_ipv6_is_blocked_whole_and_shown_and_may_be_let_in_again(behind: Behind) -> None:
    assert [answer(behind.plain, f"2001:db8::{n}", "wrong") for n in range(1, 5)] == [5] * 4
    assert answer(behind.plain, "2001:db8::9", "right") is None
    assert answer(behind.plain, "2001:db8:0:1::9", "right") == 0
    (row,) = [row for row in behind.node.admin.bans().items if ":" in row["name"]]
    assert isinstance(row.pop("until"), float)
    assert row == {"kind": "address", "name": "2001:db8::/64", "why": "authentication"}
    behind.node.admin.lift_ban("address", "2001:db8::/64")
    assert answer(behind.plain, "2001:db8::9", "right") == 0
    assert not [row for row in behind.node.admin.bans().items if ":" in row["name"]]


def test_exempt_networks_are_not_blocked(behind: Behind) -> None:
    refused = behind.refused
    assert [answer(behind.plain, "203.0.113.1", "wrong") for _ in range(6)] == [5] * 6
    assert answer(behind.plain, "203.0.113.1", "right") == 0
    assert behind.refused == refused


def test_who_an_administrator_keeps_out_is_counted_too(behind: Behind) -> None:
    behind.node.admin.ban("user", "anna", None)
    try:
        assert [answer(behind.plain, "192.0.2.20", "right") for _ in range(5)] == [5] * 4 + [None]
    finally:
        behind.node.admin.lift_ban("user", "anna")
    assert answer(behind.plain, "192.0.2.21", "right") == 0

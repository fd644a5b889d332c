"""Every listener of a mosquitto.conf becomes one of the node, also those of files that it includes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ildm.config import parse_config
from ildm.importing.listeners import OPTIONS, SAME, TAKEN, WITHOUT
from ildm.importing.mosquitto import Imported, convert

BRIDGE = "connection c\naddress far.example.org\ntopic first/#\n"
ACCOUNT = "the broker wants names and passwords"


def converted(*lines: str, source: str = "m.conf") -> Imported:
    return convert("\n".join(["allow_anonymous true", *lines, BRIDGE]), source)


def listening(imported: Imported) -> tuple[Any, Any]:
    return imported.document.get("listen"), imported.document.get("listeners")


@pytest.mark.parametrize(
    ("lines", "listen", "listeners"),
    [
        ([], "127.0.0.1:1883", None),  # without any Mosquitto listens on loopback
        (["listener 1883"], "0.0.0.0:1883", None),
        (["listener 1883 ::"], "[::]:1883", None),
        (["port 1884", "bind_address 10.0.0.1"], "10.0.0.1:1884", None),
        (["listener 1883", "listener 1884 10.0.0.1"], "0.0.0.0:1883", [{"url": "mqtt://10.0.0.1:1884"}]),
        (["listener 9001", "protocol websockets"], None, [{"url": "ws://0.0.0.0:9001", "path": None}]),
        (
            ["listener 8883", "cafile ca", "certfile c", "keyfile k", "listener 1883 localhost"],
            "localhost:1883",
            [{"url": "mqtts://0.0.0.0:8883", "tls": {"cert": "c", "key": "k"}}],
        ),
        (
            ["certfile c", "keyfile k", "port 8883", "listener 9001", "protocol websockets", "port 8884"],
            None,
            [
                {"url": "mqtts://0.0.0.0:8884", "tls": {"cert": "c", "key": "k"}},
                {"url": "ws://0.0.0.0:9001", "path": None},
            ],
        ),
        (
            [
                *("listener 8883", "certfile c", "keyfile k", "cafile ca", "require_certificate true"),
                *("crlfile r", "ciphers ECDHE+AESGCM", "tls_version tlsv1.3"),
            ],
            None,
            [
                {
                    "url": "mqtts://0.0.0.0:8883",
                    "tls": {
                        "cert": "c",
                        "key": "k",
                        "verify": "require",
                        "ca": "ca",
                        "crl": "r",
                        "ciphers": "ECDHE+AESGCM",
                        "min_version": "1.3",
                    },
                }
            ],
        ),
        (
            ["listener 9001", "protocol websockets", "websockets_origin a", "websockets_origin https://b"],
            None,
            [{"url": "ws://0.0.0.0:9001", "path": None, "origins": ["a", "https://b"]}],
        ),
        (
            ["listener 9001", "protocol websockets", "certfile c", "keyfile k"],
            None,
            [{"url": "wss://0.0.0.0:9001", "tls": {"cert": "c", "key": "k"}, "path": None}],
        ),
    ],
)
def test_where_clients_connect_to(lines: list[str], listen: str | None, listeners: Any) -> None:
    imported = converted(*lines)
    assert imported.remarks == []
    assert listening(imported) == (listen, listeners)
    config = parse_config(imported.document, "out", Path())
    assert len(config.clients_at) == (listen is not None) + len(listeners or ())


@pytest.mark.parametrize(
    ("lines", "expected", "left_out"),
    [
        (["listener 0 /run/m.sock"], "for its owner alone", False),
        (["listener 8883", "psk_hint h"], "this listener is left out", True),
        (["listener 8883", "certfile c"], "this listener is left out", True),
        (["listener 70000"], "expected a port", True),
        (["listener 8883", "protocol http_api"], "is not spoken", True),
        (
            ["listener 1", "certfile c", "keyfile k", "capath d", "require_certificate true"],
            "one file",
            False,
        ),
        (["listener 1", "certfile c", "keyfile k", "tls_version tlsv1.1"], "TLS 1.2 is the oldest", False),
        (["listener 1", "mount_point site/"], "topics are as clients say", False),
        (["listener 1", "use_identity_as_username true"], "broker.proxy: v2", False),
        (["listener 1", "max_connections 10"], "limits.clients", False),
    ],
)
def test_what_a_listener_of_the_node_is_not(lines: list[str], expected: str, left_out: bool) -> None:
    imported = converted(*lines)
    assert any(expected in remark.text and remark.line for remark in imported.remarks)
    assert (listening(imported) == (None, None)) is left_out
    parse_config(imported.document, "out", Path())


@pytest.mark.parametrize(
    ("lines", "nowhere"),
    [
        (["listener 8883", "certfile c"], True),
        (["protocol http_api", "port 1883", "listener 70000"], True),
        (["listener 8883", "certfile c", "listener 1884"], False),
        (["listener 8883", "certfile c", "listener 0 /run/m.sock"], False),
        ([], False),
    ],
)
def test_without_any_listener_it_is_said_where_clients_connect_to(lines: list[str], nowhere: bool) -> None:
    imported = converted(*lines)
    said = (
        "every listener is left out: until listen or listeners says where, clients connect to 127.0.0.1:1883 "
    )
    assert any(remark.text.startswith(said) for remark in imported.remarks) is nowhere
    text = imported.text("m.conf")
    assert (said in text) is nowhere
    assert ("\n# listen: HOST:PORT  # for clients" in text) is nowhere
    parse_config(imported.document, "out", Path())


def test_every_option_is_taken_is_the_same_or_is_named() -> None:
    assert not TAKEN & WITHOUT.keys()
    assert {option for option, _ in SAME} <= OPTIONS
    for option in WITHOUT:
        assert f"{option} " in "".join(
            each.text for each in converted("listener 1883", f"{option} x").remarks
        )
    for option, value in SAME:
        assert converted("listener 1883", f"{option} {value}").remarks == []


APART = ["per_listener_settings true", "listener 1883 127.0.0.1", "allow_anonymous true", "listener 8883"]


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([*APART, "allow_anonymous false", "password_file /p"], [4, 6, 7]),
        ([*APART, "password_file /p"], [4, 6]),
        ([*APART, "allow_anonymous true"], []),
        (APART[:3], []),
        (APART[1:], []),  # then it is for all
        (["listener 1883", "accept_protocol_versions 4", "listener 1884", "maximum_qos 0"], [3, 5]),
        (["listener 1883", "maximum_qos 1", "listener 1884", "maximum_qos 1"], []),
        (["listener 1883", "max_topic_alias 0"], []),
    ],
)
def test_what_the_broker_judges_by_listener_is_named(lines: list[str], named: list[int]) -> None:
    found = [each for each in converted(*lines).remarks if "judges" in each.text]
    assert sorted(each.line for each in found) == named
    assert all(each.differs for each in found)


def test_the_broker_moves_past_all_of_them() -> None:
    document = converted("listener 1883", "listener 1884", "listener 1886 10.0.0.1").document
    assert document["broker"]["address"] == "127.0.0.1:1888"


def test_the_nodes_own_session_needs_an_account_where_the_broker_asks_for_one() -> None:
    assert any(ACCOUNT in each.text for each in convert(f"listener 1883\n{BRIDGE}", "m.conf").remarks)
    assert any(ACCOUNT in each.text for each in convert(f"allow_anonymous false\n{BRIDGE}", "m.conf").remarks)
    assert convert(f"listener 1883\n{BRIDGE}local_username u", "m.conf").remarks == []
    [acl] = converted("listener 1883", "acl_file /etc/mosquitto/acl").remarks
    assert (acl.line, "read and write what crosses" in acl.text) == (3, True)


def test_a_broker_that_let_everybody_of_its_machine_in_is_told_to_go_on() -> None:
    """Mosquitto does so as long as its file names no listener; with one it has to be said."""
    imported = convert(BRIDGE, "m.conf")
    assert imported.remarks == []
    assert "#   listener 1884 127.0.0.1\n#   allow_anonymous true\n" in imported.text("m.conf")


def test_files_that_it_includes_are_read_in_their_order(tmp_path: Path) -> None:
    for directory, name, text in (
        ("one.d", "b.conf", BRIDGE + "notifications true\n"),
        ("one.d", "B.conf", "listener 9001\nprotocol websockets\n"),
        ("one.d", "a.conf", "listener 1883\ninclude_dir two.d\n"),
        ("one.d", "c.txt", "listener 5\n"),
        ("two.d", "a.conf", "listener 7\n"),
    ):
        (tmp_path / directory).mkdir(exist_ok=True)
        (tmp_path / directory / name).write_text(text)
    text = f"allow_anonymous true\ninclude_dir {tmp_path / 'one.d'}\ninclude_dir away.d\n"
    imported = convert(text, str(tmp_path / "mosquitto.conf"))
    assert listening(imported) == ("0.0.0.0:1883", [{"url": "ws://0.0.0.0:9001", "path": None}])
    bridge = str(tmp_path / "one.d/b.conf")
    nested = str(tmp_path / "one.d/a.conf")
    assert [(each.file, each.line) for each in imported.remarks] == [("", 3), (nested, 2), (bridge, 4)]
    assert imported.differs
    printed = imported.text("m.conf")
    assert "line 3: include_dir away.d: there is no such directory\n" in printed
    assert f"#   {bridge}:3: topic first/#\n" in printed

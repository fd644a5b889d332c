"""What is said about a configuration before a node starts with it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ildm.config import Config, parse_config
from ildm.preflight import Finding, examine
from ildm.state.store import StateStore
from tests.support.ports import free_port


def found(document: dict[str, object], tmp_path: Path, *, thorough: bool = True) -> list[Finding]:
    return examine(config_of(document, tmp_path), thorough=thorough)


def config_of(document: dict[str, object], tmp_path: Path) -> Config:
    # what a test does not give is free, so that only its own findings are found
    sound = {
        "listen": f"127.0.0.1:{free_port()}",
        "broker": {"address": "127.0.0.1:1"},
        "link": {"listen": None},
    }
    return parse_config({**sound, **document}, "test", tmp_path)


def own_address() -> str | None:
    """An address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return None
        return str(probe.getsockname()[0])


def test_nothing_is_said_of_a_sound_one(tmp_path: Path) -> None:
    assert found({"algorithm": "sf", "link": {"listen": None, "neighbors": ["127.0.0.1:2"]}}, tmp_path) == []


@pytest.mark.parametrize(("secret", "short"), [("0123456789abcde", True), ("0123456789abcdef", False)])
def test_a_secret_that_can_be_guessed_is_warned_of(tmp_path: Path, secret: str, short: bool) -> None:
    (tmp_path / "secret").write_text(secret + "\n")
    for link in ({"secret": secret}, {"secret_file": str(tmp_path / "secret")}):
        findings = found({"algorithm": "sf", "link": {"listen": None, **link}}, tmp_path)
        (key,) = link
        text = "15 characters can be guessed: take 16 or more"
        assert findings == ([Finding(f"link.{key}", text, False)] if short else [])


@pytest.mark.parametrize(
    ("listen", "broker"),
    [
        ("127.0.0.1:P", "127.0.0.1:P"),
        ("127.0.0.1:P", "localhost:P"),
        ("localhost:P", "127.0.0.1:P"),
        ("127.0.0.1:P", "0.0.0.0:P"),
        ("127.0.0.1:P", "[::ffff:127.0.0.1]:P"),
        ("0.0.0.0:P", "127.0.0.1:P"),
        ("0.0.0.0:P", "127.8.9.10:P"),
        ("0.0.0.0:P", "OWN:P"),
        ("[::]:P", "[::1]:P"),
        ("no.such.host.invalid:P", "no.such.host.invalid:P"),
    ],
)
@pytest.mark.parametrize("thorough", [True, False])
def test_a_broker_that_is_the_node_itself(listen: str, broker: str, thorough: bool, tmp_path: Path) -> None:
    if "OWN" in broker:
        own = own_address()
        if own is None:
            pytest.skip("this machine has no other address than loopback")
        broker = broker.replace("OWN", own)
    port = str(free_port())
    document = {"listen": listen.replace("P", port), "broker": {"address": broker.replace("P", port)}}
    fatal = [finding for finding in found(document, tmp_path, thorough=thorough) if finding.fatal]
    assert [finding.key for finding in fatal] == ["broker.address"]
    assert "leads back to this node (listen: " in fatal[0].text


@pytest.mark.parametrize(
    ("listen", "broker"),
    [("127.0.0.1:P", "127.0.0.2:P"), ("127.0.0.1:P", "192.0.2.1:P"), ("127.0.0.1:P", "[::1]:P")],
)
def test_the_same_port_elsewhere_is_no_loop(listen: str, broker: str, tmp_path: Path) -> None:
    port = str(free_port())
    document = {"listen": listen.replace("P", port), "broker": {"address": broker.replace("P", port)}}
    assert [finding for finding in found(document, tmp_path) if finding.fatal] == []


def test_ports_taken_twice(tmp_path: Path) -> None:
    port = free_port()
    document = {
        "listen": f"0.0.0.0:{port}",
        "broker": {"address": f"localhost:{port}"},
        "algorithm": "sf",
        "link": {"listen": f"127.0.0.1:{port}"},
    }
    keys = [finding.key for finding in found(document, tmp_path) if finding.fatal]
    assert keys == ["link.listen", "broker.address", "broker.address"]
    document["algorithm"] = None  # then link.listen is without effect
    assert [finding.key for finding in found(document, tmp_path) if finding.fatal] == ["broker.address"]


def test_links_are_not_to_be_dialed_where_clients_connect(tmp_path: Path) -> None:
    document = {
        "listen": "127.0.0.1:1999",
        "algorithm": "sf",
        "link": {"listen": "127.0.0.1:1998", "advertise": "127.0.0.1:1999"},
    }
    assert [(f.key, f.text, f.fatal) for f in found(document, tmp_path, thorough=False)] == [
        ("link.advertise", "127.0.0.1:1999 is where clients connect (listen: 127.0.0.1:1999)", True)
    ]
    document["algorithm"] = None
    assert found(document, tmp_path, thorough=False) == []


def test_each_of_several_addresses_of_the_broker_is_looked_at(tmp_path: Path) -> None:
    document = {
        "listen": "127.0.0.1:1999",
        "broker": {"addresses": ["127.0.0.1:2", "localhost:1999", "127.0.0.1:0"]},
        "algorithm": "sf",
        "link": {"neighbors": ["127.0.0.1:2"]},
    }
    said = [(f.key, f.text, f.fatal) for f in found(document, tmp_path, thorough=False)]
    assert said == [
        (
            "broker.addresses.1",
            "localhost:1999 leads back to this node (listen: 127.0.0.1:1999), not to a broker",
            True,
        ),
        ("broker.addresses.2", "127.0.0.1:0: nobody listens at port 0", True),
        ("link.neighbors.0", "127.0.0.1:2 is the broker, not a node (broker.addresses.0)", False),
    ]


def test_neighbours_that_are_none(tmp_path: Path) -> None:
    link, client = free_port(), free_port()
    document = {
        "listen": f"127.0.0.1:{client}",
        "algorithm": "sf",
        "link": {
            "listen": f"127.0.0.1:{link}",
            "advertise": "here.example:1885",
            "neighbors": [
                f"localhost:{link}",
                f"127.0.0.1:{client}",
                "here.example:1885",
                "127.0.0.1:1",
                "127.0.0.1:2",
                "127.0.0.1:2",
                "localhost:2",
            ],
        },
    }
    said = [(f.key, f.text, f.fatal) for f in found(document, tmp_path, thorough=False)]
    assert said == [
        ("link.neighbors.0", f"localhost:{link} is this node itself (link.listen: 127.0.0.1:{link})", False),
        ("link.neighbors.1", f"127.0.0.1:{client} is this node itself (listen: 127.0.0.1:{client})", False),
        (
            "link.neighbors.2",
            "here.example:1885 is this node itself (link.advertise: here.example:1885)",
            False,
        ),
        ("link.neighbors.3", "127.0.0.1:1 is the broker, not a node (broker.address)", False),
        ("link.neighbors.5", "127.0.0.1:2 is the same as link.neighbors.4: 127.0.0.1:2", False),
        ("link.neighbors.6", "localhost:2 is the same as link.neighbors.4: 127.0.0.1:2", False),
    ]


def test_unix_sockets_for_clients(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    paths = ["no/mqtt.sock", "file", "x" * 120, "mqtt.sock"]
    document = {
        "listeners": [{"url": f"unix:{path}"} for path in paths],
        "broker": {"address": "unix:mqtt.sock"},
    }
    assert [(f.key, f.text.replace(str(tmp_path), "DIR"), f.fatal) for f in found(document, tmp_path)] == [
        ("listeners.0", "DIR/no/mqtt.sock: there is no directory DIR/no", True),
        ("listeners.1", "DIR/file is no socket", True),
        ("listeners.2", f"DIR/{'x' * 120} is longer than the 107 bytes of the path of a unix socket", True),
        ("broker.address", "unix:DIR/mqtt.sock leads back to this node (listeners.3)", True),
    ]


def test_listeners_at_one_address_and_a_broker_that_is_told_of_its_clients(tmp_path: Path) -> None:
    one = {"url": "mqtt://0.0.0.0:1999"}
    document: dict[str, object] = {"listeners": [one, {"url": "ws://127.0.0.1:1999"}]}
    said = {(f.key, f.fatal): f.text for f in found(document, tmp_path, thorough=False)}
    assert (
        said["listeners.1", True] == "ws://127.0.0.1:1999 is listened on already (listeners.0: 0.0.0.0:1999)"
    )
    assert "all clients come from this one" in said["listeners.0", False]
    document = {"listeners": [one], "broker": {"proxy": "v2"}}
    assert found(document, tmp_path, thorough=False) == []


def test_port_0(tmp_path: Path) -> None:
    document = {
        "algorithm": "sf",
        "broker": {"address": "127.0.0.1:0"},
        "link": {"listen": "127.0.0.1:0", "neighbors": ["127.0.0.1:0"]},
    }
    assert [(f.key, f.fatal) for f in found(document, tmp_path)] == [
        ("broker.address", True),
        ("link.neighbors.0", True),
    ]


@pytest.mark.parametrize(
    ("place", "text"), [("file", "file is no directory"), ("file/x/y", "file is no directory")]
)
def test_a_state_directory_that_cannot_be(place: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    [finding] = found({"state_dir": place, "admin": {"socket": "s"}}, tmp_path)
    assert finding.key == "state_dir"
    assert finding.fatal
    assert finding.text.endswith("file is no directory")


@pytest.mark.parametrize("given", [True, False])
def test_a_socket_path_that_is_too_long(given: bool, tmp_path: Path) -> None:
    long = "x" * 110
    document: dict[str, object] = {"admin": {"socket": long}} if given else {"state_dir": long}
    [finding] = found(document, tmp_path)
    assert finding.key == ("admin.socket" if given else "state_dir")
    assert "longer than the 107 bytes" in finding.text
    assert finding.fatal


def test_ports_in_use_and_addresses_of_others(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        document = {
            "listen": f"127.0.0.1:{port}",
            "algorithm": "sf",
            "link": {"listen": "192.0.2.1:1885", "allow_without_secret": True},
        }
        assert found(document, tmp_path) == [
            Finding("listen", f"port {port} is in use", False),
            Finding("link.listen", "192.0.2.1 is no address of this machine", False),
        ]
        assert found(document, tmp_path, thorough=False) == []


async def test_a_port_in_use_by_the_node_that_runs_is_as_it_should_be(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    store = StateStore(tmp_path / "state", loop.call_later, loop.call_soon_threadsafe, lambda *a, **f: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        document: dict[str, object] = {"listen": f"127.0.0.1:{taken.getsockname()[1]}", "state_dir": "state"}
        assert found(document, tmp_path) == []
        store.close()
        assert [finding.key for finding in found(document, tmp_path)] == ["listen"]


def test_a_host_that_does_not_resolve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ildm.hosts.RESOLVE_TIMEOUT", 0.2)
    answered = threading.Event()
    really = socket.getaddrinfo

    def lookup(host: str, *arguments: object, **named: object) -> object:
        if host == "silent.example":
            answered.wait(30)
        if host.endswith(".example"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return really(host, *arguments, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    document = {
        "algorithm": "sf",
        "broker": {"address": "none.example:1883"},
        "link": {"listen": None, "neighbors": ["silent.example:1", "a..b:1", "localhost:3"]},
    }
    said = [(f.key, f.text, f.fatal) for f in found(document, tmp_path)]
    answered.set()
    assert said == [
        ("broker.address", "none.example cannot be resolved: Name or service not known", False),
        (
            "link.neighbors.0",
            "silent.example cannot be resolved: no answer of the resolver within 0.2 s",
            False,
        ),
        ("link.neighbors.1", "a..b cannot be resolved: that is no host name", False),
    ]


def test_clients_of_other_machines_in_the_name_of_this_one(tmp_path: Path) -> None:
    open_to_all: dict[str, object] = {"listen": f"0.0.0.0:{free_port()}"}
    [finding] = found(open_to_all, tmp_path)
    assert finding.key == "listen"
    assert "to the broker all clients come from this one" in finding.text
    assert not finding.fatal
    assert found({**open_to_all, "broker": {"address": "192.0.2.1:1883"}}, tmp_path) == []


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    """Threads that wait for a resolver end with their test; those of others, such as Spark's, stay."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(30)


def test_names_that_depend_on_the_way_are_warned_of(tmp_path: Path) -> None:
    remap = [{"allow": ["#"], "local": "a/", "remote": "b/"}]
    for neighbors, expected in ((["127.0.0.1:2"], 0), (["127.0.0.1:2", "127.0.0.1:3"], 1)):
        for keys in ({"rules": remap}, {"neighbor_rules": [{"id": "b", "rules": remap}]}):
            link = {"listen": None, "neighbors": neighbors, **keys}
            said = [
                each for each in found({"algorithm": "sf", "link": link}, tmp_path) if "names" in each.text
            ]
            assert [each.fatal for each in said] == [False] * expected


def test_neighbours_that_exchange_nothing_are_warned_of(tmp_path: Path) -> None:
    rules = [{"allow": ["#"]}]
    ruled = {"url": "127.0.0.1:3", "id": "b", "rules": rules}
    for link, expected in (
        ({"listen": None, "neighbors": [ruled]}, None),
        ({"listen": None, "neighbors": [ruled, "127.0.0.1:5"]}, "127.0.0.1:5"),
        ({"listen": "127.0.0.1:0", "neighbors": [ruled]}, "a neighbour with another node_id"),
        ({"listen": None, "neighbors": [ruled, "127.0.0.1:5"], "rules": []}, None),
        ({"listen": None, "neighbors": ["127.0.0.1:5"]}, None),
    ):
        said = [
            each.text
            for each in found({"algorithm": "sf", "link": link}, tmp_path)
            if each.key == "link.rules" and not each.fatal
        ]
        assert [f"between this node and {expected}, as" in text for text in said] == [True] * (
            expected is not None
        )


def test_rates_too_low_for_an_overlay_are_warned_of(tmp_path: Path) -> None:
    link = {
        "listen": None,
        "rate": {"out": 8000, "in": 64_000},
        "neighbors": [{"url": "192.0.2.1:1885", "rate": {"in": "64kbit"}}],
    }
    config = config_of({"algorithm": {"name": "sg_tbps"}, "link": link}, tmp_path)
    found = [each for each in examine(config, thorough=False, has_overlay=True) if "overlay" in each.text]
    assert [(each.key, each.fatal) for each in found] == [
        ("link.rate.out", False),
        ("link.neighbors.0.rate.in", False),
    ]
    assert not [each for each in examine(config, thorough=False) if "overlay" in each.text]


def test_rules_without_an_algorithm_are_warned_of(tmp_path: Path) -> None:
    link = {"listen": None, "rules": [{"allow": ["#"]}]}
    assert [(each.key, each.fatal) for each in found({"link": link}, tmp_path)] == [("link.rules", False)]

"""The configuration file: what is accepted, and what an error says."""

from __future__ import annotations

from pathlib import Path

import pytest

from ildm.config import Address, Config, ConfigError, load_config, parse_address, read_secret

PIN = "ab:" * 31 + "ab"


def load(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "node.yaml"
    path.write_text(text)
    return load_config(path)


def error_of(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, text)
    return str(error.value).replace(str(tmp_path), "DIR")


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, "")
    assert config.listen == Address("127.0.0.1", 1883)
    assert config.algorithm is None
    assert config.state_dir == tmp_path / "ildm-state"
    assert config.admin_socket == tmp_path / "ildm-state" / "admin.sock"


def test_a_neighbour_is_an_address_or_has_more_to_it(tmp_path: Path) -> None:
    text = f"""
algorithm: sf
link:
  tls: {{cert: c, key: k, ca: a, identity: pin, pins: {{c: "{"cd" * 32}"}}}}
  rules: [{{deny: [x]}}, {{allow: ["#"]}}]
  neighbor_rules: [{{id: c, rules: [{{allow: [c]}}]}}]
  neighbors:
    - a:1
    - {{url: "mqtts://b:1", id: b, pin: "{PIN}", rules: [{{allow: [b]}}]}}
    - {{url: "b2:1", id: b}}
    - {{url: "d:1", id: d, rules: []}}
"""
    link = load(tmp_path, text).link
    assert [str(address) for address in link.addresses] == ["a:1", "mqtts://b:1", "b2:1", "d:1"]
    assert [link.node_at(address) for address in link.addresses] == [None, "b", "b", "d"]
    assert [link.pin_of(node) for node in "abcd"] == [None, "ab" * 32, "cd" * 32, None]
    kept = {node: [rule.filters for rule in link.rules_for(node)] for node in "abcd"}
    assert kept == {"a": [["x"], ["#"]], "b": [["b"]], "c": [["c"]], "d": []}


def test_everything_listens_on_loopback_until_told_otherwise(tmp_path: Path) -> None:
    config = load(tmp_path, "algorithm: sf")
    assert config.listen.is_loopback
    assert config.link.listen is not None
    assert config.link.listen.is_loopback


def test_listeners_stand_in_for_the_default_one_and_beside_one_that_is_given(tmp_path: Path) -> None:
    more = "listeners: [{url: 'unix:mqtt.sock'}, {url: '127.0.0.1:1999', name: lab}]\n"
    own = [("listeners.0", f"unix:{tmp_path}/mqtt.sock"), ("listeners.1", "127.0.0.1:1999")]

    def places(text: str) -> list[tuple[str, str]]:
        return [(key, str(each.url)) for key, each in load(tmp_path, text).clients_at]

    assert places("") == [("listen", "127.0.0.1:1883")]
    assert places(more) == own
    assert places(more + "listen: 127.0.0.1:7") == [("listen", "127.0.0.1:7"), *own]
    assert [each.label for _, each in load(tmp_path, more).clients_at] == [own[0][1], "lab"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("listen: 1883", "listen: expected HOST:PORT, such as 127.0.0.1:1883 (found 1883)"),
        ("listen: [1883]", "listen: expected one address as text, HOST:PORT"),
        ("listen: true", "listen: expected one address as text, HOST:PORT"),
        ("broker: 127.0.0.1:1884", "broker: expected keys, such as {address: 127.0.0.1:1884} (found '127"),
        ("broker: [a:1]", "broker: expected keys, such as address, addresses, tls, proxy"),
        ("broker: null", "broker: expected keys, such as address"),
        ("link: host", "link: expected keys, such as listen, advertise, neighbors, discover (found 'host')"),
        ("link: a:1885", "link: expected keys, such as {listen: a:1885}"),
        ("metrics: 9640", "metrics: expected keys, such as {listen: 9640} (found 9640)"),
        ("link: {tls: cert.pem}", "link.tls: expected keys, such as ca, crl, min_version, ciphers"),
        ("listeners: mqtt://a:1", "listeners: expected a list, in brackets: [mqtt://a:1]"),
        ("listeners: [mqtt://a:1]", "listeners.0: expected keys, such as {url: mqtt://a:1}"),
        ("link: {neighbors: a:1}", "link.neighbors: expected a list, in brackets: [a:1]"),
        ("link: {neighbors: {url: a:1}}", "link.neighbors: expected a list, each item after a dash"),
        ("publish: [a/#]", "publish.0: expected keys, such as allow, deny, user, client_id"),
        ("algorithm: [sf]", "algorithm: expected the name of a plugin, such as sf, or {name: NAME"),
        ("algorithm: 5", "algorithm: expected the name of a plugin, such as sf, or {name: NAME"),
        ("filters: [[sf]]", "filters.0: expected the name of a plugin"),
        ("spool: {bytes: 10XB}", "spool.bytes: expected a number of bytes, also with a unit: 32MiB (1024s)"),
        ("spool: {bytes: many}", "spool.bytes: expected a number of bytes"),
        ("spool: {bytes: -1GB}", "spool.bytes: expected a number of bytes"),
        ("link: {expiry: 7y}", "link.expiry: expected a number of seconds, also with a unit: 500ms, 10s"),
        ("spool: {age: 7d}", "spool.age: link.expiry says that now"),
        (
            "limits: {retained_deletion_expiry: 1d}",
            "limits.retained_deletion_expiry: link.expiry says that now",
        ),
        ("link: {expiry: 7 days}", "link.expiry: expected a number of seconds"),
        (
            "link: {keep_alive: 2h}",
            "link.keep_alive: Input should be less than or equal to 3600 (found '2h')",
        ),
        (
            "link: {listen: '0.0.0.0:1', secret_file: }",
            "(or allow_without_secret: true); secret_file names no file",
        ),
        ("listen: localhost", "listen: 'localhost': expected HOST:PORT with a port from 0 to 65535"),
        ("listen: a:70000", "listen: 'a:70000': expected HOST:PORT with a port from 0 to 65535"),
        ("listen: '::1:1883'", "listen: '::1:1883': an IPv6 address is written [ADDRESS]:PORT"),
        ("lisen: a:1", "lisen: unknown key (listen?) (found 'a:1')"),
        ("zzz: 1", "zzz: unknown key (found 1)"),
        ("link: {sessions: 0}", "link.sessions: Input should be greater than or equal to 1 (found 0)"),
        ("link: {qos: 3}", "link.qos: Input should be 0, 1 or 2 (found 3)"),
        ("link: {overflow: wait}", "link.overflow: Input should be 'drop' or 'block' (found 'wait')"),
        ("link: {neighbors: [a:1, b]}", "link.neighbors.1: 'b': expected HOST:PORT"),
        ("link: {neighbors: [{url: a:1, pin: 00}]}", "link.neighbors.0.pin: Input should be a valid string"),
        (f"link: {{neighbors: [{{url: 'a:1', pin: '{PIN}'}}]}}", "pin: for whom it is has to stand in id"),
        (
            "link: {neighbors: [{url: 'a:1', rules: []}]}",
            "neighbors.0: rules: for whom it is has to stand in id",
        ),
        (f"link: {{neighbors: [{{url: 'a:1', id: a, pin: '{PIN}'}}]}}", "pin is without effect with a:1"),
        ("link: {neighbors: [{id: a}]}", "link.neighbors.0.url: Field required"),
        ("link: {neighbors: [{url: 'a:1', iid: a}]}", "link.neighbors.0.iid: unknown key"),
        (
            "link: {neighbors: [{url: 'a:1', id: a}, {url: 'a:1', id: b}]}",
            "link: neighbors.1.id: a:1 stands there with another id",
        ),
        (
            "link: {neighbors: [{url: 'a:1', id: a, rules: []}], neighbor_rules: [{id: a, rules: []}]}",
            "link: neighbors.0.rules: a has some in neighbor_rules.0",
        ),
        ("broker: {adress: a:1}", "broker.adress: unknown key (address?)"),
        ("broker: {address: 'a:1', addresses: ['b:1']}", "broker: give address or addresses, not both"),
        ("broker: {addresses: ['a:1', 'b:1', 'a:1']}", "broker: addresses: a:1 stands there twice"),
        ("broker: {addresses: ['a:1', 'mqtts://b:1']}", "broker: tls: mqtts://b:1 needs it"),
        ("broker: {addresses: ['a:1', b]}", "broker.addresses.1: 'b': expected HOST:PORT"),
        ("node_id: 'a b'", "node_id: String should match pattern"),
        ("link: {neighbors: ['a:1']}", "link.neighbors is without effect unless algorithm names one"),
        (
            "node_id: a\nalgorithm: sf\nlink: {neighbors: [{url: 'a:1', id: a}]}",
            "link.neighbors.0.id: a is the node_id of this node",
        ),
        ("state_dir: s\nspool: {directory: s/}", "s holds state_dir, "),
        ("state_dir: s/t\nspool: {directory: s}", "name another one"),
        ("state_dir: s\nspool: {directory: t/../s}", "spool.directory: "),
        ("[]", "expected a mapping of keys, found list"),
        ("listen: [", "not YAML"),
        ("listen: 'unix:/x'", "listen: 'unix:/x': expected one of mqtt"),
        ("listeners: [{url: 'http://a:1'}]", "listeners.0.url: 'http://a:1': expected one of mqtt"),
        ("listeners: [{url: 'a:1', mode: '0660'}]", "listeners.0: mode is for unix sockets"),
        ("listeners: [{url: 'unix:/x', mode: 0660}]", "listeners.0.mode: Input should be a valid string"),
        ("listeners: [{url: 'a:1'}, {url: 'a:1'}]", "listeners: there are two with the name a:1"),
        ("listeners: [{url: 'a:1', name: listen}]\nlisten: b:1", "there are two with the name listen"),
        ("algorithm: sf\nlink: {listen: 'unix:/x'}", "link.listen: 'unix:/x': expected one of mqtt"),
        ("broker: {address: 'ws://a:1'}", "broker.address: 'ws://a:1': expected one of mqtt, mqtts, unix"),
        ("limits: {clients: many}", "limits.clients: Input should be a valid integer"),
    ],
)
def test_an_error_names_file_key_and_what_is_allowed(tmp_path: Path, text: str, expected: str) -> None:
    message = error_of(tmp_path, text)
    assert message.startswith("DIR/node.yaml: ")
    assert expected in message


def test_a_key_that_stands_twice_is_named_with_its_lines(tmp_path: Path) -> None:
    link = "link:\n  qos: 1\n  sessions: 1\n  qos: 2\n"
    text = f"listen: a:1\n{link}listen: b:1\nlog: {{level: info, level: info}}\n"
    assert error_of(tmp_path, text).splitlines() == [
        "DIR/node.yaml: line 6: key listen stands in line 1 already",
        "DIR/node.yaml: line 7: key level stands in line 7 already",
        "DIR/node.yaml: line 5: key qos stands in line 3 already",
    ]
    merged = "base: &base {qos: 1}\nlink: {<<: *base, qos: 2}"
    assert error_of(tmp_path, merged) == "DIR/node.yaml: base: unknown key"


def test_a_file_that_is_no_configuration_by_its_size(tmp_path: Path) -> None:
    assert "longer than 4 MiB" in error_of(tmp_path, "#" * (5 << 20))
    assert "not YAML" in error_of(tmp_path, "[" * 100_000)


def test_all_errors_are_told_at_once(tmp_path: Path) -> None:
    lines = error_of(tmp_path, "a: 1\nlisten: b\nlink: {sessions: -1}").splitlines()
    assert len(lines) == 3


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read"):
        load_config(tmp_path / "nowhere.yaml")


def test_links_beyond_loopback_need_a_secret(tmp_path: Path) -> None:
    message = error_of(tmp_path, "link: {listen: '0.0.0.0:1885'}")
    assert "listening for links on 0.0.0.0:1885 needs secret or secret_file" in message
    assert load(tmp_path, "link: {listen: '0.0.0.0:1885', secret: x}").link.secret is not None
    assert load(tmp_path, "link: {listen: '0.0.0.0:1885', allow_without_secret: true}")


@pytest.mark.parametrize("text", ["link: {secret: [hunter2]}", "broker: {password: {hunter2: 1}}"])
def test_secrets_are_not_shown_in_errors(tmp_path: Path, text: str) -> None:
    assert "hunter2" not in error_of(tmp_path, text)


def test_secrets_are_not_shown_when_printed(tmp_path: Path) -> None:
    config = load(tmp_path, "link: {secret: hunter2}\nbroker: {password: hunter3}")
    assert "hunter" not in repr(config)
    assert "hunter" not in config.model_dump_json()


def test_a_secret_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("s3cret\nrest\n")
    config = load(tmp_path, "link: {secret_file: key}")
    assert read_secret(config.link.secret, config.link.secret_file, "link.secret_file") == "s3cret"
    (tmp_path / "key").write_text("\n")
    with pytest.raises(ConfigError, match=r"link\.secret_file: .*key is empty"):
        read_secret(None, tmp_path / "key", "link.secret_file")
    with pytest.raises(ConfigError, match=r"link\.secret_file: .*no cannot be read"):
        read_secret(None, tmp_path / "no", "link.secret_file")
    assert "not both" in error_of(tmp_path, "link: {secret: a, secret_file: b}")
    assert "not both" in error_of(tmp_path, "broker: {password: a, password_file: b}")


@pytest.mark.parametrize("text", ["127.0.0.1:1", "[::1]:65535", "broker.example:0"])
def test_addresses_round_trip(text: str) -> None:
    assert str(parse_address(text)) == text


def test_plugins_with_and_without_options(tmp_path: Path) -> None:
    config = load(tmp_path, "algorithm: pf\nfilters: [a, {name: b, topics: [x]}]")
    assert config.algorithm is not None
    assert config.algorithm.name == "pf"
    assert [(f.name, f.options) for f in config.filters] == [("a", {}), ("b", {"topics": ["x"]})]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1048576", 1 << 20),
        ("1MiB", 1 << 20),
        ("1.5 mib", 3 << 19),
        ("2M", 2 << 20),
        ("2MB", 2_000_000),
        ("10GB", 10_000_000_000),
        ("1TiB", 1 << 40),
        ("2048KiB", 2 << 20),
        ("'1048576'", 1 << 20),
        ("1048576B", 1 << 20),
    ],
)
def test_sizes_may_have_units(tmp_path: Path, text: str, value: int) -> None:
    assert load(tmp_path, f"spool: {{bytes: {text}, segment_bytes: 64KiB}}").spool.bytes == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7d", 604_800),
        ("1.5h", 5400),
        ("30 min", 1800),
        ("5m", 300),
        ("2w", 1_209_600),
        ("10s", 10),
        ("90", 90),
    ],
)
def test_times_may_have_units(tmp_path: Path, text: str, value: float) -> None:
    assert load(tmp_path, f"link: {{expiry: {text}}}").link.expiry == value


def test_all_sizes_and_times_may_have_units(tmp_path: Path) -> None:
    """Whatever is called bytes, or has to do with time."""
    text = """
broker: {keep_alive: 20s, packet_size: 1MiB, connect_timeout: 500ms}
link: {keep_alive: 20s, subscribe_wait: 500ms, delay: 2ms, queue_bytes: 1MiB, unsent_bytes: 64KiB, expiry: 1h}
limits: {packet_size: 1MiB, write_buffer: 1MiB, partial_bytes: 1GiB, properties_bytes: 64KiB, will_grace: 5s}
spool: {failure_wait: 2s, delay: 1ms, segment_bytes: 1MiB, page_bytes: 1MiB}
"""
    config = load(tmp_path, text)
    assert (config.broker.keep_alive, config.broker.packet_size, config.broker.connect_timeout) == (
        20,
        1 << 20,
        0.5,
    )
    assert (config.link.subscribe_wait, config.link.delay, config.link.unsent_bytes) == (0.5, 0.002, 64 << 10)
    assert (config.limits.partial_bytes, config.limits.will_grace) == (1 << 30, 5.0)
    assert (config.spool.failure_wait, config.spool.delay, config.spool.page_bytes) == (2.0, 0.001, 1 << 20)

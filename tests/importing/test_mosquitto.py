"""What of a mosquitto.conf a configuration says, and what is named as not the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ildm.config import ConfigError, parse_config
from ildm.core.transfer.rules import MAX_FILTERS
from ildm.importing.bridge_options import (
    BOOLEAN,
    BRIDGE,
    BROKER,
    ENCRYPTED,
    NEEDLESS,
    READ,
    SAME,
    SYNONYMS,
    TO_DO,
    TRUTHS,
    WITHOUT,
)
from ildm.importing.listeners import OPTIONS
from ildm.importing.mosquitto import Imported, convert
from ildm.text import printable
from tests.plugins.commands import ildm

BEGIN = "connection c\naddress far.example.org\n"


def converted(*lines: str) -> Imported:
    """A bridge with these lines, and a first one that it needs."""
    return convert(BEGIN + "topic first/#\n" + "\n".join(lines), "m.conf")


def remarks(*lines: str) -> list[tuple[int, str]]:
    return [(remark.line, remark.text) for remark in converted(*lines).remarks]


def test_the_configuration_can_be_used_as_it_is() -> None:
    text = "port 1883\nallow_anonymous true\n# connection no\n" + BEGIN
    imported = convert(text + "  topic a/# both 2 here/ there/\ntopic b in\n", "m.conf")
    assert imported.remarks == []
    printed = imported.text("m.conf")
    assert "#   6: topic a/# both 2 here/ there/\n" in printed
    assert "about itself (1)" in printed
    assert "listener 1884 127.0.0.1\n" in printed
    assert "#   allow_anonymous" not in printed
    config = parse_config(yaml.safe_load(printed), "out", Path())
    assert str(config.listen) == "0.0.0.0:1883"
    assert [str(each) for each in config.link.addresses] == ["far.example.org:1885"]
    found = [(r.filters, r.direction, r.qos, r.local, r.remote) for r in config.link.rules]
    assert found == [(["a/#"], "both", 2, "here/", "there/"), (["b"], "in", 0, "", "")]


def test_the_broker_moves_to_a_port_that_the_node_does_not_take() -> None:
    for port, moved in ((1883, 1884), (1884, 1886), (8883, 1884)):
        document = convert(f"port {port}\n{BEGIN}topic a/#\n", "m.conf").document
        assert (document["listen"], document["broker"]["address"]) == (
            f"0.0.0.0:{port}",
            f"127.0.0.1:{moved}",
        )


def test_topics_that_differ_in_nothing_else_stand_together() -> None:
    rules = converted("topic b", "topic c out 0", "topic d out 1", "topic e").document["link"]["rules"]
    assert [rule["allow"] for rule in rules] == [["first/#", "b", "c"], ["d"], ["e"]]
    plain = convert("connection c\naddress a\ntopic b both 2\ntopic c both 2", "m.conf")
    assert plain.document["link"]["rules"] == [{"allow": ["b", "c"]}]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (
            'topic "" out 1 a/b/t c/t',
            {"allow": ["t"], "direction": "out", "qos": 1, "local": "a/b/", "remote": "c/"},
        ),
        ('topic "" in 2 t c/t', {"allow": ["t"], "direction": "in", "remote": "c/"}),
        ('topic x both 0 "" far/', {"allow": ["x"], "qos": 0, "remote": "far/"}),
    ],
)
def test_prefixes_of_a_topic_line(line: str, rule: dict[str, object]) -> None:
    imported = converted(line)
    assert imported.remarks == []
    assert imported.document["link"]["rules"][1] == rule


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("topic", "expected a topic"),
        ('topic "a b/# out', "quotation mark is not closed"),
        ("topic a up", "up is no direction: in, out or both"),
        ("topic a out 3", "3 is no QoS"),
        ("topic a out -1", "-1 is no QoS"),
        ("topic a/#/b", "'a/#/b' is no topic filter"),
        ("topic a out 0 pre post/", "'pre': a prefix is whole levels"),
        ("topic $SYS/# out", "topics that begin with $"),
        ("topic a out 0 $x/", "topics that begin with $"),
        ('topic "" out 0 a/b a/c', "whole levels at their beginning"),
        ('topic "" out 0', "whole levels at their beginning"),
        ("topic # both 0 x/ first/", "both become"),
        ("address two.example.org", "refuses a second one"),
        ("address", "no address"),
        ("keepalive_interval 7200", "a number from 1 to 3600"),
        ("keepalive_interval", "a number from 1 to 3600"),
        ("restart_timeout", "expected seconds"),
        ("restart_timeout 30 10", "no shorter than the first"),
        ("notification_topic state", "ildm status"),
        ("keepalive_intervall 30", "Mosquitto knows no such option"),
        ("Topic a", "Mosquitto knows no such option"),
        ("\u00a0topic a", "Mosquitto knows no such option"),
        ("bridge_max_packet_size 12", "a number from 1024"),
        ("cleansession true", "kept for it"),
        ("notifications true", "ildm status"),
        ("bridge_insecure true", "always checked"),
    ],
)
def test_what_cannot_be_said_is_named_with_its_line(line: str, expected: str) -> None:
    [remark] = converted("try_private true", line).remarks
    assert remark.line == 5
    assert remark.text.startswith(printable(line.partition(" ")[0]))
    assert expected in remark.text
    assert remark.differs


@pytest.mark.parametrize(
    ("line", "rule", "note"),
    [
        ('topic a/# in "" ""', {"allow": ["a/#"], "direction": "in", "qos": 0}, 'reads "" as 0'),
        ("topic a/# in 1x", {"allow": ["a/#"], "direction": "in", "qos": 1}, "reads 1x as 1"),
        ("topic a/# out +2", {"allow": ["a/#"], "direction": "out"}, "reads +2 as 2"),
        ("topic a/# out 258", {"allow": ["a/#"], "direction": "out"}, "reads 258 as 2"),
        ("topic a/# out x", {"allow": ["a/#"], "direction": "out", "qos": 0}, "reads x as 0"),
        ("topic a/# OUT 1", {"allow": ["a/#"], "direction": "out", "qos": 1}, None),
        ("topic a/# both # QoS 2", {"allow": ["a/#"], "qos": 0}, None),
        ("topic a/# both 1 # here/ there/", {"allow": ["a/#"], "qos": 1}, None),
        ('topic a/# both 1 "" b/ # renamed', {"allow": ["a/#"], "qos": 1, "remote": "b/"}, None),
        ("topic a both 1 b/ c/ d", {"allow": ["a"], "qos": 1, "local": "b/", "remote": "c/"}, "says nothing"),
        ("topic\ta\tboth\t1", {"allow": ["a"], "qos": 1}, None),
        ('topic "a b/#" both 1', {"allow": ["a b/#"], "qos": 1}, None),
        ("topic a\u2028b both 1", {"allow": ["a\u2028b"], "qos": 1}, None),
        ("topic /# both 1 x y", {"allow": ["#"], "qos": 1, "local": "x/", "remote": "y/"}, None),
        ("topic s/+ both 1 x_ y/", {"allow": ["+"], "qos": 1, "local": "x_s/", "remote": "y/s/"}, None),
    ],
)
def test_words_of_a_topic_are_read_as_mosquitto_reads_them(
    line: str, rule: dict[str, object], note: str | None
) -> None:
    imported = convert(f"connection c\naddress far\n{line}", "m.conf")
    assert imported.document["link"]["rules"] == [rule]
    assert not imported.differs
    assert [note in each.text for each in imported.remarks if note] == [True] * (note is not None)
    assert yaml.safe_load(imported.text("m.conf"))["link"]["rules"] == [rule]


def test_qos_of_one_byte_of_all_words_is_what_mosquitto_counts() -> None:
    taken = {qos: converted(f"topic a out {qos}") for qos in (0, 1, 2, 3, 255, 256, 257, 259)}
    assert {qos for qos, imported in taken.items() if not imported.differs} == {0, 1, 2, 256, 257}


@pytest.mark.parametrize(
    ("address", "neighbor", "expected"),
    [
        ("far # the other one", "far:1885", None),
        ("far:1883x", "far:1885", None),
        ("far:1883 near:1884 third", "far:1885", "near:1884 or third a spare broker"),
        ("2001:db8::1:1883", "[2001:db8::1]:1885", None),
        ("[2001:db8::1]", "[2001:db8::1]:1885", None),
        ("2001:db8::1", None, "needs a port"),
        ("far:", None, "nothing is no port"),
        ("far:0", None, "0 is no port"),
        ("far:mqtt", None, "mqtt is no port"),
        ("far:70000", None, "70000 is no port"),
        (":1883", None, "expected HOST:PORT"),
        ("mqtt://far", None, "is no port"),
        ("fa/r:1883", None, "expected HOST:PORT"),
    ],
)
def test_addresses_are_read_as_mosquitto_reads_them(
    address: str, neighbor: str | None, expected: str | None
) -> None:
    imported = convert(f"connection c\naddress {address}\ntopic a", "m.conf")
    assert imported.document["link"]["neighbors"] == ([] if neighbor is None else [neighbor])
    said = [remark.text for remark in imported.remarks]
    assert any(expected in text for text in said) if expected else not said
    assert imported.differs is (expected is not None)


def test_every_option_is_said_is_needless_or_is_named() -> None:
    kinds = [READ, NEEDLESS, WITHOUT.keys()]
    assert sum(map(len, kinds)) == len(BRIDGE)
    assert {option for option, _ in SAME} <= WITHOUT.keys()
    assert set(SYNONYMS.values()) <= BRIDGE >= ENCRYPTED
    for option in WITHOUT:
        assert [line for line, text in remarks(f"{option} x") if text.startswith(option)] == [4]
    for option in NEEDLESS:
        assert remarks(f"{option} x") == []
    for option, value in SAME:
        assert remarks(f"{option} {value}") == remarks(f"{option} {value} # as it is") == []
        for other in [word for word, meant in TRUTHS.items() if meant == value and option in BOOLEAN]:
            assert remarks(f"{option} {other}") == []
    for option in (BROKER - {"include_dir", "acl_file"}) | {"plugin_opt_x", "auth_opt_y"}:
        assert [text for _, text in remarks(f"{option} x") if text.startswith(option)] == []
    assert not BROKER & (BRIDGE | OPTIONS)
    assert WITHOUT.keys() >= TO_DO


NUMBERS = ("keep_alive", "reconnect_min", "reconnect_max", "packet_size")


def test_numbers_and_accounts() -> None:
    imported = converted(
        "keepalive_interval 30", "restart_timeout 5 60", "bridge_max_packet_size 2048", "local_username u"
    )
    link = imported.document["link"]
    assert (link["keep_alive"], link["reconnect_min"], link["reconnect_max"]) == (30, 5.0, 60.0)
    assert link["packet_size"] == 2048
    assert imported.document["broker"]["username"] == "u"
    assert imported.remarks == []
    for line, said in (
        ("keepalive_interval 60 # s", {"keep_alive": 60}),
        ("keepalive_interval 60s", {"keep_alive": 60}),
        ("keepalive_interval 1", {"keep_alive": 5}),
        ("restart_timeout 0", {"reconnect_min": 1.0, "reconnect_max": 1.0}),
        ("restart_timeout 5 99999 60", {"reconnect_min": 5.0, "reconnect_max": 7200.0}),
        ("restart_timeout 5 # s", {"reconnect_min": 5.0, "reconnect_max": 5.0}),
        ("bridge_max_packet_size 0 # any", {}),
    ):
        imported = converted(line)
        link = imported.document["link"]
        assert {key: value for key, value in link.items() if key in NUMBERS} == said, line
        assert not imported.differs


def test_secrets_are_not_printed() -> None:
    lines = ["password hunter2", "local_password hunter2", "bridge_psk hunter2", "remote_password hunter2"]
    imported = converted(*lines)
    assert len(imported.remarks) >= 4
    assert "hunter2" not in imported.text("m.conf")


@pytest.mark.parametrize("option", ["bridge_cafile", "bridge_certfile", *sorted(ENCRYPTED)])
def test_what_was_encrypted_does_not_go_in_the_clear(option: str) -> None:
    link = converted(f"{option} x").document["link"]
    assert link["neighbors"] == ["mqtts://far.example.org:1885"]
    assert set(link["tls"]) == {"ca", "cert", "key"}


def test_the_files_of_tls() -> None:
    imported = converted("bridge_cafile ca", "bridge_certfile cert", "bridge_keyfile key")
    assert imported.document["link"]["tls"] == {"ca": "ca", "cert": "cert", "key": "key"}
    assert parse_config(imported.document, "out", Path()).link.tls is not None
    assert [remark.text for remark in imported.remarks] == [
        "the certificates of both nodes need the alternative name URI:ildm:NODE_ID"
    ]


def test_several_bridges_are_neighbours_with_rules_of_their_own() -> None:
    text = (
        BEGIN
        + "topic a\nconnection b # c\naddress [2001:db8::1]:1883\ntopic b in\nconnection none\naddress x\n"
    )
    imported = convert(text, "m.conf")
    assert imported.document["link"] == {
        "listen": None,
        "neighbors": [
            {
                "url": "far.example.org:1885",
                "id": "c",
                "rules": [{"allow": ["a"], "direction": "out", "qos": 0}],
            },
            {
                "url": "[2001:db8::1]:1885",
                "id": "b",
                "rules": [{"allow": ["b"], "direction": "in", "qos": 0}],
            },
        ],
    }
    said = {remark.text: remark.differs for remark in imported.remarks}
    assert said["connection none has no topic that can be taken: it is left out"]
    [told] = [text for text in said if text.startswith("give the node at [2001:db8::1]:1885 the node_id b: ")]
    assert "another one is refused there" in told
    assert not said[told]
    link = parse_config(imported.document, "out", Path()).link
    assert [link.node_at(address) for address in link.addresses] == ["c", "b"]
    assert [rule.allows for rule in link.rules_for("another")] == [False]


@pytest.mark.parametrize("names", [("a\u00e9", "a\u00fc"), ("x" * 70, "x" * 80), ("#", "-", "-2")])
def test_node_ids_of_connections_differ(names: tuple[str, ...]) -> None:
    text = "".join(f"connection {name}\naddress {n}.example\ntopic a\n" for n, name in enumerate(names))
    ids = [each["id"] for each in convert(text, "m.conf").document["link"]["neighbors"]]
    assert len(set(ids)) == len(names)


def two(first: str, second: str, address: str = "Far.example.org") -> Imported:
    return convert(f"{BEGIN}{first}\nconnection d\naddress {address}\n{second}\n", "m.conf")


def test_two_connections_to_one_broker_are_one_neighbour_with_the_rules_of_both() -> None:
    imported = two("topic tele/# out 1", "topic cmnd/# in 1 here/ there/")
    assert imported.remarks == []
    assert imported.document["link"]["neighbors"] == ["far.example.org:1885"]
    assert imported.document["link"]["rules"] == [
        {"allow": ["tele/#"], "direction": "out", "qos": 1},
        {"allow": ["cmnd/#"], "direction": "in", "qos": 1, "local": "here/", "remote": "there/"},
    ]
    assert "# connection c\n#   3: topic tele/# out 1\n# connection d\n#   6: topic" in imported.text("m")


@pytest.mark.parametrize(
    ("first", "second", "expected", "differs"),
    [
        ("topic a/# out 1", "topic a/b out 1", "line 3 takes as well cross once", False),
        ("topic a/# out 1", 'topic a/b out 1 "" x/', "cross once under one name", True),
        ("topic a/# out 1", "topic b in 1 a/ x/a/", None, False),
        ("topic a/# both 1", "topic b/# both 1 a/ x/a/", "both become", True),
        ("topic a/# out 1", "topic +/b out 2", "cross once with one QoS", True),
        ('topic # out 1 "" x/', 'topic # in 1 y/ ""', None, False),
        ('topic # in 1 "" x/', 'topic b in 1 x/ ""', "both become", True),
    ],
)
def test_what_two_connections_to_one_broker_have_in_common_is_named(
    first: str, second: str, expected: str | None, differs: bool
) -> None:
    imported = two(first, second)
    assert [each.line for each in imported.remarks] == [6] * (expected is not None)
    assert all(expected in each.text for each in imported.remarks if expected)
    assert imported.differs is differs
    assert len(imported.document["link"]["neighbors"]) == 1
    parse_config(imported.document, "out", Path())


def test_one_encrypted_connection_encrypts_the_neighbour() -> None:
    assert two("topic a", "bridge_cafile ca\ntopic b").document["link"]["neighbors"] == [
        "mqtts://far.example.org:1885"
    ]


def test_two_brokers_of_one_host_have_nodes_of_their_own() -> None:
    imported = two("topic a", "topic b", "far.example.org:1884")
    urls = [each["url"] for each in imported.document["link"]["neighbors"]]
    assert urls == ["far.example.org:1885", "far.example.org:1886"]
    assert any("far.example.org:1884 is taken for another broker" in each.text for each in imported.remarks)


@pytest.mark.parametrize(
    ("lines", "filters"),
    [
        (["topic # both 0", "topic alarm/# both 2"], [["alarm/#"], ["#"]]),
        (["topic alarm/# both 2", "topic # both 0"], [["alarm/#"], ["#"]]),
        (["topic # both 0", "topic + both 1", "topic a/b both 2"], [["+"], ["a/b"], ["#"]]),
        (["topic # out 0", "topic a/b in 2"], [["#"], ["a/b"]]),
        (["topic +/temp both 2", "topic a/+ both 1"], [["a/+"], ["+/temp"]]),
        (["topic +/b out 1", "topic b out 1 y/ far/y/"], [["b"], ["+/b"]]),
    ],
)
def test_the_line_decides_whose_subscription_mosquitto_finds_first(
    lines: list[str], filters: list[list[str]]
) -> None:
    imported = convert("connection c\naddress far\n" + "\n".join(lines), "m.conf")
    assert imported.remarks == []
    assert [rule["allow"] for rule in imported.document["link"]["rules"]] == filters


def test_more_topics_than_a_link_takes_are_named() -> None:
    imported = converted(*(f"topic t{n}" for n in range(300)))
    assert len(imported.remarks) == 300 + 1 - MAX_FILTERS
    parse_config(imported.document, "out", Path())


def test_lines_belong_to_the_connections_of_their_file(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/1.conf").write_text("topic lost\nconnection in\naddress inner\ntopic b\n")
    (tmp_path / "d/2.conf").write_text("topic lost too\nlistener 1884\n")
    text = BEGIN + "topic a\nlistener 1883\ninclude_dir d\ntopic c\nprotocol websockets\n"
    imported = convert(text, str(tmp_path / "m.conf"))
    assert [[rule["allow"] for rule in each["rules"]] for each in imported.document["link"]["neighbors"]] == [
        [["a", "c"]],
        [["b"]],
    ]
    lost = [(Path(each.file).name, each.line) for each in imported.remarks if each.differs]
    assert lost == [("1.conf", 1), ("2.conf", 1)]
    assert imported.document["listen"] == "0.0.0.0:1884"
    assert imported.document["listeners"] == [{"url": "ws://0.0.0.0:1883", "path": None}]


def test_lines_before_a_connection_belong_to_none() -> None:
    imported = convert("topic a\n" + BEGIN + "topic b", "m.conf")
    assert [(remark.line, remark.text[:8]) for remark in imported.remarks] == [(1, "topic a:")]


def test_the_command(tmp_path: Path) -> None:
    conf = tmp_path / "mosquitto.conf"
    conf.write_text(BEGIN + "topic a\nremote_username u\n")
    done = ildm(tmp_path, "import", conf)
    assert done.returncode == 0
    assert f"{conf}:4: remote_username u: nodes do not log in" in done.stderr
    conf.write_text(BEGIN + "topic a\nnotifications true\n")
    done = ildm(tmp_path, "import", conf)
    assert done.returncode == 1
    assert f"{conf}:4: notifications true: no topic tells" in done.stderr
    assert done.stderr.endswith("not all is as before: see above\n")
    assert yaml.safe_load(done.stdout)["algorithm"] == "sf"
    conf.write_text("listener 1883\n")
    assert ildm(tmp_path, "import", conf).returncode == 2
    assert ildm(tmp_path, "import", tmp_path).returncode == 2
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d/bridge.conf").write_text("# mine\n" + BEGIN + "topic a\nnotifications true\n")
    conf.write_text("listener 1883\nallow_anonymous true\ninclude_dir conf.d\n")
    done = ildm(tmp_path, "import", conf)
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"ildm: {tmp_path}/conf.d/bridge.conf:5: notifications true: no topic tells"
    )
    with pytest.raises(ConfigError, match="no bridge in it"):
        convert("listener 1883\n", "m.conf")


SHOWN = ["\x1b[2J", "\x9b2J", "\x00", "\r", "\x7f", "\u202e", "\u2066", "\u2028", "\x85", "\u200b"]
"""What commands a terminal, or shows text other than it is."""


@pytest.mark.parametrize("character", SHOWN)
def test_what_a_terminal_would_obey_is_escaped_and_loads(tmp_path: Path, character: str) -> None:
    conf = tmp_path / "m.conf"
    lines = [
        f"connection {character}x",
        "address far",
        f"topic t{character}x/# both",
        f"topic u both 0 a{character}x/ b/",
        f"local_username u{character}x",
        f"bridge_cafile ca{character}x",
        f"{character}option {character}x",
        f"listener 1883 {character}x",
        f"notification_topic {character}x",
        f"include_dir {character}x",
        f"connection {character}y",
        f"address {character}y",
    ]
    conf.write_text("\n".join(lines), newline="\n")
    done = ildm(tmp_path, "import", conf)
    assert done.returncode == 1
    for text in (done.stdout, done.stderr):
        assert printable(text, keep="\n") == text
    config = parse_config(yaml.safe_load(done.stdout), "out", Path())
    assert config.broker.username == f"u{character}x".rstrip("\r")
    if character != "\x00":
        assert f"t{character}x/#" in [f for rule in config.link.rules or () for f in rule.filters]


def test_readable_letters_stay_readable() -> None:
    assert "topic: größe" in converted("topic größe").text("m.conf").replace("topic größe", "topic: größe")
    assert "- größe\n" in converted("topic größe").text("m.conf")


WORDS = st.sampled_from(
    [
        *sorted(BRIDGE | OPTIONS | {"include_dir", "allow_anonymous", "unknown"}),
        *("connection", "address", "topic", "topic", "topic", "listener", "port", "protocol"),
    ]
)
PARTS = ("#", '""', "a/#", "+/b", "out", "in", "both", "0", "1", "2", "3", "1x", "x/", "y", "far", "far:1884")
PARTS += ("::1:1883", "127.0.0.1", "0.0.0.0", "true", "websockets", "/run/x", "8883", "$SYS/#", '"a b"', "ca")
VALUES = st.lists(
    st.one_of(
        st.sampled_from(PARTS),
        st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=6),
    ),
    max_size=6,
).map(" ".join)


@given(st.lists(st.tuples(WORDS, VALUES), max_size=15))
def test_what_is_made_of_any_lines_loads_and_can_be_shown(found: list[tuple[str, str]]) -> None:
    text = BEGIN + "topic first/#\n" + "\n".join(f"{option} {value}" for option, value in found)
    try:
        imported = convert(text, "m.conf")
    except ConfigError as error:
        pytest.fail(f"{text!r}: {error}")
    printed = imported.text("m.conf")
    assert printable(printed, keep="\n") == printed
    assert yaml.safe_load(printed) == imported.document
    parse_config(imported.document, "out", Path())

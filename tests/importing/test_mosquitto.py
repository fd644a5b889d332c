"""What of a mosquitto.conf a configuration says, and what is named as not the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ildm.config import ConfigError, parse_config
from ildm.importing.bridge_options import BRIDGE, ENCRYPTED, NEEDLESS, READ, SAME, SYNONYMS, WITHOUT
from ildm.importing.mosquitto import Imported, convert
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
        ("topic a out 0 b/ c/ d", "expected a topic"),
        ("topic a up", "Input should be 'in', 'out' or 'both'"),
        ("topic a out 3", "Input should be 0, 1 or 2"),
        ("topic a out x", "Input should be 0, 1 or 2"),
        ("topic a/#/b", "'a/#/b' is no topic filter"),
        ("topic a out 0 pre post/", "'pre': a prefix is whole levels"),
        ("topic $SYS/# out", "topics that begin with $"),
        ("topic a out 0 $x/", "topics that begin with $"),
        ('topic "" out 0 a/b a/c', "whole levels at their beginning"),
        ('topic "" out 0', "whole levels at their beginning"),
        ("topic # both 0 x/ first/", "both become"),
        (
            "address two.example.org three.example.org four.example.org:1884",
            "two.example.org alone is taken. Is three.example.org or four.example.org:1884 a spare broker",
        ),
        ("address", "no address"),
        ("keepalive_interval 7200", "a number from 1 to 3600"),
        ("restart_timeout 0", "expected seconds"),
        ("bridge_max_packet_size 12", "a number from 1024"),
        ("cleansession true", "kept for it"),
        ("notifications true", "ildm status"),
        ("bridge_insecure true", "always checked"),
    ],
)
def test_what_cannot_be_said_is_named_with_its_line(line: str, expected: str) -> None:
    [(number, text)] = remarks("try_private true", line)
    assert number == 5
    assert text.startswith(line.partition(" ")[0])
    assert expected in text


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
        assert remarks(f"{option} {value}") == []


def test_numbers_and_accounts() -> None:
    imported = converted(
        "keepalive_interval 30", "restart_timeout 5 60", "bridge_max_packet_size 2048", "local_username u"
    )
    link = imported.document["link"]
    assert (link["keep_alive"], link["reconnect_min"], link["reconnect_max"]) == (30, 5.0, 60.0)
    assert link["packet_size"] == 2048
    assert imported.document["broker"]["username"] == "u"
    assert imported.remarks == []


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
        + "topic a\nconnection b c\naddress [2001:db8::1]:1883\ntopic b in\nconnection none\naddress x\n"
    )
    imported = convert(text, "m.conf")
    link = imported.document["link"]
    assert link["neighbors"] == ["far.example.org:1885", "[2001:db8::1]:1885"]
    assert [each["id"] for each in link["neighbor_rules"]] == ["c", "b-c"]
    assert [each["rules"][0]["allow"] for each in link["neighbor_rules"]] == [["a"], ["b"]]
    said = [remark.text for remark in imported.remarks]
    assert "connection none has no topic that can be taken: it is left out" in said
    assert "give the node at [2001:db8::1]:1885 the node_id b-c: its rules are by that" in said
    parse_config(imported.document, "out", Path())


def test_lines_before_a_connection_belong_to_none() -> None:
    imported = convert("topic a\n" + BEGIN + "topic b", "m.conf")
    assert [(remark.line, remark.text[:8]) for remark in imported.remarks] == [(1, "topic a:")]


def test_the_command(tmp_path: Path) -> None:
    conf = tmp_path / "mosquitto.conf"
    conf.write_text(BEGIN + "topic a\nnotifications true\n")
    done = ildm(tmp_path, "import", conf)
    assert done.returncode == 0
    assert f"{conf}:4: notifications true: no topic tells" in done.stderr
    assert yaml.safe_load(done.stdout)["algorithm"] == "sf"
    conf.write_text("listener 1883\n")
    assert ildm(tmp_path, "import", conf).returncode == 2
    assert ildm(tmp_path, "import", tmp_path).returncode == 2
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d/bridge.conf").write_text("# mine\n" + BEGIN + "topic a\nnotifications true\n")
    conf.write_text("listener 1883\nallow_anonymous true\ninclude_dir conf.d\n")
    done = ildm(tmp_path, "import", conf)
    assert done.returncode == 0
    assert done.stderr.startswith(
        f"ildm: {tmp_path}/conf.d/bridge.conf:5: notifications true: no topic tells"
    )
    with pytest.raises(ConfigError, match="no bridge in it"):
        convert("listener 1883\n", "m.conf")

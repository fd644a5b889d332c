"""What brokers get for measurements, and what stands before them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ildm.testing.live.brokers import KINDS, Broker, new_broker
from ildm.testing.live.node import NodeProcess, merge, write_private
from ildm.testing.live.process import Placement


def configuration(broker: Broker) -> str:
    """Command line and files of a broker."""
    command = " ".join(map(str, broker.command()))
    paths = sorted(broker.directory.rglob("*"))
    files = [path.read_text() for path in paths if path.is_file() and not path.is_symlink()]
    return "\n".join([command, *files])


@pytest.mark.parametrize(
    ("make", "tuned", "untuned"),
    [
        ("mosquitto", ["max_queued_messages 0\n", "max_inflight_messages 0\n", "log_type error\n"], []),
        ("rabbitmq", ["log.console.level = error\n"], []),
        ("activemq", ["-Xmx1g", "-XX:+UseParallelGC"], ["TieredStopAtLevel"]),
        ("moquette", ["-Xmx1g", "-XX:+UseParallelGC"], ["TieredStopAtLevel"]),
    ],
)
def test_tuned_brokers_are_set_for_speed(
    tmp_path: Path, make: str, tuned: list[str], untuned: list[str]
) -> None:
    fast, quick = (
        configuration(new_broker(make, tmp_path / str(choice), tuned=choice)) for choice in (True, False)
    )
    assert all(words in fast for words in tuned)
    assert not all(words in quick for words in tuned)
    assert all(words in quick and words not in fast for words in untuned)


def test_mosquitto_with_an_acl_keeps_a_bound(tmp_path: Path) -> None:
    """Without one, 2.0 drops any client that publishes what its ACL denies."""
    broker = new_broker("mosquitto", tmp_path, tuned=True, acl="topic read #\n")
    broker.command()
    assert "max_queued_messages 1000000" in (tmp_path / "mosquitto.conf").read_text()


@pytest.mark.parametrize("make", KINDS)
def test_every_make_takes_a_placement(tmp_path: Path, make: str) -> None:
    broker = new_broker(make, tmp_path, place=Placement("198.18.0.9"))
    assert broker.address == ("198.18.0.9", broker.port)
    shown = configuration(broker)
    assert "198.18.0.9" in shown
    assert str(broker.port) in shown
    assert f"127.0.0.1:{broker.port}" not in shown


def test_a_node_relays_only_without_an_algorithm(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path, ("127.0.0.1", 1), None, extra={"link": {"sessions": 2}})
    assert node.document["algorithm"] is None
    assert (node.document["link"]["listen"], node.document["link"]["sessions"]) == (None, 2)


def test_changes_are_merged_section_by_section() -> None:
    document = {"a": {"b": 1, "c": {"d": 2}}, "e": 3}
    merge(document, {"a": {"c": {"f": 4}}, "e": {"g": 5}})
    assert document == {"a": {"b": 1, "c": {"d": 2, "f": 4}}, "e": {"g": 5}}


def test_a_private_file_is_private_also_where_an_open_one_was(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o600)

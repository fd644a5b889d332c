"""Rows whose meaning is damaged do not keep a node from starting, nor the others from being used."""

from __future__ import annotations

from ildm.api import Stamp
from ildm.core.local.clients import NEVER
from ildm.core.tables import RETAINED, SESSIONS, SUBSCRIPTIONS, TABLES, WILLS
from ildm.core.transfer.retained import stamped
from ildm.mqtt import PingReq, Publish, Version
from ildm.testing.virtual.node import make_node, plugin_specs
from ildm.testing.virtual.store import MemoryStore
from ildm.testing.virtual.world import World
from ildm_algorithms.pf import PublicationFlooding


def test_damaged_rows_are_set_aside() -> None:
    store = MemoryStore()
    good = stamped(Publish(topic="good", payload=b"x"), Stamp(5, "n")).encode(Version.V5)
    for topic, frame in {
        "good": good,
        "cut": good[:-3],
        "empty": b"",
        "other": good,
        "no publish": PingReq().encode(Version.V5),
        "garbage": b"\x3f\xff\xff\xff\xff",
    }.items():
        store.put(RETAINED, (topic,), (frame, None, None))
    store.put(SESSIONS, ("c",), (None, NEVER))
    store.put(SUBSCRIPTIONS, ("c", "a/#"), (1,))
    store.put(SUBSCRIPTIONS, ("c", "b"), (7,))
    store.put(SUBSCRIPTIONS, ("nobody", "b"), (1,))
    store.put(WILLS, ("c",), (b"\xff", 0, None))
    node = make_node(World(), "a", plugin_specs("pf", PublicationFlooding), store=store)
    node.start({})
    assert list(node.retained.values) == ["good"]
    assert node.clients.records["c"].filters == {"a/#": 1}
    assert {(table.name, key) for table, key, _ in store.damaged} == {
        *(("retained", (topic,)) for topic in ("cut", "empty", "other", "no publish", "garbage")),
        ("subscriptions", ("c", "b")),
        ("wills", ("c",)),
    }
    assert ("nobody", "b") not in store.rows(SUBSCRIPTIONS)  # what belongs to nobody goes


def test_names_of_tables_and_columns_are_plain_words() -> None:
    """They stand in statements as they are."""
    assert len({table.name for table in TABLES}) == len(TABLES)
    for table in TABLES:
        for name in (table.name, *table.key, *table.columns):
            assert name.isidentifier()
            assert name != "rowid"
        assert not set(table.key) & set(table.columns)

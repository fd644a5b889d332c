"""What a node remembers of its log."""

from __future__ import annotations

from ildm.net.history import KEPT, LONGEST, History


def test_long_values_are_cut_and_others_are_kept_as_they_are() -> None:
    history = History()
    history.add(1.0, "debug", "not kept", {})
    history.add(2.0, "info", "short", {"peer": "p" * LONGEST, "clean": True, "count": 3, "reason": None})
    history.add(3.0, "warning", "long", {"error": "e" * (LONGEST + 1), "count": 4, "kind": ("a", 1)})
    assert history.rows() == [
        {
            "number": 2,
            "time": 3.0,
            "level": "warning",
            "event": "long",
            "fields": {"error": "e" * LONGEST + "…", "count": 4, "kind": "('a', 1)"},
        },
        {
            "number": 1,
            "time": 2.0,
            "level": "info",
            "event": "short",
            "fields": {"peer": "p" * LONGEST, "clean": True, "count": 3, "reason": None},
        },
    ]


def test_clients_do_not_push_out_other_events_and_secrets_are_masked() -> None:
    history = History()
    history.add(0.0, "info", "node started", {"password": "hidden"})
    for number in range(KEPT + 5):
        history.add(1.0, "info", "client connected", {"client_id": str(number)})
    rows = history.rows()
    assert len(rows) == KEPT + 1
    assert [row["fields"]["client_id"] for row in rows[:2]] == [str(KEPT + 4), str(KEPT + 3)]
    assert rows[-1]["event"] == "node started"
    assert "hidden" not in str(rows)

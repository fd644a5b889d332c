"""Rare states that schedules are to reach: what never is, is not checked (after Antithesis' "sometimes")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ildm_bench.chaos.history import Event
from ildm_bench.chaos.schedule import CHANGES, PAIRED

REACHED = {
    "spool_torn": "torn tails of spools",
    "spool_resumed": "messages under way taken up after a restart",
    "spool_read": "messages read back from spools",
    "spool_rewritten": "segments of spools written anew",
    "spool_held": "sources held without room",
    "spool_writes_failed": "writes that failed",
    "link_repeated": "repeated by neighbours",
    "link_chunks_coded": "compressed chunks of links",
    "link_again": "rerouted",
    "link_rerouted": "routed anew",
    "link_conflated": "replaced by newer messages as they waited",
    "link_dropped_aged": "dropped as they had waited for too long",
    "link_set_back": "set back for newer ones as links came up",
    "retained_repaired": "retained values repaired",
    "mixed": "mixed batches written",
    "mixed_parts": "mixed batches freed in part",
    "mixed_cut": "mixed batches cut or torn at a restart",
    "sent_dup": "publications sent again",
    "received_dup": "receipts marked so",
    "in_doubt": "publications of unknown outcome",
    "session_lost": "sessions that brokers lost",
    "upgrade": "upgrades",
    "downgrade": "downgrades",
    "change_drained": "nodes drained for one of these",
    "change_waiting": "nodes with messages for links at one of these",
    "pair_claims": "claims of members of pairs",
    "pair_fenced": "silent owners ended for one of these",
    "pair_followed": "links that neighbours gave to a later owner at once",
    "links_older": "links of the former protocol",
    "links_fewer": "links with features that one end alone has",
    "discover_failed": "questions to name servers without an answer",
    "discover_refused": "addresses found for which there was no room",
    "tree": "changes of the tree",
    "tree_swaps": "changes of the tree for delays",
    "tree_swaps_given_up": "of these without the word that the old link has left",
    "wills": "wills sent on",
    "wills_left": "wills owed whose node was killed",
}
"""Counter -> what it counts. Names of nodes' counters, and of :func:`rare`."""


def rare(events: Iterable[Event]) -> Counter[str]:
    """What a history says of such states."""
    found: Counter[str] = Counter()
    invoked: dict[tuple[str, int], bool] = {}
    lives: dict[str, str] = {}
    down: set[str] = set()
    for event in events:
        match event.op, event.phase:
            case "publish", "invoke" if event.qos:
                invoked[event.publisher, event.seq] = True
            case "publish", "ok" | "fail":
                invoked.pop((event.publisher, event.seq), None)
            case "publish", "info" if event.dup:
                found["sent_dup"] += 1
            case "receive", "ok" if event.dup:
                found["received_dup"] += 1
            case "connect", "ok":
                if event.value == "resume" and lives.get(event.process, event.session) != event.session:
                    found["session_lost"] += 1
                lives[event.process] = event.session
            case "fault", _ if event.topic.startswith("kill") or event.topic in CHANGES | PAIRED:
                down.add(event.session)
                if event.topic in CHANGES:
                    found[event.topic] += 1
            case "heal", _:
                down.discard(event.session)
            case "will", "ok" if f"node/{event.site}" in down:
                found["wills_left"] += 1
            case "tree", "info":
                found["tree"] += 1
    found["in_doubt"] = len(invoked)
    return found

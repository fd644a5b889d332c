"""The samples of all metrics of a live node, taken when somebody asks for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from ildm.admin import families as metrics
from ildm.admin.exposition import Family, Histogram, Sample
from ildm.core.declared import COUNTED
from ildm.core.timing import BUCKETS
from ildm.net.spool_view import state_row

if TYPE_CHECKING:
    from ildm.core.metrics import Metric
    from ildm.core.node import Node
    from ildm.core.pair.states import Member
    from ildm.core.timing import Timing
    from ildm.net.lag import LagWatch
    from ildm.net.view import LiveView

NEIGHBORS = 200
"""Neighbours that have series of their own, the rest is counted; links on demand have none."""
RULES = 1000
"""Rules that have series of their own."""
PLUGIN_NAMES = 250
"""Counters, and gauges, of each plugin that are shown; the rest is counted."""
LONGEST = 80
"""Characters of a label that others have chosen."""


def scrape(
    view: LiveView, lag: LagWatch | None, version: str, ready: bool, broker_up: bool
) -> Iterator[Family]:
    """All families, each with its samples. Everything is taken in one turn of the event loop."""
    node = view.node
    yield metrics.BUILD, [Sample((version, node.algorithm_name or "none"), 1)]
    yield from _plain(node, view, ready, broker_up)
    if view.member is not None:
        yield from pair_figures(view.member)
    if lag is not None:
        yield metrics.LAG, [_timed(lag.observed)]
    for metric, timing in (
        (metrics.HANDSHAKE, node.timings.handshake),
        (metrics.BROKER_CONNECT, node.timings.connect),
        (metrics.BROKER_CONNACK, node.timings.connack),
        (metrics.HANDOVER, node.timings.handover),
    ):
        yield metric, [_timed(timing)]
    yield metrics.CLIENTS, _clients(node)
    # links have one certificate for both ways
    ends = {each.key.removesuffix(".tls"): each.context.ends for each in view.certificates()}
    yield (
        metrics.CERTIFICATE_ENDS,
        [Sample((use,), end) for use, end in ends.items() if end is not None],
    )
    yield from counted(view.node_counters())
    left_out: dict[str, int] = {}
    yield from _links(view, left_out)
    yield (
        metrics.RULE_HITS,
        [
            Sample((row["rule"], way), row[f"hits_{way}"])
            for row in view.rules()[:RULES]
            for way in ("in", "out")
            if row["direction"] in (way, "both")
        ],
    )
    yield from _plugins(node, left_out)
    yield metrics.LEFT_OUT, [Sample((of,), number) for of, number in left_out.items()]


def pair_figures(member: Member) -> Iterator[Family]:
    """What is measured of a member of a pair."""
    yield metrics.PAIR_STATE, [Sample((), member.state.value)]
    yield metrics.PAIR_EPOCH, [Sample((), member.epoch)]
    yield metrics.PAIR_SPARED, [Sample((), int(member.spared is not None))]
    yield metrics.PAIR_GUESTS, [Sample((), member.guests())]
    yield metrics.PAIR_UNCONFIRMED, [Sample((), member.unconfirmed())]


def _timed(timing: Timing) -> Sample:
    return Sample((), Histogram(BUCKETS, tuple(timing.counts), timing.sum))


def _clients(node: Node) -> list[Sample]:
    """Those of each listener; who came by one that is there no more still counts there."""
    found = Counter({each.label: 0 for _, each in node.config.clients_at})
    found.update(session.origin.listener for session in node.sessions if session.origin is not None)
    return [Sample((listener,), number) for listener, number in found.items()]


def counted(counters: Mapping[str, int]) -> Iterator[Family]:
    """The declared counters; those that never were counted are 0, so that a rate is known from the first."""
    found: dict[Metric, list[Sample]] = {}
    for key, (metric, values) in COUNTED.items():
        found.setdefault(metric, []).append(Sample(values, counters.get(key, 0)))
    yield from found.items()


def _plain(node: Node, view: LiveView, ready: bool, broker_up: bool) -> Iterator[Family]:
    injector, links, store = node.injector, node.links.links.values(), view.store
    limit = node.config.link.queue_bytes
    spool = state_row(node)
    oldest = spool["oldest"]
    values: dict[Metric, float] = {
        metrics.START: node.started_at,
        metrics.READY: int(ready),
        metrics.SESSIONS: node.clients.persistent,
        metrics.BROKER_UP: int(broker_up),
        metrics.BROKER_UNMENDED: int(injector.auditor.unseen is not None),
        metrics.BROKER_SHARED: len(injector.same_broker.shared_with),
        metrics.BROKER_SHARING_UNKNOWN: int(injector.same_broker.unheard is not None),
        metrics.BROKER_QUEUE: injector.queued_messages,
        metrics.BROKER_QUEUE_BYTES: sum(sender.queued_bytes for sender in injector.senders),
        metrics.BROKER_QUEUE_LIMIT: limit,
        metrics.LINKS_ON_DEMAND: sum(link.on_demand for link in node.links.cooperation.active),
        metrics.LINK_QUEUE_LIMIT: limit,
        metrics.LINK_CONTEXTS: node.links.parts.compression.contexts.count,
        metrics.SPOOL_MESSAGES: spool["messages"],
        metrics.SPOOL_BYTES: spool["disk_bytes"],
        metrics.SPOOL_LIMIT: node.config.spool.bytes if node.custody is not None else 0,
        metrics.SPOOL_OLDEST: max(0.0, node.driver.wall() - oldest) if oldest is not None else 0,
        metrics.SPOOL_FULL: int(spool["full"]),
        metrics.SPOOL_FAILED: int(spool["failure"] is not None),
        metrics.STATE_WAITING: store.waiting_rows,
        metrics.STATE_FAILED: int(store.failure is not None),
        metrics.RETAINED_AHEAD: node.retained.clock.ahead,
        metrics.RETAINED: len(node.retained.values),
        metrics.SESSIONS_UNKNOWN: node.clients.unknown,
    }
    for metric, value in values.items():
        yield metric, [Sample((), value)]
    if (path := node.links.membership.path_seconds) is not None:
        yield metrics.TREE_PATH, [Sample((), path)]
    if node.has_overlay:
        read = [node.wire[1], *(link.wire[1] for link in links if link.connected)]
        yield metrics.OVERLAY_WIRE, [Sample((), min(read))]
    yield (
        metrics.FILTERS,
        [
            Sample(("clients",), node.clients.filters),
            Sample(("neighbors",), sum(len(link.interest) for link in links)),
        ],
    )


def _links(view: LiveView, left_out: dict[str, int]) -> Iterator[Family]:
    rows: dict[str, dict[str, Any]] = {}
    for row in view.neighbors():
        if not row["on_demand"]:
            rows.setdefault(_label(row["node_id"] or row["address"]), row)
    left_out["neighbors"] = max(0, len(rows) - NEIGHBORS)
    shown = list(islice(rows.items(), NEIGHBORS))
    yield metrics.LINK_STATE, [Sample((name, row["state"]), 1) for name, row in shown]
    yield (
        metrics.LINK_MESSAGES,
        [Sample((name, way), row[f"transferred_{way}"]) for name, row in shown for way in ("in", "out")],
    )
    for metric, key in (
        (metrics.CLOCK_SKEW, "clock_skew"),
        (metrics.LINK_RTT, "rtt"),
        (metrics.LINK_PROTOCOL, "protocol"),
    ):
        yield metric, [Sample((name,), row[key]) for name, row in shown if row[key] is not None]
    limited = [(name, row["rate"]) for name, row in shown if row["rate"] is not None]
    for metric, key in (
        (metrics.LINK_BUDGET_RATE, "bytes"),
        (metrics.LINK_BUDGET_USED, "used"),
        (metrics.LINK_BUDGET_WAITED, "waited"),
    ):
        yield metric, [Sample((name,), rate[key]) for name, rate in limited]
    parted = [(name, row["backlog"]) for name, row in shown if row["backlog"] is not None]
    for metric, key in ((metrics.LINK_BACKLOG, "messages"), (metrics.LINK_BACKLOG_AGE, "age")):
        yield metric, [Sample((name,), backlog[key]) for name, backlog in parted]
    coded = [(name, row["compression"]) for name, row in shown if row["compression"] is not None]
    for metric, kind in ((metrics.LINK_PLAIN_BYTES, "plain"), (metrics.LINK_CODED_BYTES, "coded")):
        yield (
            metric,
            [Sample((name, way), row[f"{kind}_{way}"]) for name, row in coded for way in ("in", "out")],
        )
    yield metrics.LINK_QUEUE, [Sample((name,), row["queued_messages"]) for name, row in shown]
    yield metrics.LINK_QUEUE_BYTES, [Sample((name,), row["queued_bytes"]) for name, row in shown]


def _plugins(node: Node, left_out: dict[str, int]) -> Iterator[Family]:
    """One filter may stand in the chain more than once: each has a series of its own."""
    loaded = {_label(each.key): each for each in node.dispatch.loaded}
    yield metrics.PLUGIN_CALLS, [Sample((name,), each.calls) for name, each in loaded.items()]
    yield metrics.PLUGIN_SECONDS, [Sample((name,), each.seconds) for name, each in loaded.items()]
    left_out["plugins"] = 0
    for metric, held in (
        (metrics.PLUGIN_COUNTED, [(name, each.counters) for name, each in loaded.items()]),
        (metrics.PLUGIN_GAUGE, [(name, each.gauges) for name, each in loaded.items()]),
    ):
        samples: dict[tuple[str, ...], Sample] = {}
        for name, values in held:
            chosen: Sequence[tuple[str, float]] = list(islice(values.items(), PLUGIN_NAMES))
            left_out["plugins"] += len(values) - len(chosen)
            for key, value in chosen:
                labels = (name, _label(key))
                samples.setdefault(labels, Sample(labels, value))
        yield metric, list(samples.values())


def _label(text: str) -> str:
    return text[:LONGEST]

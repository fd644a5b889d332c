"""All metrics a node shows: its counters (``core/declared.py``), and what is measured when it is asked for.

``scrape`` gives samples of these families and of no others; rules and boards name only these.
"""

from __future__ import annotations

from ildm.core.declared import COUNTED
from ildm.core.metrics import Kind, Metric


def _gauge(name: str, unit: str, help: str, *labels: str, kind: Kind = "gauge") -> Metric:
    return Metric(name, kind, unit, help, labels)


BUILD = _gauge("build_info", "nodes", "1, with the version and the algorithm", "version", "algorithm")
START = _gauge("start_time_seconds", "seconds", "When the node was started, Unix time")
READY = _gauge("ready", "nodes", "1: it listens, does not stop, and its broker is there")
LAG = _gauge("event_loop_lag_seconds", "seconds", "How late timers of the event loop were", kind="histogram")
CLIENTS = _gauge("client_connections", "connections", "Clients connected now", "listener")
HANDSHAKE = _gauge(
    "client_handshake_seconds", "seconds", "How long TLS with clients took to begin", kind="histogram"
)
SESSIONS = _gauge("sessions_persistent", "sessions", "Persistent sessions, of clients that are away, too")
FILTERS = _gauge("subscriptions", "filters", "Topic filters of clients and of neighbours", "of")
CERTIFICATE_ENDS = _gauge(
    "certificate_expiry_timestamp_seconds",
    "seconds",
    "When a certificate that the node shows ends, Unix time; of several names the first",
    "use",
)
BROKER_UP = _gauge("broker_up", "brokers", "1: the broker is there")
BROKER_UNMENDED = _gauge("broker_unmended", "brokers", "1: retained messages of the broker are not compared")
BROKER_SHARED = _gauge(
    "broker_shared", "nodes", "Neighbours with the same broker, whose link was refused in the last 5 minutes"
)
BROKER_SHARING_UNKNOWN = _gauge(
    "broker_sharing_unknown", "brokers", "1: it is not found out whether a neighbour has the same broker"
)
BROKER_CONNECT = _gauge(
    "broker_connect_seconds", "seconds", "How long connections to the broker took", kind="histogram"
)
BROKER_CONNACK = _gauge(
    "broker_connack_seconds", "seconds", "How long the broker took to answer CONNECT", kind="histogram"
)
HANDOVER = _gauge(
    "handover_pause_seconds",
    "seconds",
    "How long nobody was served while an upgrade handed the clients over",
    kind="histogram",
)
BROKER_QUEUE = _gauge("broker_queue_messages", "messages", "Messages of other sites that wait for the broker")
BROKER_QUEUE_BYTES = _gauge("broker_queue_bytes", "bytes", "The same in bytes")
BROKER_QUEUE_LIMIT = _gauge("broker_queue_limit_bytes", "bytes", "Bound of that")
LINK_STATE = _gauge(
    "link_state", "links", "1 for the state that the link with a neighbour has", "neighbor", "state"
)
TREE_PATH = _gauge(
    "tree_path_seconds",
    "seconds",
    "Time one way along the longest path in the tree, by what links weigh",
)
LINKS_ON_DEMAND = _gauge("links_on_demand", "links", "Links on demand that are open")
LINK_MESSAGES = _gauge(
    "link_messages_total",
    "messages",
    "Messages from and to a neighbour, since its link was added",
    "neighbor",
    "direction",
    kind="counter",
)
RULE_HITS = _gauge(
    "link_rule_hits_total",
    "messages",
    "Messages that a rule of link or site has decided about",
    "rule",
    "direction",
    kind="counter",
)
CLOCK_SKEW = _gauge(
    "clock_skew_seconds", "seconds", "How far a neighbour's clock is ahead of this node's", "neighbor"
)
LINK_RTT = _gauge("link_rtt_seconds", "seconds", "Round-trip time of the link with a neighbour", "neighbor")
LINK_BUDGET_RATE = _gauge(
    "link_budget_bytes_per_second",
    "bytes",
    "Bytes a second that may go to a neighbour (link.rate)",
    "neighbor",
)
LINK_BUDGET_USED = _gauge(
    "link_budget_used_ratio", "ratio", "Part of that which was used in the last 10 to 20 s", "neighbor"
)
LINK_BUDGET_WAITED = _gauge(
    "link_budget_neighbor_waited_bytes_total",
    "bytes",
    "Bytes of messages to a neighbour that had to wait for that",
    "neighbor",
    kind="counter",
)
LINK_BACKLOG = _gauge(
    "link_backlog_messages",
    "messages",
    "Messages to a neighbour that go after newer ones (backlog: after_live), at most",
    "neighbor",
)
LINK_BACKLOG_AGE = _gauge(
    "link_backlog_age_seconds", "seconds", "How long the oldest of them in memory has waited", "neighbor"
)
LINK_PLAIN_BYTES = _gauge(
    "link_neighbor_plain_bytes_total",
    "bytes",
    "Bytes from and to a neighbour on links with compression, as they were before it",
    "neighbor",
    "direction",
    kind="counter",
)
LINK_CODED_BYTES = _gauge(
    "link_neighbor_coded_bytes_total",
    "bytes",
    "The same bytes as they went over the link",
    "neighbor",
    "direction",
    kind="counter",
)
LINK_PROTOCOL = _gauge(
    "link_protocol", "versions", "Version of the link protocol spoken with a neighbour", "neighbor"
)
OVERLAY_WIRE = _gauge(
    "overlay_lowest_wire",
    "versions",
    "Version of the overlay's messages that this node and all its neighbours read",
)
LINK_QUEUE = _gauge("link_queue_messages", "messages", "Messages that wait for a neighbour", "neighbor")
LINK_QUEUE_BYTES = _gauge("link_queue_bytes", "bytes", "The same in bytes", "neighbor")
LINK_QUEUE_LIMIT = _gauge("link_queue_limit_bytes", "bytes", "Bound of the bytes that wait for one neighbour")
LINK_CONTEXTS = _gauge(
    "link_compression_contexts", "sessions", "Sessions of links that compress what they send"
)
SPOOL_MESSAGES = _gauge("spool_messages", "messages", "Messages in the spool, one for each receiver")
SPOOL_BYTES = _gauge("spool_disk_bytes", "bytes", "What the spool takes on the disk")
SPOOL_LIMIT = _gauge("spool_limit_bytes", "bytes", "Bound of that")
SPOOL_OLDEST = _gauge("spool_oldest_seconds", "seconds", "Age of the oldest message in the spool")
SPOOL_FULL = _gauge("spool_full", "spools", "1: publishers of QoS 1 and 2 wait for room, or are refused")
SPOOL_FAILED = _gauge("spool_failed", "spools", "1: the spool cannot be written")
STATE_WAITING = _gauge("state_waiting_rows", "rows", "Changes of the state that are not saved yet")
STATE_FAILED = _gauge("state_failed", "files", "1: the state file cannot be written")
RETAINED_AHEAD = _gauge(
    "retained_clock_ahead_seconds", "seconds", "How far stamps made now are ahead of the own clock"
)
RETAINED = _gauge("retained_messages", "messages", "Retained messages remembered")
SESSIONS_UNKNOWN = _gauge(
    "sessions_unknown", "sessions", "Sessions older than the node, whose filters it does not know"
)
PAIR_STATE = _gauge(
    "pair_state", "members", "State of this member: 1 standby, 2 fencing, 3 claiming, 4 owner; 0, 5: neither"
)
PAIR_EPOCH = _gauge("pair_epoch", "epochs", "Of the claim of the member that owns the site; 0: unknown")
PAIR_SPARED = _gauge("pair_owner_spared", "members", "1: the owner is silent, and cannot be ended from here")
PAIR_GUESTS = _gauge("pair_guests", "clients", "Clients of other members that this owner of the site serves")
PAIR_UNCONFIRMED = _gauge(
    "pair_unconfirmed_bytes", "bytes", "What this member has told of its clients and no owner has confirmed"
)
PLUGIN_CALLS = _gauge("plugin_calls_total", "events", "Calls of a plugin", "plugin", kind="counter")
PLUGIN_SECONDS = _gauge(
    "plugin_call_seconds_total", "seconds", "Time spent in calls of a plugin", "plugin", kind="counter"
)
PLUGIN_COUNTED = _gauge(
    "plugin_counted_total", "events", "What a plugin counts", "plugin", "name", kind="counter"
)
PLUGIN_GAUGE = _gauge("plugin_gauge", "values", "What a plugin measures", "plugin", "name")
LEFT_OUT = _gauge("series_left_out", "series", "Series not shown here, beyond a bound of their number", "of")

MEASURED = (
    BUILD,
    START,
    READY,
    LAG,
    CLIENTS,
    HANDSHAKE,
    HANDOVER,
    SESSIONS,
    FILTERS,
    CERTIFICATE_ENDS,
    BROKER_UP,
    BROKER_UNMENDED,
    BROKER_SHARED,
    BROKER_SHARING_UNKNOWN,
    BROKER_CONNECT,
    BROKER_CONNACK,
    BROKER_QUEUE,
    BROKER_QUEUE_BYTES,
    BROKER_QUEUE_LIMIT,
    LINK_STATE,
    TREE_PATH,
    LINKS_ON_DEMAND,
    LINK_MESSAGES,
    RULE_HITS,
    CLOCK_SKEW,
    LINK_RTT,
    LINK_BUDGET_RATE,
    LINK_BUDGET_USED,
    LINK_BUDGET_WAITED,
    LINK_BACKLOG,
    LINK_BACKLOG_AGE,
    LINK_PLAIN_BYTES,
    LINK_CODED_BYTES,
    LINK_PROTOCOL,
    OVERLAY_WIRE,
    LINK_QUEUE,
    LINK_QUEUE_BYTES,
    LINK_QUEUE_LIMIT,
    LINK_CONTEXTS,
    SPOOL_MESSAGES,
    SPOOL_BYTES,
    SPOOL_LIMIT,
    SPOOL_OLDEST,
    SPOOL_FULL,
    SPOOL_FAILED,
    STATE_WAITING,
    STATE_FAILED,
    RETAINED_AHEAD,
    RETAINED,
    SESSIONS_UNKNOWN,
    PAIR_STATE,
    PAIR_EPOCH,
    PAIR_SPARED,
    PAIR_GUESTS,
    PAIR_UNCONFIRMED,
    PLUGIN_CALLS,
    PLUGIN_SECONDS,
    PLUGIN_COUNTED,
    PLUGIN_GAUGE,
    LEFT_OUT,
)
METRICS = {metric.name: metric for metric in (*(counted.metric for counted in COUNTED.values()), *MEASURED)}
"""Name without prefix -> family, of all there are."""

"""All counters of a node: name, unit, labels, help text. Any other name is an error (``counters.py``)."""

from __future__ import annotations

from typing import Literal, get_args

from ildm.core.metrics import by_reason, counter, counters, united

QOS = ("0", "1", "2")
Left = Literal[
    "blocked",
    "lost",
    "neighbor_expired",
    "no_path",
    "other_path",
    "overflow",
    "removed",
    "replaced",
    "shutdown",
]
"""Why messages that wait for a link or the broker are dropped together; counted by QoS. What was on disk
alone, of QoS 1 and 2, is counted as ``spooled``."""
LEFT: tuple[Left, ...] = get_args(Left)
SINGLE = ("aged", "expired", "not_encodable", "outdated", "poison", "rules", "too_large")
"""Why one message is dropped that could have been sent otherwise."""
REFUSALS = (
    "algorithm",
    "certificate",
    "copied-id",
    "deposed",
    "downgrade",
    "duplicate",
    "limit",
    "own-id",
    "same-broker",
    "secret",
    "stale",
    "version",
    "wrong-node",
)
"""Kinds of :class:`ildm.core.link.hello.Refusal` that a node says to a neighbour which introduces itself."""


def _dropped(lane: str) -> dict[str, tuple[str, str]]:
    """Names of the counters of a kind of lane -> reason and QoS."""
    found = {f"{lane}_dropped_{reason}_qos{qos}": (reason, qos) for reason in LEFT for qos in QOS}
    found |= {f"{lane}_dropped_{reason}_spooled": (reason, "spooled") for reason in LEFT}
    return found | {f"{lane}_dropped_{reason}": (reason, "") for reason in SINGLE}


CLIENTS = united(
    counters(
        "client_messages",
        "messages",
        "Messages (PUBLISH) of clients, in: to the broker, out: from the broker",
        ("direction",),
        {"messages_in": "in", "messages_out": "out"},
    ),
    counter("clients_connected", "connections", "Clients that the broker has accepted"),
    counter("clients_banned", "connections", "Clients refused, as an administrator keeps them out"),
    counter("clients_kicked", "connections", "Clients ended by an administrator"),
    counter("clients_handed_over", "connections", "Clients that an upgrade has left connected"),
    counter("clients_sent_away", "connections", "Clients that an upgrade could not leave connected"),
    counter("handover_failed", "upgrades", "Upgrades that have failed, so that the node has gone on"),
    counter("clients_rejected", "connections", "Clients rejected by a filter"),
    counter(
        "authentication_failures",
        "connections",
        "Clients refused for who they are: by the broker, a filter or an administrator",
    ),
    counter(
        "clients_over_inflight",
        "connections",
        "Clients ended, as they sent more than their receive maximum, or more than there is memory for",
    ),
    counter(
        "clients_unread",
        "events",
        "Times a client was read no further, as it had sent link.inflight while its acknowledgements wait",
    ),
    counter(
        "connections_refused", "connections", "Connections of clients refused: a limit, or the node stops"
    ),
    counter(
        "connections_refused_descriptors",
        "connections",
        "Those of them that were refused for want of file descriptors",
    ),
    counter(
        "out_of_descriptors", "events", "A connection to the broker could not be made: no file descriptor"
    ),
    counter("connect_timeouts", "connections", "Clients without a CONNECT in time"),
    counter("connack_timeouts", "connections", "Clients whose broker has sent no CONNACK in time"),
    counter("broker_unavailable", "connections", "Clients told that the broker is not there"),
    counter("broker_failovers", "events", "Another address of the broker was taken up"),
    counter(
        "broker_sessions_taken",
        "events",
        "Another client took the node's own session: a second node?",
    ),
    counter(
        "broker_hang_ups",
        "events",
        "The broker ended the node's own session without a word, after messages; those of QoS 0 may be lost",
    ),
    counter("broker_loops", "events", "The broker's address was found to lead back to this node"),
    counter("malformed", "packets", "Packets of clients that the standard forbids"),
    counter("malformed_from_broker", "packets", "Packets of the broker that the standard forbids"),
    counter("packets_over_limit", "packets", "Packets of clients beyond a limit of the configuration"),
    counter("publish_denied", "messages", "Messages and wills that the rules of publish keep at this site"),
    counter("refused_by_broker", "messages", "Messages that the broker has refused, so they do not cross"),
    counter("unanswered_by_broker", "messages", "Messages of clients that left before the broker answered"),
    counter("answers_out_of_order", "events", "Answers of the broker that have overtaken earlier ones"),
    counter("wills", "messages", "Wills sent to other sites"),
    counter("wills_not_saved", "messages", "Wills for which limits.will_bytes has no room"),
    counter("sessions_expired", "sessions", "Persistent sessions that have expired"),
    counter("sessions_imported", "sessions", "Sessions whose filters came by ildm sessions import"),
    counter("persistent_sessions_over_limit", "sessions", "Sessions ended beyond limits.persistent_sessions"),
    counter("subscriptions_over_limit", "filters", "Filters of clients that other sites are not told of"),
    counter(
        "retained_waits_expired",
        "events",
        "SUBSCRIBEs that went to the broker before retained messages were fetched (link.subscribe_wait)",
    ),
    counter("subscribe_waits_expired", "events", "SUBACKs given before all sites knew (link.subscribe_wait)"),
    counter(
        "start_waits_expired",
        "events",
        "Starts after which clients no longer waited for neighbours' interest (link.wait_at_start)",
    ),
    counter(
        "link_held_at_start",
        "messages",
        "Messages of neighbours that waited for other neighbours' interest (link.wait_at_start)",
    ),
    counter("save_waits_expired", "events", "Answers given before what they stand for was durable"),
)

PLUGINS = united(
    counter("filtered", "messages", "Messages that a filter has rejected"),
    counter("subscriptions_rejected", "filters", "Subscriptions that a filter has rejected"),
    counter("undecided", "packets", "Packets dropped with their connection, before a filter had decided"),
    counter("plugin_errors", "events", "Calls of plugins that failed"),
    counter("plugin_slow_hooks", "events", "Calls of plugins that took longer than limits.hook_warn"),
    counter("plugin_refused", "events", "Calls by plugins beyond one of their bounds"),
    by_reason(
        "transfer_refused",
        "messages",
        "Messages that the algorithm handed to a link which did not take them",
        ("full", "no_link"),
    ),
    counters(
        "algorithm_data",
        "messages",
        "Data of the algorithm itself, from and to other nodes",
        ("direction",),
        {"algorithm_in": "in", "algorithm_out": "out"},
    ),
    by_reason(
        "algorithm_dropped",
        "messages",
        "Data of the algorithm that was not sent",
        ("full", "not_sendable", "unreachable"),
    ),
)

TRANSFER = united(
    counters(
        "transferred",
        "messages",
        "Messages from and to neighbours, one for each link",
        ("direction",),
        {"transferred_in": "in", "transferred_out": "out"},
    ),
    counter("published", "messages", "Messages of clients handed to an overlay"),
    counter("injected", "messages", "Messages of other sites sent to the broker"),
    by_reason(
        "transfer_dropped",
        "messages",
        "Messages of clients that were relayed to the broker and cannot cross",
        ("partial", "unusable"),
    ),
    counters(
        "link_dropped", "messages", "Messages to neighbours dropped", ("reason", "qos"), _dropped("link")
    ),
    counters(
        "injection_dropped",
        "messages",
        "Messages to the broker dropped",
        ("reason", "qos"),
        _dropped("injection"),
    ),
    *(
        united(
            counter(f"{lane}_properties_dropped", "messages", f"{text} without their properties of MQTT 5"),
            counter(f"{lane}_retain_dropped", "messages", f"{text} without their retain flag"),
            counter(f"{lane}_refused", "messages", f"{text} and refused there"),
            counter(f"{lane}_unanswered", "messages", f"{text}, never answered, and taken for answered"),
            counter(f"{lane}_unguarded", "messages", f"{text} at QoS 2, which a failing disk does not keep"),
        )
        for lane, text in (
            ("link", "Messages sent to a neighbour"),
            ("injection", "Messages sent to the broker"),
        )
    ),
    counters(
        "injection_uncertain",
        "messages",
        "QoS 2 messages whose session the broker has forgotten, so whether it had them is unknown",
        ("outcome",),
        {"injection_uncertain_resent": "resent", "injection_uncertain_dropped": "dropped"},
    ),
    counter("acknowledged_early", "messages", "Acknowledged to a neighbour before the broker had them"),
    counter("link_rerouted", "messages", "Messages that waited for a broken link and went over another"),
    counter(
        "link_not_rerouted", "messages", "Messages that should go other ways, too, and found no room there"
    ),
    counter("link_repeated", "messages", "Messages that had come before, and were taken for that"),
    counter("link_again", "messages", "Messages sent anew on another way, which were new here"),
    counter(
        "link_again_withheld",
        "messages",
        "Messages sent anew on another way that clients here want at QoS 0, and may have had",
    ),
    counter(
        "link_again_unsure",
        "messages",
        "QoS 2 messages sent anew on another way to a node that began without state, which may have had them",
    ),
    counter("link_identities_forgotten", "messages", "Identities of messages forgotten for want of room"),
    counter("route_cache_flushes", "events", "The cache of routes was full and emptied"),
    counter("retained_forgotten", "messages", "Retained messages forgotten, beyond limits.retained_messages"),
    counter("retained_deletions_forgotten", "messages", "Deletions of retained messages forgotten likewise"),
    counter("retained_checks_forgotten", "messages", "Topics not looked at again, for want of room"),
    counter("retained_old_news", "messages", "Retained messages dropped, as newer ones had come before"),
    counter("clock_steps", "events", "Times that the node's clock was set while it ran"),
    counter("retained_refused_future", "messages", "Retained messages stamped beyond limits.clock_skew"),
    counter("retained_repeated", "messages", "Retained messages repeated to a neighbour that lacked them"),
    counter("retained_repaired", "messages", "Retained messages set again at the broker, which lacked them"),
    counter(
        "retained_repair_withheld",
        "messages",
        "Retained messages not set again at the broker, which hangs up on them",
    ),
    counter("retained_too_large", "messages", "Retained messages too large to be remembered"),
    counter("retained_wills_overruled", "messages", "Wills in whose place the broker's own value was sent"),
    counter("retained_audit_denied", "messages", "Retained topics that the broker does not let the node see"),
    counter("retained_audit_failed", "messages", "Retained topics given up, as the broker did not answer"),
)

LINKS = united(
    counter("pair_claims", "claims", "Times that this process has become the owner of its site"),
    counter("pair_clients_held", "clients", "Times that a client of this member had to wait for the owner"),
    counter("pair_deposited", "messages", "Messages of this member's clients that the owner was given"),
    counter("pair_dropped_alone", "messages", "Messages of QoS 0 that no owner was there for"),
    counter(
        "pair_superseded",
        "messages",
        "Messages of QoS 2 that a member has given the owner late: their client has gone on elsewhere",
    ),
    counter("pair_unusable", "records", "Records of other members that make no sense to the owner"),
    counter("pair_guests_left", "clients", "Clients of a member that has ended, taken for gone"),
    counter("pair_deposed", "connections", "Neighbours that know a later owner of this site than this node"),
    counter("pair_followed", "links", "Links taken over at once by a later owner of the neighbour's site"),
    by_reason("links_refused", "connections", "Neighbours that this node has refused", REFUSALS),
    counter(
        "tls_handshakes_failed",
        "connections",
        "Connections to a listener that ended before TLS was agreed: no or a wrong certificate, no answer",
    ),
    counter("tls_handshakes_refused", "connections", "The same, as too many were in the handshake"),
    counter("websocket_refused", "connections", "Connections that did not become a WebSocket"),
    counter("websocket_errors", "connections", "WebSockets ended, as the client sent what is none, or text"),
    by_reason(
        "connections_refused_address",
        "connections",
        "Connections of clients refused for what comes from their address",
        ("auth", "connections", "handshakes", "rate"),
    ),
    counter("proxy_headers_refused", "connections", "Connections of proxies without a PROXY header in time"),
    counter("internal_errors", "errors", "Errors of this node, each of which ended a connection or a call"),
    counter("turns_waited", "reads", "Times a read, or the rest of one, waited for its turn behind others"),
    counter("read_slots", "events", "Times the node began to read in slots under load (limits.read_wait)"),
    counter("read_slots_vain", "events", "Times it gave slots up, as nothing was gained"),
    counter("accept_failures", "errors", "Times accepting paused, as file descriptors or memory had run out"),
    counter("certificates_renewed", "changes", "Times changed files of certificates were taken up"),
    counter("certificates_unusable", "errors", "Times changed files of certificates could not be used"),
    counter("link_connections_refused", "connections", "Connections to link.listen beyond the bound"),
    counters(
        "discover_questions",
        "questions",
        "Questions to DNS for neighbours (link.discover)",
        ("result",),
        {"discover_answered": "answered", "discover_failed": "failed"},
    ),
    counter("discover_refused", "addresses", "Addresses of neighbours found for which there was no room"),
    counter("link_refusals_forgotten", "entries", "Refused neighbours that the list of them had no room for"),
    counter("link_sessions_lost", "connections", "Connections of links that broke"),
    counter("link_sessions_unread", "connections", "Connections ended, as the neighbour read nothing"),
    counter("links_lost", "links", "Links of an overlay that broke"),
    counter("links_expired", "links", "Links of a tree whose neighbours were away for link.expiry"),
    counters(
        "link_plain_bytes",
        "bytes",
        "Bytes over links with compression, as they were before it",
        ("direction",),
        {"link_plain_bytes_in": "in", "link_plain_bytes_out": "out"},
    ),
    counters(
        "link_coded_bytes",
        "bytes",
        "The same bytes as they went over the link",
        ("direction",),
        {"link_coded_bytes_in": "in", "link_coded_bytes_out": "out"},
    ),
    counters(
        "link_chunks",
        "chunks",
        "Chunks sent over links with compression, compressed or stored as they are",
        ("kind",),
        {"link_chunks_coded": "coded", "link_chunks_stored": "stored"},
    ),
    counter("link_budget_waited_bytes", "bytes", "Bytes of messages that had to wait for link.rate"),
    counter(
        "link_budget_overdrawn",
        "events",
        "Times a neighbour was read no further, as answers to it took more than link.rate",
    ),
    counter("link_contexts_refused", "writes", "Writes stored, as all contexts of compression were in use"),
    counter("link_malformed", "packets", "Packets of neighbours that cannot be"),
    counter("link_internal_errors", "events", "Links broken by an error of this node"),
    counter("link_unknown_control", "packets", "Control messages of neighbours that are not understood"),
    counter("traces_begun", "traces", "Traces of messages that this node has taken part in"),
    counter("traces_refused", "traces", "Traces of messages that were too many at a time"),
    counter("trace_spans_exported", "spans", "Spans that the collector of traces has taken"),
    counter("trace_spans_dropped", "spans", "Spans for which trace.queue had no room"),
    counter("trace_spans_refused", "spans", "Spans that the collector of traces has not taken"),
    counter("trace_events_dropped", "events", "What was noted for a trace and could not be told"),
    counter("link_blocked_messages", "messages", "Messages that came over a blocked link, and were dropped"),
    counter("link_denied", "messages", "Messages of neighbours that link.rules keep out"),
    counter("site_rules_denied", "messages", "Messages of other sites that site.rules keep out"),
    counter("site_rules_kept", "messages", "Messages of clients that site.rules keep at this site"),
    counter(
        "link_deadline_missed", "messages", "Messages sent to neighbours after the deadline of their class"
    ),
    counter(
        "link_conflated",
        "messages",
        "Messages that waited for neighbours, until newer ones of their topics came",
    ),
    counter(
        "link_not_conflated",
        "messages",
        "Messages on disk of more topics than can be conflated",
    ),
    counter("link_skipped_untold", "messages", "Messages let go of which a neighbour could not be told"),
    counter(
        "link_starved", "events", "Times a low priority of a link went first, as it had waited for a minute"
    ),
    counter(
        "link_set_back",
        "messages",
        "Messages that had waited as a link came up, and went after newer ones (backlog: after_live)",
    ),
    counter("link_classes_flushes", "events", "The memory of what link.classes say was full and emptied"),
    counter("link_rules_flushes", "events", "The memory of what link.rules say was full and emptied"),
    counter("inter_subscribes", "filters", "Filters subscribed to at neighbours"),
    counter("inter_unsubscribes", "filters", "Filters unsubscribed from at neighbours"),
    counter("inter_subscribes_refused", "filters", "Filters that neighbours have refused"),
    counter("inter_subscribes_dropped_too_large", "filters", "Filters too large for a neighbour's packets"),
    counter("interest_over_limit", "filters", "Filters of neighbours refused, beyond a limit"),
    counter(
        "interest_put_off", "events", "Times filters of a neighbour's packet were put off to a later turn"
    ),
    counter("interest_told_late", "events", "Waits for a neighbour to know of interest that took too long"),
    counter("interest_widened", "events", "A neighbour was full, and is asked for everything instead"),
    counter("advertisements_disputed", "events", "News of the tree that a node itself has contradicted"),
    counter("advertisements_second_hand", "events", "News of a neighbour that came from somebody else"),
    counter("tree_swaps", "events", "Other delays of links have given this node other links of the tree"),
    counter("tree_swaps_given_up", "events", "A new link has waited for link.settle, not for the old one"),
    counter("own_id_advertised", "events", "News in the name of this node, which it had not sent"),
    counter("node_ids_copied", "events", "Two nodes were found to have one node_id"),
    counter("on_demand_dials", "connections", "Links dialed on demand"),
    counter("on_demand_closed", "links", "Links on demand closed, as they were not used"),
    counter("on_demand_unreachable", "links", "Nodes that could not be reached on demand"),
)

STATE = united(
    counter("spool_records", "records", "Records written to the spool"),
    counter("spool_freed", "messages", "Messages of the spool that are done"),
    counter("spool_sync", "events", "Syncs of the spool to the disk"),
    by_reason(
        "spool_dropped",
        "messages",
        "Messages of the spool dropped: too old, no room, or told to",
        ("age", "full", "told"),
    ),
    counter("spool_held", "events", "Publishers and neighbours that had to wait for room in the spool"),
    counter("spool_refused", "messages", "Messages of clients refused, as the spool was full"),
    counter("spool_read", "messages", "Messages read back from the spool, in which they waited"),
    counter(
        "spool_read_in_turn",
        "events",
        "Times messages were read in order of arrival, as too many had been read out of turn",
    ),
    counter("spool_resumed", "messages", "Messages sent again that were under way in an earlier incarnation"),
    counter("spool_rewritten", "files", "Files of the spool written anew to free room"),
    counter("spool_writes_failed", "events", "Writes of the spool that failed"),
    counter("spool_syncs_failed", "events", "Syncs of the spool that failed"),
    counter("spool_torn", "files", "Files of the spool that end amid a record"),
    counter("spool_cut_short", "files", "Of these, files whose last write a kill has cut short"),
    counter("spool_damaged", "events", "Damaged places of the spool"),
    counter("spool_misplaced", "files", "Files of the spool under a name that is not theirs"),
    counter(
        "spool_lost", "messages", "Messages lost with parts of the spool, as far as these or the mark tell"
    ),
    counter("spool_marks_failed", "events", "Writes of the mark of the spool that failed"),
    counter("spool_unreadable", "messages", "Messages of the spool that could not be read"),
    counter("state_write_failures", "events", "Writes of the state file that failed"),
    counter("state_rows_dropped", "rows", "Changes of the state that were not saved"),
    counter("state_rows_refused", "rows", "Changes of the state that the file did not take"),
    counter("state_rows_damaged", "rows", "Damaged rows of the state, set aside"),
)

DASHBOARD = united(
    counter("metrics_requests_refused", "requests", "Requests to metrics.listen without the token"),
    counter("dashboard_logins_refused", "attempts", "Logins to the dashboard refused: wrong token, too many"),
    counter(
        "dashboard_requests_refused", "requests", "Requests to it refused: foreign page, name, or stranger"
    ),
    counter("dashboard_readers_refused", "requests", "Requests for its stream beyond the bound of readers"),
    counter("dashboard_events_skipped", "events", "Events that a reader of the stream was too slow for"),
    counter("dashboard_connections_refused", "connections", "Connections to it beyond the bound"),
    counter(
        "dashboard_connections_idle", "connections", "Connections to it that were ended, as they were idle"
    ),
    counter(
        "admin_connections_refused", "connections", "Connections to the admin API beyond admin.connections"
    ),
    counter("admin_connections_idle", "connections", "Connections to it that were ended, as they were idle"),
)

OPERATING = counters(
    "config_reloads",
    "reloads",
    "Times the configuration was to be read again, and what became of it",
    ("result",),
    {"config_reloads_applied": "applied", "config_reloads_refused": "refused"},
)

COUNTED = united(CLIENTS, PLUGINS, TRANSFER, LINKS, STATE, DASHBOARD, OPERATING)
"""Name in the node -> where it is shown."""

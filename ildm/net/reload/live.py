"""Which keys a node takes up while it runs. Every other one, also one that comes to be, needs a restart."""

from __future__ import annotations

LIVE = frozenset(
    {
        "listeners",
        "publish",
        "site.rules",
        "trace",
        "log",
        "metrics",
        "filters.options",
        "algorithm.options",
        "broker.address",
        "broker.addresses",
        "broker.username",
        "broker.password",
        "broker.password_file",
        "broker.connect_timeout",
        "broker.connack_timeout",
        "broker.tls",
        "link.tls",
        "dashboard.tls",
        "link.neighbors",
        "link.discover",
        "link.discover_interval",
        "link.rules",
        "link.neighbor_rules",
        "link.classes",
        "link.protocol",
        "link.features",
        "link.compression",
        "link.compression_encrypted",
        "link.rate",
        "link.secret",
        "link.secret_file",
        "link.subscribe_wait",
        "link.connect_timeout",
        "link.reconnect_min",
        "link.reconnect_max",
        "link.waiting_bytes",
        "link.idle",
        "link.max_neighbors",
        "link.max_links",
        "link.max_filters",
        "link.max_filter_bytes",
        *(
            f"limits.{name}"
            for name in (
                "clients",
                "packet_size",
                "connect_timeout",
                "per_address",
                "connect_rate",
                "handshakes",
                "auth_failures",
                "auth_block",
                "exempt",
                "write_buffer",
                "partial_bytes",
                "properties",
                "properties_bytes",
                "filters_per_packet",
                "subscriptions_per_client",
                "subscription_bytes",
                "all_subscription_bytes",
                "persistent_sessions",
                "retained_messages",
                "retained_bytes",
                "retained_deletions",
                "retained_deletion_bytes",
                "route_cache",
                "hook_warn",
                "decision_timeout",
                "plugin_timers",
                "plugin_sessions",
                "plugin_offloads",
                "plugin_names",
                "plugin_log_rate",
                "plugin_state_bytes",
                "unsaved_bytes",
                "will_grace",
                "will_bytes",
                "unanswered_messages",
                "unanswered_bytes",
                "drain_rate",
                "drain_timeout",
            )
        ),
    }
)
"""Dotted names in :class:`ildm.config.Config`, each with all that is below it."""


def is_live(path: str) -> bool:
    """Whether a change of a key is taken up by a node that runs."""
    parts = path.split(".")
    return any(".".join(parts[:length]) in LIVE for length in range(1, len(parts) + 1))

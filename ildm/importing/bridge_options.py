"""What becomes of each option of a Mosquitto bridge (mosquitto.conf(5), "Configuring Bridges")."""

from __future__ import annotations

SYNONYMS = {
    "addresses": "address",
    "clientid": "remote_clientid",
    "username": "remote_username",
    "password": "remote_password",
}
READ = frozenset(
    (
        "address",
        "bridge_cafile",
        "bridge_certfile",
        "bridge_keyfile",
        "bridge_max_packet_size",
        "connection",
        "keepalive_interval",
        "local_password",
        "local_username",
        "restart_timeout",
        "topic",
    )
)
"""Those that a configuration of a node says, too."""
NEEDLESS = frozenset(
    (
        "bridge_alpn",
        "bridge_attempt_unsubscribe",
        "bridge_ciphers",
        "bridge_ciphers_tls1.3",
        "bridge_max_topic_alias",
        "bridge_protocol_version",
        "bridge_receive_maximum",
        "bridge_reload_type",
        "bridge_tcp_keepalive",
        "bridge_tcp_user_timeout",
        "bridge_tls_version",
        "local_clientid",
        "remote_clientid",
        "try_private",
    )
)
"""Details of the connection that links settle themselves."""
BOOLEAN = frozenset(
    (
        "bridge_insecure",
        "bridge_outgoing_retain",
        "bridge_require_ocsp",
        "bridge_tls_use_os_certs",
        "cleansession",
        "local_cleansession",
        "notifications",
        "notifications_local_only",
        "round_robin",
    )
)
TRUTHS = {"0": "false", "1": "true"}
"""Other words for truth values."""
SAME = {
    ("bridge_insecure", "false"),
    ("bridge_outgoing_retain", "true"),
    ("bridge_require_ocsp", "false"),
    ("bridge_tls_use_os_certs", "false"),
    ("cleansession", "false"),
    ("notifications", "false"),
    ("round_robin", "false"),
    ("start_type", "automatic"),
}
"""Values that say what a node does anyway."""
WITHOUT = {
    "bridge_bind_address": "a node dials from the address that the system chooses",
    "bridge_capath": "give one file with the authorities, in link.tls.ca",
    "bridge_identity": "there is no TLS with a pre-shared key: link.secret_file or certificates (link.tls)",
    "bridge_insecure": "the far end is always checked",
    "bridge_outgoing_retain": "retained messages stay retained",
    "bridge_psk": "there is no TLS with a pre-shared key: link.secret_file or certificates (link.tls)",
    "bridge_require_ocsp": "revoked certificates are those of link.tls.crl",
    "bridge_session_expiry_interval": "what waits for a neighbour is kept for link.expiry",
    "bridge_tls_use_os_certs": "no authority of the system is trusted: name one in link.tls.ca",
    "cleansession": "what is published while the neighbour is away is kept for it; with spool.mode: off in "
    "memory only",
    "idle_timeout": "a link stays up",
    "local_cleansession": "the node's own sessions last as long as the node",
    "notification_topic": "no topic tells the state of a link: ildm status and the log do",
    "notifications": "no topic tells the state of a link: ildm status and the log do",
    "notifications_local_only": "no topic tells the state of a link: ildm status and the log do",
    "remote_password": "nodes do not log in to each other's brokers: give both the same link.secret_file",
    "remote_username": "nodes do not log in to each other's brokers: give both the same link.secret_file",
    "round_robin": "all neighbours are linked at the same time",
    "start_type": "a link is up as long as the node runs",
    "threshold": "a link stays up",
}
"""Those that a node has not, and what there is in their place."""
ENCRYPTED = frozenset(("bridge_capath", "bridge_identity", "bridge_psk", "bridge_tls_use_os_certs"))
"""Those of them that say that the bridge is encrypted."""
TO_DO = frozenset(("remote_password", "remote_username"))
"""Those of them whose purpose a node reaches, once that is done."""
BRIDGE = READ | NEEDLESS | WITHOUT.keys()
"""All options of a bridge."""

PLUGIN = ("auth_opt_", "plugin_opt_")
"""How options begin whose names plugins choose."""
BROKER = frozenset(
    """
    accept_protocol_versions acl_file allow_anonymous allow_duplicate_messages allow_zero_length_clientid
    auth_plugin auth_plugin_deny_special_chars auto_id_prefix autosave_interval autosave_on_changes
    check_retain_source clientid_prefixes connection_messages disable_client_cert_date_checks
    enable_control_api global_max_clients global_max_connections global_plugin include_dir
    listener_allow_anonymous listener_auto_id_prefix log_dest log_facility log_timestamp
    log_timestamp_format log_type max_inflight_bytes max_inflight_messages max_keepalive max_packet_size
    max_qos max_queued_bytes max_queued_messages max_topic_alias max_topic_alias_broker maximum_qos
    memory_limit message_size_limit packet_buffer_size password_file per_listener_settings persistence
    persistence_file persistence_location persistent_client_expiration pid_file plugin plugin_load
    plugin_use proxy_protocol_v2_require_tls queue_qos0_messages retain_available retain_expiry_interval
    retained_persistence retry_interval set_tcp_nodelay sys_interval upgrade_outgoing_qos
    use_username_as_clientid user websockets_headers_size websockets_log_level
    """.split()  # noqa: SIM905 - a list would take a line for each
)
"""Options of the broker up to Mosquitto 2.1, which stay with it; those of listeners are in ``listeners``."""

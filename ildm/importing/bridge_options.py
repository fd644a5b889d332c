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
    "bridge_session_expiry_interval": "what waits for a neighbour is kept for spool.age; its interest for "
    "link.expiry",
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
BRIDGE = READ | NEEDLESS | WITHOUT.keys()
"""All options of a bridge."""

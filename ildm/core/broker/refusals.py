"""CONNACK codes of the broker in words, with the configuration key that answers them."""

_ACCOUNT = "bad user name or password; see broker.username"
_ACCESS = (
    "not authorized; see broker.username and the access rules of the broker, which may be about the node's"
    " own client identifiers (ildm-...), too"
)
_CLIENT_ID = "client identifier not valid; the broker has to accept the node's own ones (ildm-... or ildm...)"

CONNACK_WORDS: dict[int, str] = {
    # MQTT 3.1 and 3.1.1
    0x01: "unacceptable protocol version",
    0x02: _CLIENT_ID,
    0x03: "server unavailable",
    0x04: _ACCOUNT,
    0x05: _ACCESS,
    # MQTT 5
    0x80: "unspecified error",
    0x81: "malformed packet",
    0x82: "protocol error",
    0x83: "implementation specific error",
    0x84: "unsupported protocol version",
    0x85: _CLIENT_ID,
    0x86: _ACCOUNT,
    0x87: _ACCESS,
    0x88: "server unavailable",
    0x89: "server busy",
    0x8A: "banned",
    0x8C: "bad authentication method",
    0x90: "topic name invalid",
    0x95: "packet too large",
    0x97: "quota exceeded",
    0x99: "payload format invalid",
    0x9A: "retain not supported",
    0x9B: "QoS not supported",
    0x9C: "use another server",
    0x9D: "server moved",
    0x9F: "connection rate exceeded",
}


def own_session_refused(code: int) -> str:
    """What log and status say of a CONNACK that refuses the node's own session."""
    words = CONNACK_WORDS.get(code, "a code that MQTT does not name")
    return f"the broker refused the node's own session with code 0x{code:02X}: {words}"


def refused_in_every_version(last: int | None) -> str:
    """What is said when all versions have failed; ``last`` is the last CONNACK, None without one."""
    why = "no CONNACK came" if last is None else own_session_refused(last)
    return f"the broker accepts the node's own session in no version: {why}"

"""The configuration file: one YAML document, checked as a whole before anything starts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from ildm.address import Address, parse_address
from ildm.dashboard_config import TOKEN_NAME, DashboardConfig, own_address
from ildm.environment import OverrideError, overridden
from ildm.mqtt import IldmError, PacketLimits
from ildm.rules_config import (
    DialedNeighbor,
    FilterRule,
    RulesOfNeighbors,
    SiteRules,
    TopicRule,
    TopicRules,
)
from ildm.text import reason
from ildm.transport_config import (
    BrokerAddress,
    BrokerTls,
    LinkAddress,
    LinkTls,
    ListenerConfig,
    Network,
    PlainAddress,
    Seconds,
    Section,
    anchored_address,
    anchored_listener,
)

__all__ = [
    "Address",
    "BrokerConfig",
    "Config",
    "ConfigError",
    "DashboardConfig",
    "LimitsConfig",
    "LinkAddress",
    "LinkConfig",
    "LinkTls",
    "ListenerConfig",
    "LogConfig",
    "SpoolConfig",
    "advertised_address",
    "load_config",
    "parse_address",
    "parse_config",
    "read_secret",
    "required_address",
]

MAX_FILE = 4 << 20
"""Bytes of a configuration file: more would take YAML a long time."""


class ConfigError(IldmError):
    """A configuration that cannot be used; the text names the file, the key and what is allowed."""


Bytes = Annotated[int, Field(ge=1024, le=1 << 30, json_schema_extra={"unit": "bytes"})]


class BrokerConfig(Section):
    """The local broker."""

    address: BrokerAddress = Address("127.0.0.1", 1884)
    """``HOST:PORT``, ``mqtts://HOST:PORT``, or ``unix:/PATH``."""
    addresses: Annotated[list[BrokerAddress], Field(max_length=16)] = []
    """In the place of ``address``: several, each tried when the one before cannot be reached."""
    tls: BrokerTls | None = None
    """Needed with mqtts."""
    proxy: Literal["none", "v1", "v2"] = "none"
    """Tell the broker by the PROXY protocol who its clients are; v2: with the name in their certificates."""
    protocol: Literal["auto", "3.1.1", "5"] = "auto"
    """MQTT version of the node's own sessions; ``auto`` tries 5 and falls back."""
    username: str | None = None
    """Of the node's own sessions, which need the right to publish what other sites send."""
    password: SecretStr | None = None
    """Of the same; give this or ``password_file``."""
    password_file: Path | None = None
    """Its first line is the password."""
    connect_timeout: Seconds = 5.0
    """Until the connection, TLS included, is there."""
    connack_timeout: Seconds = 30.0
    """Time from a client's CONNECT, or its last AUTH, until the broker's answer."""
    keep_alive: Annotated[int, Field(ge=1, le=65535)] = 30
    """Seconds, of the node's own sessions."""
    reconnect_min: Seconds = 0.2
    """First pause between attempts; it doubles, with jitter."""
    reconnect_max: Seconds = 10.0
    """The longest pause."""
    packet_size: Annotated[int, Field(ge=128, le=1 << 28)] = 1 << 28
    """Bytes of the largest packet given to a broker of 3.1.1, which cannot say what it takes."""
    audit: bool = True
    """Compare the broker's retained messages with what the node remembers, and mend them."""
    audit_rate: Annotated[int, Field(ge=1, le=1_000_000)] = 2000
    """Topics a second that are compared, at most."""

    @model_validator(mode="after")
    def _one_password(self) -> BrokerConfig:
        if self.password is not None and self.password_file is not None:
            raise ValueError("give password or password_file, not both")
        if self.addresses and "address" in self.model_fields_set:
            raise ValueError("give address or addresses, not both")
        for number, address in enumerate(self.candidates):
            if address in self.candidates[:number]:
                raise ValueError(f"addresses: {address} stands there twice")
            if self.proxy != "none" and address.scheme == "unix":
                raise ValueError("proxy is for TCP")
            if address.has_tls and self.tls is None:
                raise ValueError(f"tls: {address} needs it, at least {{ca: FILE}}")
        if self.tls is not None and not any(address.has_tls for address in self.candidates):
            raise ValueError(f"tls is without effect with {self.candidates[0]}: write mqtts://")
        return self

    @property
    def candidates(self) -> list[Address]:
        """Where the broker may be, in the order in which that is tried."""
        return self.addresses or [self.address]

    @property
    def located(self) -> list[tuple[str, Address]]:
        """The same, each with its key in the file."""
        if not self.addresses:
            return [("broker.address", self.address)]
        return [(f"broker.addresses.{index}", address) for index, address in enumerate(self.addresses)]


class LinkConfig(Section):
    """Links with neighbour nodes."""

    listen: LinkAddress | None = Address("127.0.0.1", 1885)
    """Where neighbours connect to; null for none."""
    advertise: LinkAddress | None = None
    """Where other nodes reach this one, told to them; default: ``listen``."""
    neighbors: list[DialedNeighbor] = []
    """Neighbours to join, each by its ``link.listen``. One side naming the other is enough. An entry is an
    address, or has these keys."""
    rules: TopicRules = []
    """What may cross: the first rule that matches decides, the rest is denied; empty: everything may."""
    neighbor_rules: RulesOfNeighbors = []
    """The same for the neighbour of a node id, in place of ``rules``."""
    secret: SecretStr | None = None
    """Shared by all nodes; proven by HMAC, never sent. Give this or ``secret_file``."""
    secret_file: Path | None = None
    """Its first line is the secret."""
    allow_without_secret: bool = False
    """Needed to listen for links on an address other than loopback without a secret or TLS."""
    tls: LinkTls | None = None
    """Needed with mqtts, here and at neighbours."""
    sessions: Annotated[int, Field(ge=1, le=64)] = 1
    """TCP connections per link, and injection sessions to the local broker (thesis 5.4.1)."""
    round_robin: Literal["publisher", "message"] = "publisher"
    """``publisher``: each publisher keeps one session, so its messages stay in order. ``message``: each
    message takes the next session (thesis 5.4.1); order is not kept."""
    qos: Literal[0, 1, 2] = 2
    """A message crosses with the smaller of its own QoS and this."""
    transfer: Literal["acknowledged", "received"] = "acknowledged"
    """When a client's QoS 1 or 2 message is transferred: once the local broker has acknowledged it without an
    error, or as soon as it comes, even if the broker refuses it."""
    subscribe_wait: Annotated[float, Field(ge=0, le=60)] = 1.0
    """How long a client's SUBACK may wait until the neighbours know of its filters; 0: it never waits."""
    overflow: Literal["drop", "block"] = "drop"
    """When a queue is full: discard the oldest message, which is counted, or stop reading from those who send
    to the full link or broker, transit included."""
    queue_messages: Annotated[int, Field(ge=1, le=10_000_000)] = 10_000
    """Of each link, while it is slow or down; also towards the broker."""
    queue_bytes: Bytes = 32 << 20
    """Bytes of the same."""
    inflight: Annotated[int, Field(ge=1, le=10_000)] = 1000
    """QoS 1 and 2 messages sent but not acknowledged, per session."""
    inflight_bytes: Bytes = 8 << 20
    """Bytes of the same; one message may always be under way, however large."""
    unsent_bytes: Bytes | None = None
    """What the system may take for a neighbour before it has sent it (Linux). A slow link then shows sooner
    by its queue, and fast ones cost more; null: as much as the system wants, which may be megabytes."""
    packet_size: Bytes = 16 << 20
    """Of the largest packet on a link."""
    control_bytes: Bytes = 4 << 20
    """Answers and news that may wait towards a neighbour that does not read; then the session ends."""
    keep_alive: Annotated[int, Field(ge=1, le=3600)] = 10
    """Seconds between signs of life; a link silent for twice that is cut."""
    connect_timeout: Seconds = 5.0
    """For TCP, and again for the handshake."""
    reconnect_min: Seconds = 0.5
    """First pause between attempts; it doubles, with jitter."""
    reconnect_max: Seconds = 30.0
    """The longest pause."""
    settle: Seconds = 0.25
    """How long the topology must stay unchanged before a link becomes part of the tree."""
    expiry: Seconds = 300.0
    """How long an absent neighbour's interest and queue are kept."""
    sync_interval: Seconds = 60.0
    """How often neighbours compare the retained messages they remember."""
    waiting_bytes: Bytes = 64 << 20
    """What may wait for links made on demand that are not there yet, for all nodes together."""
    idle: Seconds = 60.0
    """A link made on demand is closed when it has carried nothing for so long."""
    max_neighbors: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Neighbours that are configured, added or connected at a time."""
    max_links: Annotated[int, Field(ge=1, le=100_000)] = 1024
    """Links made on demand; at the bound the one longest unused is closed."""
    max_nodes: Annotated[int, Field(ge=1, le=100_000)] = 1024
    """Nodes known in the whole network."""
    max_filters: Annotated[int, Field(ge=1, le=10_000_000)] = 1_000_000
    """Filters one neighbour may inter-subscribe to."""
    max_filter_bytes: Bytes = 512 << 20
    """What they may take in memory, about 650 bytes for each level."""

    def rules_for(self, node_id: str) -> list[TopicRule]:
        """The rules for the link with a neighbour."""
        return self.ruled(node_id)[1]

    def ruled(self, node_id: str) -> tuple[str, list[TopicRule]]:
        """The same with their key in the file."""
        for key, of, rules in self.rule_sets:
            if of in (node_id, None):
                return key, rules
        return "link.rules", []

    @property
    def rule_sets(self) -> list[tuple[str, str | None, list[TopicRule]]]:
        """All rules, each set with its key in the file and the node it is for; last those for all others."""
        found: list[tuple[str, str | None, list[TopicRule]]] = [
            (f"link.neighbors.{index}.rules", each.id, each.rules)
            for index, each in enumerate(self.neighbors)
            if each.rules is not None
        ]
        found += [
            (f"link.neighbor_rules.{index}.rules", each.id, each.rules)
            for index, each in enumerate(self.neighbor_rules)
        ]
        return [*found, ("link.rules", None, self.rules)]

    def pin_of(self, node_id: str) -> str | None:
        """SHA-256 of the only certificate that a neighbour may show."""
        own = [each.pin for each in self.neighbors if each.id == node_id and each.pin is not None]
        return own[0] if own else None if self.tls is None else self.tls.pins.get(node_id)

    def node_at(self, address: Address) -> str | None:
        """The only node that may answer at an address that is dialed; None: any."""
        return next((each.id for each in self.neighbors if each.url == address and each.id), None)

    @property
    def addresses(self) -> list[Address]:
        """Those of the neighbours."""
        return [each.url for each in self.neighbors]

    @model_validator(mode="after")
    def _said_once(self) -> LinkConfig:
        ruled = {each.id: f"neighbor_rules.{index}" for index, each in enumerate(self.neighbor_rules)}
        pinned = {} if self.tls is None else dict.fromkeys(self.tls.pins, "tls.pins")
        dialed: dict[Address, str | None] = {}
        for index, each in enumerate(self.neighbors):
            for key, value, said in (("rules", each.rules, ruled), ("pin", each.pin, pinned)):
                if value is None or each.id is None:
                    continue
                if each.id in said:
                    raise ValueError(f"neighbors.{index}.{key}: {each.id} has some in {said[each.id]}")
                said[each.id] = f"neighbors.{index}"
            if dialed.setdefault(each.url, each.id) != each.id:
                raise ValueError(f"neighbors.{index}.id: {each.url} stands there with another id")
        return self

    @model_validator(mode="after")
    def _secure(self) -> LinkConfig:
        if self.secret is not None and self.secret_file is not None:
            raise ValueError("give secret or secret_file, not both")
        if (
            self.listen is not None
            and not self.listen.is_loopback
            and not self.listen.has_tls
            and self.secret is None
            and self.secret_file is None
            and not self.allow_without_secret
        ):
            raise ValueError(
                f"listening for links on {self.listen} needs secret or secret_file, or mqtts:// and tls "
                "(or allow_without_secret: true)"
            )
        dialed = [("listen", self.listen), ("advertise", self.advertise)]
        dialed += [("neighbors", address) for address in self.addresses]
        for key, address in dialed:
            if address is not None and address.has_tls and self.tls is None:
                raise ValueError(f"tls: {address} of {key} needs it: {{cert: FILE, key: FILE, ca: FILE}}")
        listen, told = self.listen, self.advertise
        if listen is not None and told is not None and listen.scheme != told.scheme:
            raise ValueError(f"advertise: {told} is to have the scheme of listen, {listen}")
        return self


def advertised_address(link: LinkConfig) -> Address | None:
    """Where other nodes reach this one; None if they cannot. Port 0 stands for the port listened on."""
    address = link.advertise or link.listen
    return None if address is None or address.is_wildcard else address


def required_address(link: LinkConfig, algorithm: str) -> Address:
    """The same for an algorithm whose nodes all reach each other.

    Raises:
        ConfigError: they cannot reach this one.
    """
    address = advertised_address(link)
    if address is not None:
        return address
    if link.advertise is not None:
        raise ConfigError(f"link.advertise: {link.advertise} is no address that other nodes can dial")
    if link.listen is None:
        raise ConfigError(
            f"link.listen: algorithm {algorithm} needs an address where other nodes reach this one"
        )
    raise ConfigError(
        f"link.advertise: algorithm {algorithm} needs it where link.listen is {link.listen}: set it to the "
        f"HOST:PORT where other nodes reach this one, such as 192.0.2.7:{link.listen.port}"
    )


def refuse_rules(link: LinkConfig, algorithm: str) -> None:
    """For an algorithm whose nodes send to each other over links made on demand.

    Raises:
        ConfigError: there are rules for links.
    """
    own = [(f"link.neighbors.{index}.rules", each.rules) for index, each in enumerate(link.neighbors)]
    for key, given in (("link.rules", link.rules), ("link.neighbor_rules", link.neighbor_rules), *own):
        if given:
            raise ConfigError(
                f"{key}: rules are for trees of links (pf, sf). In the overlay of algorithm {algorithm} a "
                "topic has one name at all sites, and what crosses takes links of the moment; publish says "
                "what clients may send to other sites, site.rules what leaves this one and enters it"
            )


def _off(value: object) -> object:
    """YAML takes ``off`` for a truth value."""
    return "off" if value is False else value


class SpoolConfig(Section):
    """What the node has acknowledged, or is answerable for, and others have not taken yet: kept on disk."""

    mode: Annotated[Literal["off", "process", "power"], BeforeValidator(_off)] = "process"
    """What an acknowledged message of QoS 1 or 2 survives: nothing, the end of the process, or that of the
    machine's power."""
    directory: Path | None = None
    """Default ``STATE_DIR/spool``."""
    bytes: Annotated[int, Field(ge=1 << 20, le=1 << 44)] = 1 << 30
    """Bytes of disk, at most."""
    segment_bytes: Annotated[int, Field(ge=64 << 10, le=1 << 30)] = 16 << 20
    """Bytes of one file."""
    page_bytes: Bytes = 1 << 20
    """Of what waits for one session of a link, or with the broker, so much is in memory."""
    full: Literal["hold", "refuse", "drop_oldest"] = "hold"
    """Without room, publishers get no acknowledgement; or are refused (MQTT 5: 0x97, others get none); or
    what has waited longest is dropped."""
    age: Seconds = 604_800.0
    """What has waited for so long is dropped."""
    delay: Annotated[float, Field(ge=0, le=1)] = 0.002
    """With ``power``: the least time from one write to the next."""
    identities: Annotated[int, Field(ge=1024, le=1 << 24)] = 65_536
    """Gaps that are remembered in the numbers of messages that have come, for all sites together, so that
    none comes twice."""
    uncertain: Literal["resend", "drop"] = "resend"
    """A QoS 2 message that the broker may have delivered, when it has lost its session and delivers before
    the release: twice perhaps, or perhaps not at all."""

    @model_validator(mode="after")
    def _segments(self) -> SpoolConfig:
        if self.segment_bytes * 4 > self.bytes:
            raise ValueError("segment_bytes is to be a quarter of bytes at most")
        return self


class LimitsConfig(Section):
    """Bounds of what local clients can make the node hold."""

    clients: Annotated[int, Field(ge=1, le=1_000_000)] = 100_000
    """Connections; further ones are closed."""
    packet_size: Bytes = 16 << 20
    """Of the largest packet from a client."""
    connect_timeout: Seconds = 10.0
    """Time from the TCP connection until CONNECT is complete."""
    per_address: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    """Connections of clients from one address, or network of 64 bits of IPv6; so many may come at once."""
    connect_rate: Annotated[float, Field(gt=0, le=1_000_000)] = 100.0
    """Connections a second from there, after those at once."""
    handshakes: Annotated[int, Field(ge=1, le=1_000_000)] = 64
    """Those among them that have not finished TLS."""
    auth_failures: Annotated[int, Field(ge=0, le=1_000_000)] = 20
    """CONNECTs from there, within ``auth_block``, that may be refused for who sends them: user, password, not
    authorized, banned. Then nobody is taken from there for as long. 0: any number."""
    auth_block: Seconds = 60.0
    """How long."""
    exempt: list[Network] = ["127.0.0.0/8", "::1/128"]
    """Networks that these five are not for."""
    write_buffer: Annotated[int, Field(ge=4096, le=1 << 30)] = 256 << 10
    """Bytes waiting towards one peer before reading from the paired session pauses."""
    partial_bytes: Annotated[int, Field(ge=1024, le=1 << 40)] = 128 << 20
    """Large packets of all clients that are not complete yet and needed whole, such as those that cross."""
    properties: Annotated[int, Field(ge=1, le=2000)] = 1000
    """User properties of a packet; a message with more is relayed but does not cross."""
    properties_bytes: Annotated[int, Field(ge=1024, le=1 << 20)] = 64 << 10
    """Bytes of all properties of a packet."""
    filters_per_packet: Annotated[int, Field(ge=1, le=2000)] = 2000
    """Topic filters of a SUBSCRIBE or UNSUBSCRIBE; with more the client is closed."""
    topic_levels: Annotated[int, Field(ge=1, le=65_536)] = 128
    """Levels of a filter that other sites are told of, or that is taken from them."""
    subscriptions_per_client: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """What is subscribed to beyond this and the next two bounds stays at the client's own broker."""
    subscription_bytes: Annotated[int, Field(ge=1024, le=1 << 40)] = 64 << 20
    """What the filters of one client may take in memory, about 800 bytes for one of one level."""
    all_subscription_bytes: Annotated[int, Field(ge=1024, le=1 << 40)] = 512 << 20
    """The same for all clients together."""
    persistent_sessions: Annotated[int, Field(ge=0, le=10_000_000)] = 100_000
    """Sessions kept while their clients are away."""
    retained_messages: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """Topics whose newest retained message is remembered to keep the sites alike."""
    retained_bytes: Bytes = 64 << 20
    """Bytes of the same."""
    retained_deletions: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """Topics of which a deletion is remembered, apart from the values."""
    retained_deletion_bytes: Bytes = 64 << 20
    """Bytes of the same."""
    retained_deletion_expiry: Seconds = 86_400.0
    """How long: a site that was away for longer may bring back what was deleted meanwhile."""
    clock_skew: Seconds = 86_400.0
    """Retained messages stamped further in the future are refused."""
    route_cache: Annotated[int, Field(ge=1, le=10_000_000)] = 65_536
    """Topics per source whose route is remembered."""
    hook_warn: Seconds = 0.05
    """A plugin's hook that takes longer, while which nothing else runs, is logged and counted."""
    decision_timeout: Seconds = 5.0
    """How long a filter may defer a decision; what the client sends meanwhile waits."""
    plugin_timers: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """Timers of one plugin that wait to be called."""
    plugin_sessions: Annotated[int, Field(ge=1, le=10_000)] = 100
    """TCP connections one plugin has or makes."""
    plugin_offloads: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Pieces of work one plugin has handed over that are not done."""
    plugin_names: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Counters and gauges of one plugin."""
    plugin_log_rate: Annotated[int, Field(ge=1, le=100_000)] = 100
    """Lines of the log a second that one plugin may write, and at once."""
    plugin_state_bytes: Bytes = 1 << 20
    """What one plugin may keep for the next start; an entry counts 300 bytes more than its key and value."""
    unsaved_bytes: Bytes = 64 << 20
    """State that waits to be written while the disk is slow or full."""
    will_grace: Annotated[float, Field(ge=0, le=86400)] = 5.0
    """How long after a restart the wills of clients that have not come back are sent to other sites."""
    will_bytes: Bytes = 64 << 20
    """Wills of connected clients that are saved for that; a client whose will finds no room is served all the
    same."""
    unanswered_messages: Annotated[int, Field(ge=1, le=10_000_000)] = 10_000
    """A client's QoS 1 and 2 messages that wait for the broker's acknowledgement before reading from it
    pauses."""
    unanswered_bytes: Bytes = 8 << 20
    """Bytes of the same."""
    drain_rate: Annotated[float, Field(gt=0, le=1_000_000)] = 500.0
    """Clients a second that are sent away at the end, so that not all come to their next node at once."""
    drain_timeout: Seconds = 10.0
    """At the end, once all clients are sent away, until queues are given up."""

    @property
    def packet(self) -> PacketLimits:
        """What a packet of a client may hold."""
        return PacketLimits(self.properties, self.properties_bytes, self.filters_per_packet)


def refuse_site_rules(config: Config, *, has_overlay: bool) -> None:
    """For a node that is in no overlay.

    Raises:
        ConfigError: there are rules for its site.
    """
    if config.site.rules and not has_overlay:
        raise ConfigError(
            "site.rules: they are for overlays (such as sg_tbps); what crosses a tree of links (pf, sf) "
            "stands in link.rules"
        )


class SiteConfig(Section):
    """What leaves this site and enters it in an overlay, whoever is at the other end."""

    rules: SiteRules = []
    """The first rule that matches decides, the rest is denied; empty: everything may. For links in a tree see
    ``link.rules``."""


class AdminConfig(Section):
    """The admin API."""

    socket: Path | None = None
    """Unix socket of the admin API; default ``STATE_DIR/admin.sock``."""


class MetricsConfig(Section):
    """Metrics and health for programs that watch; see :mod:`ildm.admin.metrics`."""

    listen: Annotated[PlainAddress, BeforeValidator(own_address)] | None = None
    """``HOST:PORT``, or a port of 127.0.0.1; null: on the admin socket only."""
    token_file: Path | None = None
    """Its first line is demanded as a bearer token."""

    @model_validator(mode="after")
    def _guarded(self) -> MetricsConfig:
        if self.listen is not None and not self.listen.is_loopback and self.token_file is None:
            raise ValueError(f"listen {self.listen} is reached from elsewhere: that needs token_file")
        return self


class LogConfig(Section):
    """What the node logs, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least that is logged."""
    format: Literal["auto", "console", "json"] = "auto"
    """``auto``: coloured on a terminal, else JSON."""


class PluginChoice(Section):
    """A plugin, with its options."""

    name: str
    """Of an installed plugin."""
    options: dict[str, Any] = {}
    """What it takes; in the file they stand beside the name."""


def _plugin_choice(value: object) -> object:
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, dict) and "name" in value:
        rest = {k: v for k, v in value.items() if k != "name"}
        return {"name": value["name"], "options": rest}
    return value


Choice = Annotated[PluginChoice, BeforeValidator(_plugin_choice)]


class PublishRule(FilterRule):
    """Whether messages on some topics may cross to other sites; see :mod:`ildm.core.local.rules`."""

    allow: list[str] | None = None
    """Topic filters; ``%u`` and ``%c`` stand for the user name and the client identifier."""
    user: str | None = None
    """User names it is for, with ``*``, ``?`` and ``[...]`` as in file names; null: every client."""
    client_id: str | None = None
    """Client identifiers it is for, likewise."""

    @classmethod
    def example(cls, topic_filter: str) -> str:
        return topic_filter.replace("%u", "u").replace("%c", "c")


class Config(Section):
    """One node."""

    node_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")] | None = None
    """Identifier among all nodes; by default one is made and kept in the state directory."""
    state_dir: Path = Path("ildm-state")
    """What survives a restart: identity, neighbours added at run time, interest of persistent sessions."""
    listen: PlainAddress = Address("127.0.0.1", 1883)
    """Where local clients connect to; with ``listeners`` only if it is given, too."""
    listeners: list[ListenerConfig] = []
    """More such places, each with its transport."""
    broker: BrokerConfig = BrokerConfig()
    """The local broker."""
    algorithm: Choice | None = None
    """Cooperation algorithm; null relays only."""
    filters: list[Choice] = []
    """Filters that PUBLISH messages pass in this order. Each is an installed plugin's name, or a mapping of
    name and options."""
    publish: list[PublishRule] = []
    """What local clients may send to other sites: the first rule that matches decides; none: it may cross."""
    site: SiteConfig = SiteConfig()
    """What leaves this site and enters it in an overlay."""
    link: LinkConfig = LinkConfig()
    """Links with neighbour nodes."""
    spool: SpoolConfig = SpoolConfig()
    """What is acknowledged and not had by others yet."""
    limits: LimitsConfig = LimitsConfig()
    """Bounds of what local clients can make the node hold."""
    admin: AdminConfig = AdminConfig()
    """The admin API."""
    metrics: MetricsConfig = MetricsConfig()
    """Metrics and health over HTTP."""
    dashboard: DashboardConfig = DashboardConfig()
    """Pages for people, in a browser."""
    log: LogConfig = LogConfig()
    """The log, on standard error."""

    @model_validator(mode="after")
    def _links_need_an_algorithm(self) -> Config:
        if self.algorithm is None and self.link.neighbors:
            raise ValueError("link.neighbors is without effect unless algorithm names one, such as sf")
        return self

    @model_validator(mode="after")
    def _listeners_differ(self) -> Config:
        seen: set[str] = set()
        for _, each in self.clients_at:
            if each.label in seen:
                raise ValueError(f"listeners: there are two with the name {each.label}")
            seen.add(each.label)
        return self

    @property
    def clients_at(self) -> list[tuple[str, ListenerConfig]]:
        """All that clients connect to, each with its key in the file."""
        found = [(f"listeners.{index}", each) for index, each in enumerate(self.listeners)]
        if "listen" in self.model_fields_set or not found:
            found.insert(0, ("listen", ListenerConfig(url=self.listen, name="listen")))
        return found

    @property
    def clients_text(self) -> str:
        """The same for people."""
        return ", ".join(str(each.url) for _, each in self.clients_at)

    @property
    def admin_socket(self) -> Path:
        return self.admin.socket or self.state_dir / "admin.sock"

    @property
    def dashboard_token(self) -> Path:
        """File of what the dashboard demands."""
        return self.dashboard.token_file or self.state_dir / TOKEN_NAME

    @property
    def spool_directory(self) -> Path:
        return self.spool.directory or self.state_dir / "spool"


def load_config(path: Path) -> Config:
    """Read and check a configuration file, with what the environment says in its place (see
    :mod:`ildm.environment`). Relative paths are relative to the file.

    Raises:
        ConfigError: unreadable, not YAML, or a key that is unknown or out of range (all are named).
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE + 1)
        if len(raw) > MAX_FILE:
            raise ConfigError(f"{path}: longer than {MAX_FILE >> 20} MiB, which no configuration is")
        text = raw.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {reason(error)}") from error
    loader = None
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        duplicates = [] if root is None else list(_duplicate_keys(root))
        document = None if root is None else loader.construct_document(root)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path}: not YAML: {error}") from error
    finally:
        if loader is not None:
            loader.dispose()
    if duplicates:
        raise ConfigError("\n".join(f"{path}: {text}" for text in duplicates))
    try:
        document, sources = overridden(document if document is not None else {}, os.environ)
    except OverrideError as error:
        raise ConfigError(f"environment: {error}") from None
    return parse_config(document, str(path), path.parent, sources)


def _duplicate_keys(root: yaml.Node) -> Iterator[str]:
    """Keys that stand in a mapping twice: YAML forbids them, PyYAML takes the last one without a word."""
    waiting = [root]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
            continue
        lines: dict[str, int] = {}
        for key, value in node.value:
            waiting += (key, value)
            if isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                if key.value in lines:
                    yield f"line {line}: key {key.value} stands in line {lines[key.value]} already"
                lines.setdefault(key.value, line)


def parse_config(document: object, name: str, base: Path, sources: Mapping[str, str] | None = None) -> Config:
    """Check a configuration document; ``name`` is used in errors, ``base`` anchors relative paths.

    ``sources``: keys that are from the environment, each with its variable.
    """
    if not isinstance(document, dict):
        raise ConfigError(f"{name}: expected a mapping of keys, found {type(document).__name__}")
    try:
        config = Config.model_validate(document)
    except ValidationError as error:
        lines = []
        for item in error.errors(include_url=False):
            where = ".".join(str(part) for part in item["loc"]) or "(top level)"
            # the input is left out where it could be a secret
            shown = (
                "" if {"secret", "password"} & {str(p) for p in item["loc"]} else _shown(item.get("input"))
            )
            variable = next(
                (v for key, v in (sources or {}).items() if f"{where}.".startswith(f"{key}.")), None
            )
            place = name
            if variable is not None:
                place, shown = f"{name} with {variable}", ""
            lines.append(f"{place}: {where}: {unknown_or(item, 'key', Config)}{shown}")
        raise ConfigError("\n".join(lines)) from None
    return _anchored(config, base)


def unknown_or(item: Any, what: str, model: type[BaseModel]) -> str:
    """The reason of one of pydantic's errors in words of the file.

    An unknown one is called ``what``, with the known one of ``model`` that is written most like it.
    """
    match item["type"]:
        case "extra_forbidden":
            *way, last = item["loc"]
            like = get_close_matches(str(last), _known(model, way), n=1)
            return f"unknown {what} ({like[0]}?)" if like else f"unknown {what}"
        case "tuple_type":
            return "Input should be a valid list"
        case "too_short":
            least = item["ctx"]["min_length"]
            return f"List should have at least {least} item{'' if least == 1 else 's'}"
    return str(item["msg"]).removeprefix("Value error, ")


def _known(model: type[BaseModel], way: Iterable[str | int]) -> list[str]:
    """The keys at a place within a model; none where it is no mapping of fixed keys."""
    for step in way:
        found = [field for name, field in model.model_fields.items() if step in (name, field.alias)]
        within = found[0].annotation if found else None
        if not (isinstance(within, type) and issubclass(within, BaseModel)):
            return []
        model = within
    return [field.alias or name for name, field in model.model_fields.items()]


def _shown(value: object) -> str:
    return f" (found {value!r})" if isinstance(value, str | int | float | bool) or value is None else ""


def _anchored(config: Config, base: Path) -> Config:
    def anchor(path: Path | None) -> Path | None:
        return None if path is None else base / path.expanduser()

    return config.model_copy(
        update={
            "state_dir": anchor(config.state_dir),
            "listeners": [anchored_listener(each, base) for each in config.listeners],
            "broker": config.broker.model_copy(
                update={
                    "address": anchored_address(config.broker.address, base),
                    "addresses": [anchored_address(each, base) for each in config.broker.addresses],
                    "password_file": anchor(config.broker.password_file),
                    "tls": None if config.broker.tls is None else config.broker.tls.anchored(base),
                }
            ),
            "link": config.link.model_copy(
                update={
                    "secret_file": anchor(config.link.secret_file),
                    "tls": None if config.link.tls is None else config.link.tls.anchored(base),
                }
            ),
            "spool": config.spool.model_copy(update={"directory": anchor(config.spool.directory)}),
            "admin": config.admin.model_copy(update={"socket": anchor(config.admin.socket)}),
            "metrics": config.metrics.model_copy(update={"token_file": anchor(config.metrics.token_file)}),
            "dashboard": config.dashboard.anchored(base),
        }
    )


SHORT_SECRET = 16
"""Characters; a secret with fewer is warned of."""


def read_secret(given: SecretStr | None, file: Path | None, key: str) -> str | None:
    """The secret itself, or the first line of its file.

    Raises:
        ConfigError: the file cannot be read or is empty.
    """
    if given is not None:
        return given.get_secret_value()
    if file is None:
        return None
    try:
        secret = file.read_text(encoding="utf-8").split("\n", 1)[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{key}: {file} cannot be read: {reason(error)}") from error
    if not secret:
        raise ConfigError(f"{key}: {file} is empty")
    return secret

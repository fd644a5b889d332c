"""Section ``link``."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from ildm.address import Address
from ildm.config.classes import BacklogPart, LinkClass, LinkClassList
from ildm.config.errors import ConfigError
from ildm.config.rate import RateConfig
from ildm.config.rules import (
    DialedNeighbor,
    NeighborConfig,
    NodeId,
    RulesOfNeighbors,
    TopicRule,
    TopicRules,
)
from ildm.config.section import IN_SECONDS, OFF, Bytes, Seconds, Section
from ildm.config.transports import LinkAddress, LinkTls
from ildm.core.link.chunks import ZSTD, codecs
from ildm.core.link.features import FEATURES
from ildm.core.link.versions import PROTOCOLS


class ProtocolConfig(Section):
    """Versions of the link protocol."""

    lowest: Annotated[int, Field(ge=PROTOCOLS.low, le=PROTOCOLS.high)] = PROTOCOLS.low
    """The lowest that a neighbour may speak. 3: all that two nodes say to each other is proven by the
    secret; 2: nodes of release 0.2 are taken as well."""


class FeaturesConfig(Section):
    """What links can do beyond the protocol, where both ends have it."""

    disabled: list[str] = []
    """Names of features to do without, while a fault is looked for."""

    @field_validator("disabled")
    @classmethod
    def _known(cls, disabled: list[str]) -> list[str]:
        known = [each.name for each in FEATURES]
        for name in disabled:
            if name not in known:
                raise ValueError(f"there is no feature {name[:40]!r}, only {', '.join(known) or 'none'}")
        return disabled


class LookupConfig(Section):
    """What DNS is asked for addresses of neighbours."""

    host: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Name with an address for each neighbour, as of a headless service; with ``port``."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Of ``link.listen`` at all of them."""
    srv: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Name of SRV records, which have a host and a port each; needs ``ildm[discover]``."""

    def __str__(self) -> str:
        return f"SRV {self.srv}" if self.host is None else str(Address(self.host, self.port or 0))

    @field_validator("srv")
    @classmethod
    def _installed(cls, srv: str | None) -> str | None:
        if srv is not None and find_spec("dns") is None:
            raise ValueError("the package dnspython is not installed: pip install 'ildm[discover]'")
        return srv

    @model_validator(mode="after")
    def _one_of_both(self) -> LookupConfig:
        if (self.host is None) is not (self.port is None) or (self.host is None) is (self.srv is None):
            raise ValueError("give either host and port, or srv")
        return self


NOTHING = TopicRule(deny=["#"])


class LinkConfig(Section):
    """Links with neighbour nodes."""

    listen: LinkAddress | None = Address("127.0.0.1", 1885)
    """Where neighbours connect to; null for none."""
    advertise: LinkAddress | None = None
    """Where other nodes reach this one, told to them; default: ``listen``."""
    neighbors: list[DialedNeighbor] = []
    """Neighbours to join, each by its ``link.listen``. One side naming the other is enough. An entry is an
    address, or has these keys."""
    discover: Annotated[list[LookupConfig], Field(max_length=16)] = []
    """What DNS is asked for further neighbours; those it names are joined as those of ``neighbors``, by mqtts
    if there is ``tls``. An entry has ``host`` and ``port``, or ``srv``."""
    discover_interval: Annotated[float, IN_SECONDS, Field(ge=1, le=86_400)] = 30.0
    """Seconds from one question to the next, give or take a fifth."""
    rules: TopicRules | None = None
    """What may cross: the first rule that matches decides, the rest is denied; empty: everything may. null:
    everything, too, but nothing if single neighbours have rules of their own, here or at ``neighbors``."""
    neighbor_rules: RulesOfNeighbors = []
    """The same for the neighbour of a node id, in place of ``rules``."""
    classes: LinkClassList = []
    """How messages wait for a neighbour: of each topic the first class that matches decides."""
    backlog: BacklogPart = 0.3
    """Part of a link's bytes for what goes after newer messages (``after_live``), while those go, too."""
    secret: SecretStr | None = None
    """Shared by all nodes; proven by HMAC, never sent. Give this or ``secret_file``."""
    secret_file: Path | None = None
    """Its first line is the secret."""
    allow_without_secret: bool = False
    """Needed to listen for links on an address other than loopback without a secret or TLS."""
    tls: LinkTls | None = None
    """Needed with mqtts, here and at neighbours."""
    protocol: ProtocolConfig = ProtocolConfig()
    """Which neighbours are taken, by the version of the link protocol that they speak."""
    features: FeaturesConfig = FeaturesConfig()
    """What links do beyond the protocol where both ends can."""
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
    subscribe_wait: Annotated[float, IN_SECONDS, Field(ge=0, le=60)] = 1.0
    """How long a client's SUBACK may wait until the neighbours know of its filters; 0: it never waits."""
    wait_at_start: Annotated[float, IN_SECONDS, Field(ge=0, le=604_800)] = 0.0
    """How long clients and messages of neighbours may wait after a start for the interest of neighbours
    without a record in the state directory: those of ``neighbors`` and ``wait_for``, and if no neighbour has
    one those that DNS names first. 0: nothing waits."""
    wait_for: Annotated[list[NodeId], Field(max_length=64)] = []
    """Node ids of neighbours that dial this node, for ``wait_at_start``. The node's own stands for nobody."""
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
    delay: Annotated[float, IN_SECONDS, Field(ge=0, le=0.1)] = 0.0
    """Seconds for which what is to go to a neighbour waits to be joined with more, up to 64 KiB; 0: what
    comes together goes together, and nothing waits."""
    compression: Annotated[Literal["off", "auto", "deflate", "zstd"], OFF] = "off"
    """Of all that crosses to and from a neighbour that has it on, too. ``auto``: zstd, or deflate where not
    both have zstd, on links with a round trip of 20 ms or more; ``zstd``: the same on all links."""
    compression_encrypted: bool = False
    """``auto`` compresses links with TLS, too. Who may publish and sees how much crosses can then guess what
    else does."""
    compression_contexts: Annotated[int, Field(ge=1, le=100_000)] = 256
    """Sessions of links that this node compresses at a time, each with 256 KiB; others send uncompressed."""
    rate: RateConfig = RateConfig()
    """Bytes a second that links carry at most, each by itself. What does not fit waits in the queue."""
    unsent_bytes: Bytes | None = None
    """What the system may take for a neighbour before it has sent it (Linux). A slow link then shows sooner
    by its queue, and fast ones cost more; null: the burst of ``rate.out``, and without a rate as much as the
    system wants, which may be megabytes."""
    packet_size: Bytes = 16 << 20
    """Of the largest packet on a link."""
    control_bytes: Bytes = 4 << 20
    """Answers and news that may wait towards a neighbour that does not read; then the session ends."""
    keep_alive: Annotated[int, IN_SECONDS, Field(ge=1, le=3600)] = 10
    """Seconds between signs of life; a link silent for twice that is cut."""
    connect_timeout: Seconds = 5.0
    """For TCP, and again for the handshake."""
    reconnect_min: Seconds = 0.5
    """First pause between attempts; it doubles, with jitter."""
    reconnect_max: Seconds = 30.0
    """The longest pause."""
    settle: Seconds = 0.25
    """How long the topology must stay unchanged before a link becomes part of the tree."""
    tree: Literal["delay", "age"] = "delay"
    """Which links carry messages where some close a ring: those of the least delay, or the oldest. By delay
    only while all nodes choose so, and by age until then."""
    weight_hold: Annotated[float, IN_SECONDS, Field(ge=10, le=86_400)] = 300.0
    """How long another delay of a link must last before the tree follows it, and half of the least time from
    one change to the next; a link whose delay has doubled is left after a sixtieth of it."""
    expiry: Seconds = 604_800.0
    """How long a site may be away. Messages for it, its interest and deletions of retained messages are kept
    for so long; then they are given up, and messages are counted."""
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
        return "link.rules", self.common_rules

    @property
    def closed(self) -> bool:
        """Only neighbours with rules of their own exchange anything: one may come under another node id."""
        own = self.neighbor_rules or any(each.rules is not None for each in self.neighbors)
        return self.rules is None and bool(own)

    @property
    def common_rules(self) -> list[TopicRule]:
        """The rules for neighbours that have none of their own."""
        return [NOTHING] if self.closed else self.rules or []

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
        return [*found, ("link.rules", None, self.common_rules)]

    def classes_for(self, node_id: str) -> list[LinkClass]:
        """The classes of the link with a neighbour."""
        own = (each.classes for each in self.neighbors if each.id == node_id)
        return next((classes for classes in own if classes is not None), self.classes)

    def pin_of(self, node_id: str) -> str | None:
        """SHA-256 of the only certificate that a neighbour may show."""
        own = [each.pin for each in self.neighbors if each.id == node_id and each.pin is not None]
        return own[0] if own else None if self.tls is None else self.tls.pins.get(node_id)

    def node_at(self, address: Address) -> str | None:
        """The only node that may answer at an address that is dialed; None: any."""
        return next((each.id for each in self.neighbors if each.url == address and each.id), None)

    def cost_of(self, node_id: str, address: str | None) -> int:
        """What the link with a neighbour costs beside its delay; ``address``: where it was dialed."""
        costs = [each.cost for each in self._entries(node_id, address)]
        return max((cost for cost in costs if cost is not None), default=0)

    def rate_of(self, node_id: str, address: str | None) -> RateConfig:
        """What the link with a neighbour may carry; ``address``: where it was dialed."""
        own = (each.rate for each in self._entries(node_id, address))
        return next((rate for rate in own if rate is not None), self.rate)

    def backlog_of(self, node_id: str, address: str | None) -> float:
        """Part of the bytes to a neighbour for what goes after newer messages; ``address``: as above."""
        own = (each.backlog for each in self._entries(node_id, address))
        return next((part for part in own if part is not None), self.backlog)

    def _entries(self, node_id: str, address: str | None) -> list[NeighborConfig]:
        """Those for a neighbour, by its id or where it was dialed."""
        return [each for each in self.neighbors if node_id == each.id or str(each.url) == address]

    @property
    def most_unsent(self) -> int | None:
        """What the system may take for a neighbour before it has sent it."""
        rates = [each.rate for each in self.neighbors if each.rate is not None]
        bursts = [each.burst_of(each.out) for each in (*rates, self.rate) if each.out is not None]
        return self.unsent_bytes if self.unsent_bytes is not None else min(bursts, default=None)

    @property
    def addresses(self) -> list[Address]:
        """Those of the neighbours."""
        return [each.url for each in self.neighbors]

    @field_validator("compression")
    @classmethod
    def _installed(cls, compression: str) -> str:
        if compression == ZSTD and ZSTD not in codecs():
            raise ValueError(
                "the package zstandard is not installed: pip install 'ildm[zstd]', or use deflate"
            )
        return compression

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
                + ("; secret_file names no file" if "secret_file" in self.model_fields_set else "")
            )
        if self.discover and self.secret is None and self.secret_file is None and self.tls is None:
            raise ValueError("discover needs secret or secret_file, or tls, as DNS proves nothing")
        if self.tls is not None and self.tls.psk:
            if self.secret is None and self.secret_file is None:
                raise ValueError("tls.psk needs secret or secret_file, which it makes keys of")
            for index, each in enumerate(self.neighbors):
                if each.pin is not None:
                    raise ValueError(f"neighbors.{index}.pin: with tls.psk nobody shows a certificate")
        dialed = [("listen", self.listen), ("advertise", self.advertise)]
        dialed += [("neighbors", address) for address in self.addresses]
        for key, address in dialed:
            if address is not None and address.has_tls and self.tls is None:
                raise ValueError(
                    f"tls: {address} of {key} needs it: {{cert: FILE, key: FILE, ca: FILE}}, or {{psk: true}}"
                )
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

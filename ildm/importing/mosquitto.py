"""A Mosquitto bridge as the configuration of a node: ``ildm import mosquitto.conf``.

The node takes the place of the broker with the bridge; at the far end a node stands beside the far broker.
Lines about the broker itself stay with the broker. What a node does not do is named with its line.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import ValidationError

from ildm.address import Address, parse_address
from ildm.config import Config, ConfigError, TopicRule, parse_config
from ildm.core.transfer.rules import MAX_FILTERS, flaw, remaps
from ildm.importing.bridge_options import (
    BOOLEAN,
    BRIDGE,
    BROKER,
    ENCRYPTED,
    NEEDLESS,
    PLUGIN,
    SAME,
    TO_DO,
    TRUTHS,
    WITHOUT,
)
from ildm.importing.lines import Line, Remark, is_plain, lines, number, remark
from ildm.importing.listeners import OPTIONS, Listeners
from ildm.importing.topics import in_order, share, whole_levels
from ildm.text import printable

LINK_PORT = 1885
FIRST_BROKER_PORT = 1884
"""Where the broker moves to, or the next that the node does not take, past that of links."""
BROKER_PORT = 1883
"""Of an address without one."""


class TopicLine(NamedTuple):
    line: Line
    rule: TopicRule

    @property
    def place(self) -> str:
        return f"{self.line.file}:{self.line.number}" if self.line.file else str(self.line.number)


@dataclass
class Bridge:
    """One ``connection`` with what belongs to it."""

    name: str
    address: Address | None = None
    """Of the far broker."""
    topics: list[TopicLine] = field(default_factory=list)
    tls: dict[str, str] = field(default_factory=dict)
    """Keys of ``link.tls``, and what else says that the bridge is encrypted."""

    @property
    def files(self) -> dict[str, str]:
        return {key: self.tls[key] for key in ("ca", "cert", "key") if key in self.tls}


@dataclass
class Neighbor:
    """All connections to one far broker, and the node beside it."""

    bridges: list[Bridge]
    port: int
    """Where that node listens for links."""
    topics: list[TopicLine] = field(default_factory=list)

    @property
    def encrypted(self) -> bool:
        return any(bridge.tls for bridge in self.bridges)

    @property
    def broker(self) -> Address:
        address = self.bridges[0].address
        assert address is not None
        return address

    @property
    def url(self) -> str:
        scheme = "mqtts" if self.encrypted else "mqtt"
        return str(Address(self.broker.host, self.port, scheme))

    @property
    def rules(self) -> list[dict[str, Any]]:
        """The rules, with what is not default; topics that differ in nothing else stand together."""
        found: list[dict[str, Any]] = []
        for each in self.topics:
            document = each.rule.model_dump(exclude_defaults=True)
            if found and {**found[-1], "allow": None} == {**document, "allow": None}:
                found[-1]["allow"] += document["allow"]
            else:
                found.append(document)
        return found


@dataclass
class Imported:
    """The configuration, and what it does not say."""

    document: dict[str, Any]
    bridges: list[Bridge]
    remarks: list[Remark]
    of_the_broker: int
    """Lines that are for the broker, and stay in its file."""
    anonymous: bool
    """The broker lets everybody in because its file does not say where it listens."""

    @property
    def differs(self) -> bool:
        """The node does not do all that the source did."""
        return any(each.differs for each in self.remarks)

    def text(self, source: str) -> str:
        """The configuration file, with the lines its rules come from."""
        host, _, port = self.document["broker"]["address"].rpartition(":")
        head = [
            f"# From {source}. This node takes the place of the broker, which keeps the lines",
            f"# that are about itself ({self.of_the_broker}), and in place of its bridge and listeners has",
            f"#   listener {port} {host}",
            *(["#   allow_anonymous true"] if self.anonymous else []),
            "# At each neighbour's address a node stands beside the far broker (algorithm: sf, link.listen",
            "# open).",
        ]
        for bridge in self.bridges:
            head.append(f"# connection {bridge.name}")
            head += [f"#   {each.place}: topic {each.line.value}" for each in bridge.topics]
        for title, differs in (("Not as before", True), ("To be done or known", False)):
            told = [f"#   {_place(each)}{each.text}" for each in self.remarks if each.differs is differs]
            head += [f"# {title}:", *told] if told else []
        if "listen" not in self.document and "listeners" not in self.document:
            head.append("# listen: HOST:PORT  # for clients, in place of the listeners that are left out")
        return "\n".join(map(printable, head)) + "\n" + _yaml(self.document)


def _yaml(document: dict[str, Any]) -> str:
    """The document as YAML that a terminal can show: all letters stay if they are printable."""
    for readable in (True, False):
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=readable, width=100)
        if printable(text, keep="\n") == text:
            break
    return text


def _place(each: Remark) -> str:
    if not each.line:
        return ""
    return f"{each.file}:{each.line}: " if each.file else f"line {each.line}: "


def convert(text: str, source: str) -> Imported:
    """Read a mosquitto.conf, called ``source``.

    Raises:
        ConfigError: there is no bridge in it.
    """
    reader = _Reader(source)
    for line in lines(text, source, reader.remarks.append):
        reader.take(line)
    return reader.finish()


class _Reader:
    def __init__(self, source: str) -> None:
        self.source = source
        self.bridges: list[Bridge] = []
        self.of_file: dict[str, Bridge] = {}
        """The last connection of each file: the lines of one file belong to no connection of another."""
        self.remarks: list[Remark] = []
        self.link: dict[str, Any] = {}
        self.broker: dict[str, Any] = {}
        self.listeners = Listeners()
        self.of_the_broker = 0
        self.anonymous: bool | None = None

    def remark(self, line: Line, text: str, *, differs: bool = True) -> None:
        self.remarks.append(remark(line, text, differs=differs))

    def _whole(self, text: str, *, differs: bool) -> None:
        self.remarks.append(Remark(0, printable(text), differs=differs))

    def take(self, line: Line) -> None:
        option = line.option
        if option == "connection":
            self._connection(line)
        elif option not in BRIDGE:
            self._broker_line(line)
        elif line.file not in self.of_file:
            self.remark(line, "before the first connection of its file, so it belongs to none")
        elif option in NEEDLESS:
            return
        else:
            self._bridge_line(line, self.of_file[line.file])

    def _connection(self, line: Line) -> None:
        name = line.first
        if not name:
            self.remark(line, "Mosquitto wants a name")
        elif any(bridge.name == name for bridge in self.bridges):
            self.remark(line, "Mosquitto refuses a second connection of that name")
        self.of_file[line.file] = bridge = Bridge(name)
        self.bridges.append(bridge)

    def _bridge_line(self, line: Line, bridge: Bridge) -> None:
        option = line.option
        word = TRUTHS.get(line.word, line.word) if option in BOOLEAN else line.word
        if (option, word) in SAME:
            return
        if option not in WITHOUT:
            getattr(self, f"_{option}")(line, bridge)
            return
        self.remark(line, WITHOUT[option], differs=option not in TO_DO)
        if option in ENCRYPTED:  # nothing that was encrypted goes in the clear
            bridge.tls[option] = line.value

    def _broker_line(self, line: Line) -> None:
        if line.option in OPTIONS:
            self.listeners.take(line)
            return
        if line.option not in BROKER and not line.option.startswith(PLUGIN):
            self.remark(line, "Mosquitto knows no such option")
            return
        self.of_the_broker += 1
        self.listeners.broker_has(line)
        if line.option == "allow_anonymous":
            self.anonymous = TRUTHS.get(line.word, line.word) == "true"
        elif line.option == "acl_file":
            self.remark(
                line,
                "has to let the node's own session read and write what crosses, as no bridge asks it",
                differs=False,
            )

    # options of a bridge --------------------------------------------------------------------------

    def _address(self, line: Line, bridge: Bridge) -> None:
        first, *others = line.words or [""]
        if not first:
            self.remark(line, "no address")
            return
        if bridge.address is not None:
            self.remark(line, "Mosquitto refuses a second one: a bridge has one line with all its addresses")
            return
        try:
            bridge.address = _far_broker(first)
        except ValueError as error:
            self.remark(line, str(error))
            return
        if others:
            self.remark(
                line,
                f"a bridge is connected to one of its addresses, a node to all its neighbours: {first} alone "
                f"is taken. Is {' or '.join(others)} a spare broker of the same site, name it in "
                "broker.addresses of the node there",
            )

    def _topic(self, line: Line, bridge: Bridge) -> None:
        try:
            words = _topic_words(line)
            rule = self._rule(line, words)
        except ValidationError as error:
            said = error.errors(include_url=False)[0]
            self.remark(line, str(said["msg"]).removeprefix("Value error, "))
        except ValueError as error:
            self.remark(line, str(error))
        else:
            if len(words) > 5:
                self.remark(line, "what follows the second prefix says nothing to Mosquitto", differs=False)
            self._add(bridge.topics, TopicLine(line, rule))

    def _add(self, topics: list[TopicLine], topic: TopicLine) -> bool:
        """Add a topic to others of one link, if it can stand beside them."""
        wrong: str | None = f"a link has {MAX_FILTERS} topics at most"
        if len(topics) < MAX_FILTERS:
            rules = [*(known.rule for known in topics), topic.rule]
            # where no names change no two become one, in whatever order
            wrong = flaw(in_order(rules)) if remaps(rules) else None
        if wrong is None:
            topics.append(topic)
        else:
            self.remark(topic.line, wrong)
        return wrong is None

    def _rule(self, line: Line, words: list[str]) -> TopicRule:
        """What a line says, each word read as Mosquitto does.

        Raises:
            ValueError: there is no rule that says the same.
        """
        pattern, direction, level, local, remote = [*words, *("", "out", "0", "", "")[len(words) :]][:5]
        qos = number(level) & 0xFF  # it keeps one byte
        if qos > 2:
            raise ValueError(f"{level} is no QoS: 0, 1 or 2")
        if direction.lower() not in ("in", "out", "both"):
            raise ValueError(f"{direction} is no direction: in, out or both")
        local, pattern, remote = whole_levels(
            *("" if each == '""' else each for each in (local, pattern, remote))
        )
        rule = TopicRule.model_validate(
            {
                "allow": [pattern],
                "direction": direction.lower(),
                "qos": qos,
                "local": local,
                "remote": remote,
            }
        )
        self._read(line, level, qos)
        return rule

    def _keepalive_interval(self, line: Line, bridge: Bridge) -> None:
        self._number(line, "keep_alive", 1, 3600, least_there=5)

    def _bridge_max_packet_size(self, line: Line, bridge: Bridge) -> None:
        if number(line.word):
            self._number(line, "packet_size", 1024, 1 << 30)

    def _number(self, line: Line, key: str, least: int, most: int, least_there: int = 0) -> None:
        value = max(number(line.word), least_there)
        if line.word and least <= value <= most:
            self._read(line, line.word, value)
            self._set(line, self.link, key, value)
        else:
            self.remark(line, f"link.{key} is a number from {least} to {most}")

    def _read(self, line: Line, word: str, value: int) -> None:
        if not is_plain(word) or int(word) != value:
            self.remark(line, f"Mosquitto reads {word} as {value}", differs=False)

    def _restart_timeout(self, line: Line, bridge: Bridge) -> None:
        if not line.words:
            self.remark(line, "expected seconds")
            return
        first = min(max(number(line.words[0]), 1), 3600)
        self._read(line, line.words[0], first)
        longest = first
        if len(line.words) > 1:
            longest = min(number(line.words[1]), 7200)
            if longest < first:
                self.remark(line, "Mosquitto wants the longest pause to be no shorter than the first")
                return
            self._read(line, line.words[1], longest)
        self._set(line, self.link, "reconnect_min", float(first))
        self._set(line, self.link, "reconnect_max", float(longest))

    def _local_username(self, line: Line, bridge: Bridge) -> None:
        self._set(line, self.broker, "username", line.value)

    def _local_password(self, line: Line, bridge: Bridge) -> None:
        self.remark(
            line, "write it into a file of its own, and name that in broker.password_file", differs=False
        )

    def _bridge_cafile(self, line: Line, bridge: Bridge) -> None:
        bridge.tls["ca"] = line.value

    def _bridge_certfile(self, line: Line, bridge: Bridge) -> None:
        bridge.tls["cert"] = line.value

    def _bridge_keyfile(self, line: Line, bridge: Bridge) -> None:
        bridge.tls["key"] = line.value

    def _set(self, line: Line, section: dict[str, Any], key: str, value: Any) -> None:
        if section.setdefault(key, value) != value:
            self.remark(line, f"one value holds for all links: {section[key]}")

    # the whole -------------------------------------------------------------------------------------

    def finish(self) -> Imported:
        """The configuration of all lines.

        Raises:
            ConfigError: there is no bridge, or what was made of it is no configuration.
        """
        if not self.bridges:
            raise ConfigError(f"{self.source}: there is no bridge in it, no line that begins with connection")
        for bridge in self.bridges:
            for what, given in (("address", bridge.address), ("topic", bridge.topics)):
                if not given:
                    self._whole(
                        f"connection {bridge.name} has no {what} that can be taken: it is left out",
                        differs=True,
                    )
        bridges = [bridge for bridge in self.bridges if bridge.address and bridge.topics]
        neighbors = self._neighbors(bridges)
        link: dict[str, Any] = {"listen": None, "neighbors": [each.url for each in neighbors]}
        self._add_tls(link, bridges)
        self._add_rules(link, neighbors)
        listening = self.listeners.finish()
        self.remarks += self.listeners.remarks
        if not listening:
            self._whole(
                "every listener is left out: until listen or listeners says where, clients connect to "
                f"{Config().listen} without TLS",
                differs=True,
            )
        taken = [listening.get("listen", ""), *(each["url"] for each in listening.get("listeners", ()))]
        port = FIRST_BROKER_PORT
        while any(each.endswith(f":{port}") for each in taken):
            port += 2
        open_to_all = not self.listeners.given if self.anonymous is None else self.anonymous
        if not open_to_all and "username" not in self.broker:
            self._whole(
                "the broker wants names and passwords, of the node's own session, too: give it an account "
                "that may read and write what crosses, in broker.username and broker.password_file",
                differs=False,
            )
        broker = {"address": f"127.0.0.1:{port}", **self.broker}
        document = {**listening, "broker": broker, "algorithm": "sf", "link": link | self.link}
        parse_config(document, f"{self.source}: what was made of it cannot be used", Path())
        remarks = sorted(self.remarks, key=lambda each: (each.line > 0, each.file, each.line))
        return Imported(
            document, bridges, remarks, self.of_the_broker, open_to_all and self.anonymous is None
        )

    def _neighbors(self, bridges: list[Bridge]) -> list[Neighbor]:
        """One for each far broker, with the rules of all connections to it."""
        found: dict[Address, Neighbor] = {}
        ports: dict[str, int] = {}
        for bridge in bridges:
            assert bridge.address is not None
            place = Address(bridge.address.host.lower(), bridge.address.port)
            if place in found:
                found[place].bridges.append(bridge)
                continue
            port = ports[place.host] = ports.get(place.host, LINK_PORT - 1) + 1
            found[place] = Neighbor([bridge], port)
            if port > LINK_PORT:
                self._whole(
                    f"{bridge.address} is taken for another broker than the other one of that host: the node "
                    f"beside it is to listen for links at port {port}",
                    differs=False,
                )
        for neighbor in found.values():
            self._join(neighbor)
        return list(found.values())

    def _join(self, neighbor: Neighbor) -> None:
        """The topics of all connections to one broker, in the order in which their rules decide alike."""
        for bridge in neighbor.bridges:
            for topic in bridge.topics:
                others = list(neighbor.topics)
                if self._add(neighbor.topics, topic):
                    for known in others:
                        if known not in bridge.topics:
                            self._compare(known, topic)
        # by identity: rules of two lines may be equal
        place = {id(rule): number for number, rule in enumerate(in_order([t.rule for t in neighbor.topics]))}
        neighbor.topics.sort(key=lambda topic: place[id(topic.rule)])

    def _compare(self, known: TopicLine, topic: TopicLine) -> None:
        """Remark that topics which two connections have taken cross once."""
        alike = list(share(known.rule, topic.rule))
        if alike:
            name = "" if all(alike) else " under one name"
            qos = "" if known.rule.qos == topic.rule.qos else " with one QoS"
            self.remark(
                topic.line,
                f"topics that line {known.place} takes as well cross once{name}{qos}",
                differs=bool(name or qos),
            )

    def _add_tls(self, link: dict[str, Any], bridges: list[Bridge]) -> None:
        tls = next((files for bridge in bridges if (files := bridge.files)), {})
        if any(bridge.tls and bridge.files != tls for bridge in bridges):
            self._whole("the node shows one certificate to all neighbours: the first is taken", differs=True)
        if any(bridge.tls for bridge in bridges):
            link["tls"] = {"ca": "ca.pem", "cert": "node-cert.pem", "key": "node-key.pem", **tls}
            missing = [file for key, file in link["tls"].items() if key not in tls]
            if missing:
                self._whole(
                    f"links have certificates at both ends: {' and '.join(missing)} are to be made",
                    differs=False,
                )
            self._whole(
                "the certificates of both nodes need the alternative name URI:ildm:NODE_ID", differs=False
            )

    def _add_rules(self, link: dict[str, Any], neighbors: list[Neighbor]) -> None:
        if len(neighbors) == 1:
            link["rules"] = neighbors[0].rules
            return
        named: set[str] = set()
        link["neighbors"] = []
        for neighbor in neighbors:
            node = _node_id(neighbor.bridges[0].name, named)
            named.add(node)
            # another node that answers at the address is refused, so none gets the rules of another
            link["neighbors"].append({"url": neighbor.url, "id": node, "rules": neighbor.rules})
            self._whole(
                f"give the node at {Address(neighbor.broker.host, neighbor.port)} the node_id {node}: "
                "another one is refused there, as its rules are by that",
                differs=False,
            )


def _node_id(name: str, taken: Iterable[str]) -> str:
    """A node id like the name of a connection, and none that is taken."""
    node = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:60] or "neighbor"
    place = 1
    while node in taken:
        place += 1
        node = f"{node.removesuffix(f'-{place - 1}')}-{place}"
    return node


def _far_broker(word: str) -> Address:
    """An address as Mosquitto reads it: the port follows the last colon.

    Raises:
        ValueError: Mosquitto refuses it, or nobody can be dialed there.
    """
    bare = word.startswith("[") and word.endswith("]")
    host, colon, digits = (word, "", "") if bare else word.rpartition(":")
    if not colon:
        host, port = word, BROKER_PORT
    else:
        port = number(digits)
        if not 0 < port < 1 << 16:
            raise ValueError(f"{digits or 'nothing'} is no port: 1 to 65535")
    host = host.removeprefix("[").removesuffix("]")
    if ":" in host:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError("an IPv6 address needs a port after its last colon") from None
    address = parse_address(str(Address(host, port, "mqtts")))  # with a scheme hosts are judged as in URLs
    return Address(address.host, port)


def _topic_words(line: Line) -> list[str]:
    """The words of a ``topic``; its first may be quoted, and ``#`` there is a wildcard.

    Raises:
        ValueError: there is none.
    """
    value = line.value
    if value.startswith('"') and not value.startswith('""'):
        pattern, closed, rest = value[1:].partition('"')
        if not closed:
            raise ValueError("its quotation mark is not closed")
    else:
        pattern, rest = line.first, value[len(line.first) :]
    if not pattern:
        raise ValueError("expected a topic, a direction, a QoS and two prefixes")
    return [pattern, *Line(0, "", rest).words]

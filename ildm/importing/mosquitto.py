"""A Mosquitto bridge as the configuration of a node: ``ildm import mosquitto.conf``.

The node takes the place of the broker with the bridge; at the far end a node stands beside the far broker.
Lines about the broker itself stay with the broker. What a node does not do is named with its line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from pydantic import ValidationError

from ildm.config import Config, ConfigError, TopicRule
from ildm.core.link.rules import flaw
from ildm.importing.bridge_options import BRIDGE, ENCRYPTED, NEEDLESS, SAME, WITHOUT
from ildm.importing.lines import Line, Remark, lines, remark
from ildm.importing.listeners import OPTIONS, Listeners

LINK_PORT = 1885
FIRST_BROKER_PORT = 1884
"""Where the broker moves to, or the next that the node does not take, past that of links."""


@dataclass
class Bridge:
    """One ``connection`` with what belongs to it."""

    name: str
    addresses: list[str] = field(default_factory=list)
    rules: list[tuple[str, str, TopicRule]] = field(default_factory=list)
    """Place and text of the line, and what it says."""
    tls: dict[str, str] = field(default_factory=dict)
    """Keys of ``link.tls``, and what else says that the bridge is encrypted."""

    @property
    def files(self) -> dict[str, str]:
        return {key: self.tls[key] for key in ("ca", "cert", "key") if key in self.tls}


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
            head += [f"#   {place}: {text}" for place, text, _ in bridge.rules]
        if self.remarks:
            head.append("# Not as before:")
            head += [f"#   {_place(each)}{each.text}" for each in self.remarks]
        if "listen" not in self.document and "listeners" not in self.document:
            head.append("# listen: HOST:PORT  # for clients, in place of the listeners that are left out")
        body = yaml.safe_dump(self.document, sort_keys=False, allow_unicode=True, width=100)
        return "\n".join(head) + "\n" + body


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
        self.remarks: list[Remark] = []
        self.link: dict[str, Any] = {}
        self.broker: dict[str, Any] = {}
        self.listeners = Listeners()
        self.of_the_broker = 0
        self.anonymous: bool | None = None

    def remark(self, line: Line, text: str) -> None:
        self.remarks.append(remark(line, text))

    def _whole(self, text: str) -> None:
        self.remarks.append(Remark(0, text))

    def take(self, line: Line) -> None:
        option, value = line.option, line.value
        if option == "connection":
            self.bridges.append(Bridge(value))
        elif option not in BRIDGE:
            self._broker_line(line)
        elif not self.bridges:
            self.remark(line, "before the first connection, so it belongs to none")
        elif option in NEEDLESS or (option, value) in SAME:
            return
        elif option in WITHOUT:
            self.remark(line, WITHOUT[option])
            if option in ENCRYPTED:  # nothing that was encrypted goes in the clear
                self.bridges[-1].tls[option] = value
        else:
            getattr(self, f"_{option}")(line, self.bridges[-1])

    def _broker_line(self, line: Line) -> None:
        if line.option in OPTIONS:
            self.listeners.take(line)
            return
        self.of_the_broker += 1
        if line.option == "allow_anonymous":
            self.anonymous = line.value == "true"
        elif line.option == "acl_file":
            self.remark(
                line, "has to let the node's own session read and write what crosses, as no bridge asks it"
            )

    # options of a bridge --------------------------------------------------------------------------

    def _address(self, line: Line, bridge: Bridge) -> None:
        first, *others = line.value.split() or [""]
        name = first[1:].partition("]")[0] if first.startswith("[") else first
        if name.count(":") == 1:
            name = name.partition(":")[0]
        if not name:
            self.remark(line, "no address")
            return
        bridge.addresses.append(f"[{name}]:{LINK_PORT}" if ":" in name else f"{name}:{LINK_PORT}")
        if others:
            self.remark(
                line,
                f"a bridge is connected to one of its addresses, a node to all its neighbours: {first} alone "
                f"is taken. Is {' or '.join(others)} a spare broker of the same site, name it in "
                "broker.addresses of the node there",
            )

    def _topic(self, line: Line, bridge: Bridge) -> None:
        words = line.value.split()
        if not 1 <= len(words) <= 5:
            self.remark(line, "expected a topic, a direction, a QoS and two prefixes")
            return
        pattern, direction, qos, local, remote = [*words, *("out", "0", "", "")[len(words) - 1 :]]
        pattern, local, remote = ("" if word == '""' else word for word in (pattern, local, remote))
        if not pattern:  # one topic, under another name
            local, _, here = local.rpartition("/")
            remote, _, there = remote.rpartition("/")
            if here != there or not here:
                self.remark(line, "names change by whole levels at their beginning only")
                return
            pattern = here
            local, remote = (prefix + "/" if prefix else "" for prefix in (local, remote))
        if pattern.startswith("$") or local.startswith("$") or remote.startswith("$"):
            self.remark(line, "topics that begin with $ do not cross")
            return
        document = {"allow": [pattern], "direction": direction, "qos": int(qos) if qos.isdecimal() else qos}
        try:
            rule = TopicRule.model_validate({**document, "local": local, "remote": remote})
        except ValidationError as error:
            said = error.errors(include_url=False)[0]
            self.remark(line, str(said["msg"]).removeprefix("Value error, "))
            return
        merged = flaw([*(known for _, _, known in bridge.rules), rule])
        if merged is not None:
            self.remark(line, merged)
            return
        bridge.rules.append(
            (f"{line.file}:{line.number}" if line.file else str(line.number), f"topic {line.value}", rule)
        )

    def _keepalive_interval(self, line: Line, bridge: Bridge) -> None:
        self._number(line, "keep_alive", 1, 3600)

    def _bridge_max_packet_size(self, line: Line, bridge: Bridge) -> None:
        if line.value != "0":
            self._number(line, "packet_size", 1024, 1 << 30)

    def _number(self, line: Line, key: str, least: int, most: int) -> None:
        if line.value.isdecimal() and least <= int(line.value) <= most:
            self._set(line, self.link, key, int(line.value))
        else:
            self.remark(line, f"link.{key} is a number from {least} to {most}")

    def _restart_timeout(self, line: Line, bridge: Bridge) -> None:
        words = line.value.split()
        if not words or len(words) > 2 or not all(word.isdecimal() and int(word) for word in words):
            self.remark(line, "expected seconds")
            return
        self._set(line, self.link, "reconnect_min", float(words[0]))
        self._set(line, self.link, "reconnect_max", float(words[-1]))

    def _local_username(self, line: Line, bridge: Bridge) -> None:
        self._set(line, self.broker, "username", line.value)

    def _local_password(self, line: Line, bridge: Bridge) -> None:
        self.remark(line, "write it into a file of its own, and name that in broker.password_file")

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
        if not self.bridges:
            raise ConfigError(f"{self.source}: there is no bridge in it, no line that begins with connection")
        for bridge in self.bridges:
            for what, given in (("address", bridge.addresses), ("topic", bridge.rules)):
                if not given:
                    self._whole(f"connection {bridge.name} has no {what} that can be taken: it is left out")
        bridges = [bridge for bridge in self.bridges if bridge.addresses and bridge.rules]
        link: dict[str, Any] = {"listen": None, "neighbors": []}
        tls = next((files for bridge in bridges if (files := bridge.files)), {})
        if any(bridge.tls and bridge.files != tls for bridge in bridges):
            self._whole("the node shows one certificate to all neighbours: the first is taken")
        if any(bridge.tls for bridge in bridges):
            link["tls"] = {"ca": "ca.pem", "cert": "node-cert.pem", "key": "node-key.pem", **tls}
            missing = [file for key, file in link["tls"].items() if key not in tls]
            if missing:
                self._whole(f"links have certificates at both ends: {' and '.join(missing)} are to be made")
            self._whole("the certificates of both nodes need the alternative name URI:ildm:NODE_ID")
        for bridge in bridges:
            scheme = "mqtts://" if bridge.tls else ""
            link["neighbors"] += [scheme + each for each in bridge.addresses]
        self._add_rules(link, bridges)
        listening = self.listeners.finish()
        self.remarks += self.listeners.remarks
        if not listening:
            self._whole(
                "every listener is left out: until listen or listeners says where, clients connect to "
                f"{Config().listen} without TLS"
            )
        taken = [listening.get("listen", ""), *(each["url"] for each in listening.get("listeners", ()))]
        port = FIRST_BROKER_PORT
        while any(each.endswith(f":{port}") for each in taken):
            port += 2
        open_to_all = not self.listeners.given if self.anonymous is None else self.anonymous
        if not open_to_all and "username" not in self.broker:
            self._whole(
                "the broker wants names and passwords, of the node's own session, too: give it an account "
                "that may read and write what crosses, in broker.username and broker.password_file"
            )
        broker = {"address": f"127.0.0.1:{port}", **self.broker}
        document = {**listening, "broker": broker, "algorithm": "sf", "link": link | self.link}
        remarks = sorted(self.remarks, key=lambda each: (each.line > 0, each.file, each.line))
        return Imported(
            document, bridges, remarks, self.of_the_broker, open_to_all and self.anonymous is None
        )

    def _add_rules(self, link: dict[str, Any], bridges: list[Bridge]) -> None:
        if len(bridges) == 1:
            link["rules"] = _documents(bridges[0])
            return
        link["neighbor_rules"] = []
        for place, bridge in enumerate(bridges):
            node = re.sub(r"[^A-Za-z0-9._-]", "-", bridge.name)[:64] or f"neighbor-{place}"
            link["neighbor_rules"].append({"id": node, "rules": _documents(bridge)})
            self._whole(f"give the node at {bridge.addresses[0]} the node_id {node}: its rules are by that")


def _documents(bridge: Bridge) -> list[dict[str, Any]]:
    """The rules, with what is not default; topics that differ in nothing else stand together."""
    found: list[dict[str, Any]] = []
    for _, _, rule in bridge.rules:
        document = rule.model_dump(exclude_defaults=True)
        if found and {**found[-1], "allow": None} == {**document, "allow": None}:
            found[-1]["allow"] += document["allow"]
        else:
            found.append(document)
    return found

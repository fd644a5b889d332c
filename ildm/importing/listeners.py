"""Where clients connect to: the listeners of a mosquitto.conf become those of the node.

The broker keeps one, which the node alone reaches: what a client says to the broker itself does not cross.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from ildm.config import ListenerConfig
from ildm.importing.bridge_options import TRUTHS
from ildm.importing.lines import Line, Remark, number, remark

TLS = ("cafile", "capath", "certfile", "ciphers", "crlfile", "keyfile", "require_certificate", "tls_version")
TAKEN = frozenset((*TLS, "bind_address", "listener", "port", "protocol", "websockets_origin"))
"""Options of a listener that one of the node has, too."""
SAME = {
    ("enable_proxy_protocol", "0"),
    ("max_connections", "-1"),
    ("tls_keyform", "pem"),
    ("use_identity_as_username", "false"),
    ("use_subject_as_username", "false"),
}
"""Values that say what a node does anyway."""
_NAMES = (
    "the broker is shown no certificate. From 2.1 on Mosquitto takes its name by the PROXY protocol "
    "(here broker.proxy: v2, there enable_proxy_protocol 2); before, clients need names and passwords"
)
WITHOUT = {
    "bind_interface": "a listener has an address, not a device: write that of the device in its URL",
    "ciphers_tls1.3": "of TLS 1.3 OpenSSL's own choice is taken",
    "dhparamfile": "OpenSSL's own parameters are taken",
    "enable_proxy_protocol": "name the networks of the proxies in proxy.trust of the listener",
    "http_dir": "the node serves no files",
    "max_connections": "limits.clients holds for all listeners together",
    "mount_point": "the broker does not see by which listener a client came: topics are as clients say",
    "psk_file": "there is no TLS with a pre-shared key",
    "psk_hint": "there is no TLS with a pre-shared key",
    "socket_domain": "write 0.0.0.0 or [::] in the URL of the listener",
    "tls_engine": "keys are in files",
    "tls_engine_kpass_sha1": "keys are in files",
    "tls_keyform": "keys are in files",
    "use_identity_as_username": _NAMES,
    "use_subject_as_username": _NAMES,
}
"""Those that a node has not, and what there is in their place."""
OPTIONS = TAKEN | WITHOUT.keys()
JUDGED = frozenset(
    """
    accept_protocol_versions listener_allow_anonymous listener_auto_id_prefix max_qos max_topic_alias
    max_topic_alias_broker maximum_qos
    """.split()  # noqa: SIM905 - a list would take a line for each
)
"""Options by which the broker judges the clients of one listener."""
JUDGED_APART = frozenset(
    """
    acl_file allow_anonymous allow_zero_length_clientid auth_plugin auto_id_prefix password_file plugin
    plugin_use psk_file
    """.split()  # noqa: SIM905
)
"""Those besides, with ``per_listener_settings``."""
ANYWHERE = "0.0.0.0"  # noqa: S104 - as the broker whose place is taken


@dataclass
class Listening:
    """One ``listener``, or what stands before the first."""

    line: Line | None = None
    values: dict[str, Line] = field(default_factory=dict)
    origins: list[str] = field(default_factory=list)
    judged: dict[str, Line] = field(default_factory=dict)
    """What the broker has by itself for clients of this listener."""


def _is_same(line: Line) -> bool:
    """Whether it says what a node does anyway."""
    if line.option == "max_connections":
        return number(line.word) < 0
    return not {(line.option, word) for word in (line.word, TRUTHS.get(line.word))}.isdisjoint(SAME)


class Listeners:
    def __init__(self) -> None:
        self._default = Listening()
        self._last: dict[str, Listening] = {}
        """Of each file: its lines belong to no listener of another."""
        self._named: list[Listening] = []
        self.remarks: list[Remark] = []
        self._apart = False

    @property
    def given(self) -> bool:
        """Whether the file says where to listen: else Mosquitto listens on loopback, for everybody there."""
        return bool(self._named) or not self._default.values.keys().isdisjoint(("port", "bind_address"))

    def take(self, line: Line) -> None:
        last = self._last.get(line.file, self._default)
        if line.option == "listener":
            self._last[line.file] = last = Listening(line)
            self._named.append(last)
        elif line.option == "websockets_origin":
            last.origins.append(line.value)
        elif _is_same(line):
            return
        elif line.option in WITHOUT:
            self.remarks.append(remark(line, WITHOUT[line.option]))
            if line.option == "psk_hint":
                last.values[line.option] = line
        elif line.option in ("port", "bind_address"):  # these are always of the default one
            self._default.values[line.option] = line
        else:
            last.values[line.option] = line

    def broker_has(self, line: Line) -> None:
        """A line that stays with the broker, which may be about one listener alone."""
        if line.option == "per_listener_settings":
            self._apart = TRUTHS.get(line.word, line.word) == "true"
        elif line.option in JUDGED or (self._apart and line.option in JUDGED_APART):
            self._last.get(line.file, self._default).judged[line.option] = line

    def _compare(self, listeners: list[Listening]) -> None:
        """The broker keeps one listener, and so one judgement of all clients."""
        for option in sorted({option for each in listeners for option in each.judged}):
            said = [each.judged.get(option) for each in listeners]
            if len({None if line is None else line.value for line in said}) > 1:
                self.remarks += (
                    remark(line, "the broker's one listener judges the clients of all listeners alike")
                    for line in said
                    if line is not None
                )

    def finish(self) -> dict[str, Any]:
        """``listen`` and ``listeners``."""
        found = []
        values = self._default.values
        has_default = not self.given or "port" in values or "bind_address" in values
        self._compare([*([self._default] if has_default else []), *self._named])
        if has_default:
            port = values["port"].word if "port" in values else "1883"
            host = values["bind_address"].word if "bind_address" in values else ""
            if not self.given:
                host = "127.0.0.1"
            found.append(self._one(self._default, values.get("port"), port, host))
        for each in self._named:
            assert each.line is not None
            port, host, *_ = [*each.line.words, "", ""]
            found.append(self._one(each, each.line, port, host))
        documents = list({document["url"]: document for document in found if document is not None}.values())
        plain = next((each for each in documents if each["url"].startswith("mqtt:")), None)
        rest = [each for each in documents if each is not plain]
        said: dict[str, Any] = {}
        if plain is not None:
            said["listen"] = plain["url"].removeprefix("mqtt://")
        if rest:
            said["listeners"] = rest
        return said

    def _one(self, each: Listening, line: Line | None, port: str, host: str) -> dict[str, Any] | None:
        def said(text: str) -> None:
            place = line or Line(0, "listener", port)
            self.remarks.append(remark(place, text))

        protocol = each.values["protocol"].word if "protocol" in each.values else "mqtt"
        if protocol not in ("mqtt", "websockets"):
            said(f"protocol {protocol} is not spoken: this listener is left out")
            return None
        if port and number(port) == 0 and host.startswith("/") and protocol == "mqtt":
            said('its socket is for its owner alone until mode is another: "0660", "0666"')
            return {"url": f"unix:{host}"}
        if not 0 < number(port) < 1 << 16:
            said("expected a port and an address: this listener is left out")
            return None
        host = host or ANYWHERE
        place = f"[{host}]:{number(port)}" if ":" in host else f"{host}:{number(port)}"
        secure = {option: each.values[option] for option in ("certfile", "keyfile") if option in each.values}
        if len(secure) == 1 or ("psk_hint" in each.values and not secure):
            said("TLS needs a certificate and its key: this listener is left out")
            return None
        scheme = {"mqtt": ("mqtt", "mqtts"), "websockets": ("ws", "wss")}[protocol][bool(secure)]
        document: dict[str, Any] = {"url": f"{scheme}://{place}"}
        if secure:
            document["tls"] = self._tls(each)
        if protocol == "websockets":
            document["path"] = None  # Mosquitto takes any
            if each.origins:
                document["origins"] = each.origins
        try:
            ListenerConfig.model_validate(document)
        except ValidationError as error:
            said(str(error.errors(include_url=False)[0]["msg"]).removeprefix("Value error, ") + ": left out")
            return None
        return document

    def _tls(self, each: Listening) -> dict[str, Any]:
        values = each.values
        tls = {"cert": values["certfile"].value, "key": values["keyfile"].value}
        if (
            "require_certificate" in values
            and TRUTHS.get(word := values["require_certificate"].word, word) == "true"
        ):
            tls["verify"] = "require"
            if "cafile" in values:
                tls["ca"] = values["cafile"].value
            else:
                tls["ca"] = "ca.pem"
                self.remarks.append(
                    remark(
                        values["require_certificate"],
                        "give one file with the authorities: ca of tls",
                        differs=False,
                    )
                )
            if "crlfile" in values:
                tls["crl"] = values["crlfile"].value
        if "ciphers" in values:
            tls["ciphers"] = values["ciphers"].value
        if "tls_version" in values:
            version = values["tls_version"]
            if version.value in ("tlsv1.2", "tlsv1.3"):
                tls["min_version"] = version.value.removeprefix("tlsv")
            else:
                self.remarks.append(remark(version, "TLS 1.2 is the oldest that is spoken"))
        return tls

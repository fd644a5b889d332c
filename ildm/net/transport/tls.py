"""TLS contexts made of the files which the configuration names, and made anew when these change.

System certificates are never trusted: each section names the authority it trusts. A change gives a *new*
context; in an old one an authority that was removed would stay trusted. Connections keep the context they
began with.
"""

from __future__ import annotations

import hashlib
import ssl
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ildm.config import ConfigError
from ildm.core.link.certificates import named, nodes_of
from ildm.net.transport.psk import Psk, psk_of
from ildm.net.transport.x509 import not_after, uris
from ildm.regular import read_regular
from ildm.text import reason

if TYPE_CHECKING:
    from ildm.api import Timer
    from ildm.config import Config
    from ildm.config.transports import BrokerTls, KeyPair, LinkTls, ListenerTls, TlsFiles
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
VERIFY = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}
OPTIONS = ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
BEGIN = "-----BEGIN CERTIFICATE-----"


class Context(ssl.SSLContext):
    """Knows which certificate it shows."""

    own: bytes = b""
    """SHA-256 of the certificate, in DER; empty where there is none."""
    ends: float | None = None
    """Unix time of the end of the certificate, or of that of its names which ends first; None: unknown."""
    names: tuple[str, ...] = ()
    """The certificate's alternative names of type URI, by which neighbours know a node."""
    psk = False
    """There is no certificate: both ends have the link secret."""


Keys = Callable[[], Sequence[bytes]]
"""What proofs of the link secret are made with: the key of now, and the one before it while that is good."""


def listener_context(tls: ListenerTls, key: str, *, http: bool) -> Context:
    """For those who connect to this node; ``http``: what they talk begins as HTTP, as WebSocket does.

    Raises:
        ConfigError: a file cannot be used; the text names its key and the file. So do the others here.
    """

    def one(pair: KeyPair, where: str) -> Context:
        context = _context(ssl.PROTOCOL_TLS_SERVER, tls, key)
        context.set_alpn_protocols(["http/1.1"] if http else ["mqtt"])
        context.verify_mode = VERIFY[tls.verify]
        _trust(context, tls, key)
        _show(context, pair, where)
        return context

    default = one(tls, key)
    others = {name.lower(): one(pair, f"{key}.sni.{name}") for name, pair in tls.sni.items()}
    if others:
        known = [each.ends for each in (default, *others.values()) if each.ends is not None]
        default.ends = min(known, default=None)

        def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            name = (name or "").lower()
            chosen = others.get(name) or others.get(f"*.{name.partition('.')[2]}")
            if chosen is not None:
                connection.context = chosen

        default.sni_callback = choose
    return default


def broker_context(tls: BrokerTls, key: str) -> Context:
    """For the broker, whose certificate must be for the name it is dialed by (or ``server_name``)."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, tls, key)
    context.set_alpn_protocols(["mqtt"])
    _trust(context, tls, key)
    if tls.cert is not None and tls.key is not None:
        _load(context, tls.cert, tls.key, key)
    return context


def link_context(tls: LinkTls, key: str, *, dials: bool) -> Context:
    """For neighbours. Both ends show a certificate; whose it is, is seen when they say their node ids."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT if dials else ssl.PROTOCOL_TLS_SERVER, tls, key)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate is bound to the node id, whatever its address
    context.verify_mode = ssl.CERT_REQUIRED
    _trust(context, tls, key)
    assert tls.cert is not None
    assert tls.key is not None
    _load(context, tls.cert, tls.key, key)
    return context


def psk_context(keys: Keys, *, dials: bool, former: bool = False) -> Context:
    """For neighbours that have the link secret; ``former``: dial with the key before the one of now.

    TLS 1.3 only offers such a key. A server with a certificate may show that instead, and a callback that
    raises counts as no key. So there is no certificate here and none is trusted, and the link refuses a
    connection that has come about without the key (`ildm.core.link.certificates`).
    """
    context = Context(ssl.PROTOCOL_TLS_CLIENT if dials else ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.options |= OPTIONS
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.psk = True

    def offered(_: str | None) -> Psk:
        return psk_of(keys()[-1 if former else 0])

    def chosen(identity: str | None) -> bytes:
        known = [psk_of(key) for key in keys()]
        # with no key the neighbour would hear of certificates; with one of ours, that it has another secret
        return next((each.key for each in known if each.identity == identity), known[0].key)

    if sys.version_info >= (3, 13):  # what the configuration has checked
        if dials:
            context.set_psk_client_callback(offered)
        else:
            context.set_psk_server_callback(chosen)
            context.num_tickets = 0
    return context


def _context(protocol: int, tls: TlsFiles, key: str) -> Context:
    context = Context(protocol)
    context.minimum_version = VERSIONS[tls.min_version]
    context.options |= OPTIONS
    if tls.ciphers is not None:
        try:
            context.set_ciphers(tls.ciphers)
        except ssl.SSLError as error:
            raise ConfigError(f"{key}.ciphers: {tls.ciphers!r}: no such ciphers of TLS 1.2") from error
    return context


def _trust(context: Context, tls: TlsFiles, key: str) -> None:
    if tls.ca is not None:
        _read(tls.ca, f"{key}.ca")
        try:
            context.load_verify_locations(cafile=str(tls.ca))
        except ssl.SSLError as error:
            raise ConfigError(f"{key}.ca: {tls.ca} holds no certificate in PEM form") from error
    if tls.crl is not None:
        _read(tls.crl, f"{key}.crl")
        try:
            context.load_verify_locations(cafile=str(tls.crl))
        except ssl.SSLError as error:
            raise ConfigError(f"{key}.crl: {tls.crl} holds no revocation list in PEM form") from error
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _show(context: Context, pair: KeyPair, key: str) -> None:
    _load(context, pair.cert, pair.key, key)


def _load(context: Context, cert: Path, secret: Path, key: str) -> None:
    text = _read(cert, f"{key}.cert")
    _read(secret, f"{key}.key")
    try:
        own = ssl.PEM_cert_to_DER_cert(text[text.index(BEGIN) : text.index("-----END CERTIFICATE-----") + 25])
    except ValueError as error:
        raise ConfigError(f"{key}.cert: {cert} holds no certificate in PEM form") from error

    def protected() -> str:
        raise ConfigError(f"{key}.key: {secret} is protected by a password; give the key without one")

    try:
        context.load_cert_chain(cert, secret, protected)
    except ssl.SSLError as error:
        why = str(error.reason or "")
        if why in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
            raise ConfigError(f"{key}.key: {secret} is not the key of the certificate {cert}") from error
        if why in ("", "PEM_LIB", "NO_START_LINE"):
            raise ConfigError(f"{key}.key: {secret} holds no private key in PEM form") from error
        raise ConfigError(f"{key}.cert: {cert}: {why.replace('_', ' ').lower()}") from error
    context.own = hashlib.sha256(own).digest()
    try:
        context.ends, context.names = not_after(own), tuple(uris(own))
    except ValueError:  # written in a way that RFC 5280 forbids; no reason not to serve
        context.ends, context.names = None, ()


def _read(path: Path, key: str) -> str:
    try:
        return read_regular(path).decode("ascii", errors="replace")
    except OSError as error:
        raise ConfigError(f"{key}: {path} cannot be read: {reason(error)}") from error


Stamps = list[tuple[int, int, int] | None]


class LiveContext:
    """A context that follows its files.

    Args:
        make: makes it. Raises: ConfigError.
        files: what it is made of.

    Raises:
        ConfigError: that of ``make``.
    """

    def __init__(self, make: Callable[[], Context], key: str, files: Iterable[Path], watch: float) -> None:
        self.key = key
        self.watch = watch
        """Seconds between two looks at the files."""
        self._make = make
        self.files = list(files)
        self._seen = self._stamps()
        self.context = make()

    def is_older_than(self, other: LiveContext) -> bool:
        """Whether the other one was made of the same files when they held something else."""
        return self.files == other.files and self._seen != other._seen

    def changed(self) -> tuple[Context, Stamps] | None:
        """What :meth:`take` is to get; None where no file has changed. It waits for the disk: in a thread.

        Raises:
            ConfigError: they cannot be used, and those of before go on; asked again, they are tried again.
        """
        now = self._stamps()
        return None if now == self._seen else (self._make(), now)

    def take(self, made: tuple[Context, Stamps]) -> None:
        self.context, self._seen = made

    def _stamps(self) -> Stamps:
        return [_stamp(path) for path in self.files]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class NodeTls:
    """All contexts of a node; None where the configuration has no such section.

    Args:
        keys: asked when a neighbour comes or is dialed, where links have no certificates.

    Raises:
        ConfigError: a file cannot be used.
    """

    def __init__(self, config: Config, keys: Keys = tuple) -> None:
        self._config = config
        self.keys = keys
        self.listeners: dict[str, LiveContext] = {}
        for key, each in config.clients_at:
            tls = each.tls
            if tls is not None:
                where = f"{key}.tls"
                made = partial(listener_context, tls, where, http=each.url.has_websocket)
                self.listeners[key] = _following(made, where, tls)
        pages = config.dashboard.tls
        self.dashboard: LiveContext | None = None
        if pages is not None and config.dashboard.listen is not None:
            where = "dashboard.tls"
            self.dashboard = _following(partial(listener_context, pages, where, http=True), where, pages)
        broker, link = config.broker.tls, config.link.tls
        self.broker: LiveContext | None = None
        self.link_in: LiveContext | None = None
        self.link_out: LiveContext | None = None
        self.link_former: Context | None = None
        """What dials with the key before the one of now."""
        if broker is not None:
            self.broker = _following(partial(broker_context, broker, "broker.tls"), "broker.tls", broker)
        if link is not None and config.algorithm is not None:
            make = partial(psk_context, keys) if link.psk else partial(link_context, link, "link.tls")
            self.link_in, self.link_out = (
                _following(partial(make, dials=dials), "link.tls", link) for dials in (False, True)
            )
            self.link_former = psk_context(keys, dials=True, former=True) if link.psk else None

    def __iter__(self) -> Iterator[LiveContext]:
        yield from self.listeners.values()
        for each in (self.dashboard, self.broker, self.link_in, self.link_out):
            if each is not None:
                yield each

    def concerns(self, each: LiveContext, now: float) -> Iterator[tuple[str, str]]:
        """What is wrong with the certificate that one of them shows, though it can be used: the key of its
        file, and a text for people. ``now`` is Unix time."""
        if each is self.link_in or each.context.psk:
            return  # it shows the same as the one that dials, or nothing
        ends, key = each.context.ends, f"{each.key}.cert"
        if ends is not None and ends <= now:
            at = datetime.fromtimestamp(ends, UTC)
            yield (
                key,
                f"the certificate ended on {at:%Y-%m-%d at %H:%M} UTC: who verifies it does not connect",
            )
        section, node_id = self._config.link.tls, self._config.node_id
        if (
            each is not self.link_out
            or section is None
            or section.psk
            or section.identity != "san"
            or node_id is None
        ):
            return
        nodes = nodes_of(each.context.names)
        if node_id not in nodes:  # neighbours, who know a node by that name, take it for another
            yield (
                key,
                f"{section.cert} is for {named(nodes)}, not for this node: neighbours refuse it, as it lacks "
                f"the alternative name URI:ildm:{node_id}",
            )


def uses_tls(config: Config) -> bool:
    """Whether any connection may."""
    listening = any(each.tls is not None for _, each in config.clients_at)
    return listening or config.broker.tls is not None or config.link.tls is not None


class Renewal:
    """Looks at the files of certificates now and then, and takes up those that have changed.

    The files may be on a disk that does not answer. So each section has a thread that looks at them; as long
    as it has not come back, nobody looks again.
    """

    def __init__(self, tls: NodeTls, driver: Driver, counters: Counters) -> None:
        self._driver = driver
        self._counters = counters
        self._timers: dict[LiveContext, Timer] = {}
        self._tls = tls
        self._looking: dict[LiveContext, bool] = {}
        """Those that a thread looks at; whether it was said that this takes long."""
        self._stopped = False
        for each in tls:
            self._look_later(each)

    def stop(self) -> None:
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()

    def _look_later(self, each: LiveContext) -> None:
        self._timers[each] = self._driver.call_later(each.watch, self._look_on, each)

    def _look_on(self, each: LiveContext) -> None:
        self._look_later(each)
        told = self._looking.get(each)
        if told is None:
            self._looking[each] = False
            self._driver.offload(f"{each.key} files", each.changed, partial(self._looked, each))
        elif not told:
            self._looking[each] = True
            self._counters["certificates_unusable"] += 1
            self._driver.log(
                "error",
                "the files of certificates cannot be looked at: their disk does not answer",
                key=each.key,
                files=[str(path) for path in each.files],
            )

    def _looked(self, each: LiveContext, found: tuple[Context, Stamps] | BaseException | None) -> None:
        self._looking.pop(each, None)
        if self._stopped or found is None:
            return
        if isinstance(found, tuple):
            each.take(found)
            self._counters["certificates_renewed"] += 1
            self._driver.log("info", "certificates renewed", key=each.key)
            for key, text in self._tls.concerns(each, self._driver.wall()):
                self._driver.log("warning", "configuration", key=key, problem=text)
        elif isinstance(found, ConfigError):
            self._counters["certificates_unusable"] += 1
            self._driver.log("error", "certificates that have changed cannot be used", error=str(found))
        else:
            raise found


def _following(make: Callable[[], Context], key: str, tls: TlsFiles) -> LiveContext:
    return LiveContext(make, key, tls.files, tls.watch)

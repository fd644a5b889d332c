"""What a configuration would run into on this machine: said before a node starts instead of after.

A configuration can be sound by itself and lead a node back to itself, by another name of the same host, or
to a directory it cannot use. What must fail is fatal; what may be meant, or may change until the node
starts, is a warning.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import socket
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from ildm.config import SHORT_SECRET, Address, Config, ConfigError, read_secret, transports
from ildm.config.rate import LEAST_OF_OVERLAYS
from ildm.core.transfer.rules import remaps
from ildm.hosts import Hosts
from ildm.net.dashboard.token import read_token
from ildm.net.transport import NodeTls, uses_tls
from ildm.state.lock import is_locked
from ildm.state.spool.disk import unfit
from ildm.text import reason
from ildm.unix_socket import PATH_LIMIT


class Finding(NamedTuple):
    key: str
    """Dotted key of the configuration."""
    text: str
    fatal: bool


def examine(
    config: Config, *, thorough: bool, given: Collection[str] = (), has_overlay: bool = False
) -> list[Finding]:
    """Everything that speaks against a start, in the order of the configuration's keys.

    ``thorough`` asks the resolver and tries ports, too: what ``ildm check`` has time for. Otherwise only
    what is certain without waiting is looked at. ``given`` are paths of unix sockets that listen already, for
    the node; ``has_overlay``: the algorithm has one.
    """
    hosts = Hosts(thorough)
    hosts.ask(address for _, address in _addresses(config))
    state, running = _state_directory(config.state_dir)
    found = [
        *state,
        *(() if any(each.fatal for each in state) else _spool(config)),
        *_listeners(config, hosts, given),
        *_broker(config, hosts),
        *_secret(config),
        *_certificates(config),
        *_neighbors(config, hosts),
        *_rules(config),
        *(_rates(config) if has_overlay else ()),
        *_admin_socket(config),
        *_dashboard(config),
        *_traces(config),
    ]
    if thorough:
        found += _plain_links(config)
        found += _unresolved(config, hosts)
        if not running:
            found += _ports(config, hosts)
    return found


def _addresses(config: Config) -> Iterator[tuple[str, Address]]:
    yield from _for_clients(config)
    yield from ((key, address) for key, address in config.broker.located if address.scheme != "unix")
    if config.algorithm is not None:
        if config.link.listen is not None:
            yield "link.listen", config.link.listen
        if config.link.advertise is not None:
            yield "link.advertise", config.link.advertise
        for index, address in enumerate(config.link.addresses):
            yield f"link.neighbors.{index}", address
    if config.metrics.listen is not None:
        yield "metrics.listen", config.metrics.listen
    if config.dashboard.listen is not None:
        yield "dashboard.listen", config.dashboard.listen


def _for_clients(config: Config) -> Iterator[tuple[str, Address]]:
    """Where clients connect by TCP."""
    for key, each in config.clients_at:
        if each.url.scheme != "unix":
            yield key, each.url


def _listening(config: Config) -> Iterator[tuple[str, Address]]:
    """Where anybody connects by TCP."""
    yield from _for_clients(config)
    if config.algorithm is not None and config.link.listen is not None:
        yield "link.listen", config.link.listen
    if config.metrics.listen is not None:
        yield "metrics.listen", config.metrics.listen
    if config.dashboard.listen is not None:
        yield "dashboard.listen", config.dashboard.listen


# the checks --------------------------------------------------------------------------------------


def _unresolved(config: Config, hosts: Hosts) -> Iterator[Finding]:
    for key, address in _addresses(config):
        why = hosts.unknown(address)
        if why is not None:
            yield Finding(key, f"{address.host} cannot be resolved: {why}", False)


def _listeners(config: Config, hosts: Hosts, given: Collection[str]) -> Iterator[Finding]:
    seen: list[tuple[str, Address]] = []
    for key, address in _listening(config):
        for other_key, other in seen:
            if hosts.overlap(other, address):
                for_links = key == "link.listen"
                taken = "where clients connect" if for_links else "listened on already"
                yield Finding(key, f"{address} is {taken} ({other_key}: {other})", True)
                break
        seen.append((key, address))
    advertised = config.link.advertise if config.algorithm is not None else None
    for key, address in _for_clients(config):
        if advertised is not None and advertised == address and address != config.link.listen:
            yield Finding("link.advertise", f"{advertised} is where clients connect ({key}: {address})", True)
    for key, address in _for_clients(config):
        told = config.broker.proxy != "none"
        if any(each.is_local for each in config.broker.candidates) and not told and not address.is_loopback:
            yield Finding(
                key,
                f"{address} is open to other machines, but to the broker all clients come from this one: "
                "what it allows by address, such as RabbitMQ's user guest, is open to them, too",
                False,
            )
    yield from _unix_paths(config, given)


def _unix_paths(config: Config, given: Collection[str]) -> Iterator[Finding]:
    """What is wrong with the paths of unix sockets for clients."""
    for key, each in config.clients_at:
        path = Path(each.url.host)
        if each.url.scheme != "unix" or each.url.host in given:
            continue
        if len(os.fsencode(path)) > PATH_LIMIT:
            text = f"{path} is longer than the {PATH_LIMIT} bytes of the path of a unix socket"
            yield Finding(key, text, True)
        elif not path.parent.is_dir():
            yield Finding(key, f"{path}: there is no directory {path.parent}", True)
        elif not os.access(path.parent, os.W_OK | os.X_OK):
            yield Finding(key, f"{path}: {path.parent} cannot be written", True)
        elif os.path.lexists(path) and not path.is_socket():
            yield Finding(key, f"{path} is no socket", True)


def _broker(config: Config, hosts: Hosts) -> Iterator[Finding]:
    for key, address in config.broker.located:
        yield from _one_broker(config, hosts, key, address)


def _one_broker(config: Config, hosts: Hosts, place: str, broker: Address) -> Iterator[Finding]:
    if broker.scheme == "unix":
        for key, each in config.clients_at:
            if each.url == broker:
                yield Finding(place, f"{broker} leads back to this node ({key})", True)
        return
    if broker.port == 0:
        yield Finding(place, f"{broker}: nobody listens at port 0", True)
    for key, address in _listening(config):
        if hosts.leads_to(broker, address):
            yield Finding(
                place,
                f"{broker} leads back to this node ({key}: {address}), not to a broker",
                True,
            )


def _neighbors(config: Config, hosts: Hosts) -> Iterator[Finding]:
    if config.algorithm is None:
        return
    own = list(_for_clients(config))
    own += [("link.listen", config.link.listen)] if config.link.listen is not None else []
    own += [("link.advertise", config.link.advertise)] if config.link.advertise is not None else []
    seen: list[tuple[str, Address]] = []
    for index, neighbor in enumerate(config.link.addresses):
        key = f"link.neighbors.{index}"
        if neighbor.port == 0:
            yield Finding(key, f"{neighbor}: nobody listens at port 0", True)
            continue
        for own_key, address in own:
            if hosts.leads_to(neighbor, address):
                yield Finding(key, f"{neighbor} is this node itself ({own_key}: {address})", False)
                break
        for place, broker in config.broker.located:
            if neighbor == broker:
                yield Finding(key, f"{neighbor} is the broker, not a node ({place})", False)
        for other_key, other in seen:
            if neighbor == other or (neighbor.port == other.port and _meet(hosts, neighbor, other)):
                yield Finding(key, f"{neighbor} is the same as {other_key}: {other}", False)
                break
        seen.append((key, neighbor))


def _rules(config: Config) -> Iterator[Finding]:
    link = config.link
    sets = [("link.rules", link.rules or [])]
    sets += [(f"link.neighbor_rules.{n}", each.rules) for n, each in enumerate(link.neighbor_rules)]
    sets += [(f"link.neighbors.{n}", each.rules or []) for n, each in enumerate(link.neighbors)]
    for key, rules in sets:
        if remaps(rules) and len(link.neighbors) > 1:
            yield Finding(
                key,
                "topics change their names: where links close a ring, the name with which a message arrives "
                "depends on which of them is blocked",
                False,
            )
        if rules and config.algorithm is None:
            yield Finding(key, "without effect, as algorithm names none", False)
    dialed = [each.url for each in link.neighbors if link.ruled(each.id or "")[0] == "link.rules"]
    if link.closed and (dialed or link.listen is not None):
        others = ", ".join(map(str, dialed)) or "a neighbour with another node_id"
        yield Finding(
            "link.rules",
            f"nothing crosses between this node and {others}, as single neighbours have rules: "
            "write here what may cross with all others ([]: everything)",
            False,
        )


def _rates(config: Config) -> Iterator[Finding]:
    """Rates that are too low for an overlay."""
    places = [("link.rate", config.link.rate)]
    places += [
        (f"link.neighbors.{n}.rate", each.rate) for n, each in enumerate(config.link.neighbors) if each.rate
    ]
    for place, each in places:
        for key, rate in (("out", each.out), ("in", each.in_)):
            if rate is not None and rate < LEAST_OF_OVERLAYS:
                text = (
                    f"{rate} bytes a second are few for an overlay: what it repeats until it is answered may "
                    f"take more. Take {LEAST_OF_OVERLAYS} or more, or sf"
                )
                yield Finding(f"{place}.{key}", text, False)


def _secret(config: Config) -> Iterator[Finding]:
    key = "link.secret" if config.link.secret is not None else "link.secret_file"
    try:
        secret = read_secret(config.link.secret, config.link.secret_file, key)
    except ConfigError:
        return  # said where it is read
    if secret is not None and len(secret) < SHORT_SECRET:
        yield Finding(key, f"{len(secret)} characters can be guessed: take {SHORT_SECRET} or more", False)


def _plain_links(config: Config) -> Iterator[Finding]:
    """Links beyond this machine that the secret could encrypt."""
    link = config.link
    if transports.psk_missing() is not None or (link.secret is None and link.secret_file is None):
        return
    addresses = [address for key, address in _addresses(config) if key.startswith("link.")]
    plain = [address for address in addresses if not (address.has_tls or address.is_loopback)]
    if plain:
        text = (
            f"links by {plain[0]} are not encrypted: if all nodes have Python 3.13, take mqtts:// and "
            "link.tls: {psk: true}"
        )
        yield Finding("link.tls", text, False)


def _certificates(config: Config) -> Iterator[Finding]:
    """What is wrong with the files of TLS."""
    try:
        tls = NodeTls(config)
    except ConfigError as error:
        key, _, text = str(error).partition(": ")
        yield Finding(key, text, True)
        return
    now = time.time()
    for each in tls:
        for key, text in tls.concerns(each, now):
            yield Finding(key, text, False)
    if uses_tls(config) and importlib.util.find_spec("uvloop") is None:
        text = (
            "uvloop is not installed: an idle connection over TLS takes 278 KiB without it, 24 to 47 with it"
        )
        yield Finding("tls", text, False)


def _traces(config: Config) -> Iterator[Finding]:
    """What is wrong with the files for the collector of traces."""
    if config.trace.otlp is None:
        return
    from ildm.net.otlp import read_headers, trusted  # noqa: PLC0415 - slow to import, seldom needed

    try:
        read_headers(config.trace.headers_file)
        trusted(config.trace.ca)
    except ConfigError as error:
        key, _, text = str(error).partition(": ")
        yield Finding(key, text, True)


def _dashboard(config: Config) -> Iterator[Finding]:
    """What is wrong with the token; one that is not there yet is made at the start."""
    path = config.dashboard_token
    if config.dashboard.listen is None or not os.path.lexists(path):
        return
    try:
        read_token(path)
    except ConfigError as error:
        key, _, text = str(error).partition(": ")
        yield Finding(key, text, True)


def _meet(hosts: Hosts, one: Address, other: Address) -> bool:
    return bool({ip.host for ip in hosts.of(one)} & {ip.host for ip in hosts.of(other)})


def _open_to_others(path: Path) -> Iterator[Finding]:
    mode = path.stat().st_mode
    if mode & 0o002:
        yield Finding(
            "state_dir",
            f"{path} can be written by every user of this machine ({mode & 0o7777:04o}), who may replace the "
            f"node's files: chmod 700 {path}",
            False,
        )


def _state_directory(path: Path) -> tuple[list[Finding], bool]:
    """What speaks against it, and whether a node runs with it."""

    def fatal(text: str) -> tuple[list[Finding], bool]:
        return [Finding("state_dir", text, True)], False

    try:
        if path.is_dir():
            if not os.access(path, os.W_OK | os.X_OK):
                return fatal(f"{path} cannot be written")
            return list(_open_to_others(path)), is_locked(path)
        above = next(parent for parent in (path, *path.absolute().parents) if os.path.lexists(parent))
        if not above.is_dir():
            return fatal(f"{above} is no directory")
        if not os.access(above, os.W_OK | os.X_OK):
            return fatal(f"{path} cannot be made: {above} cannot be written")
    except OSError as error:
        return fatal(f"{path}: {reason(error)}")
    return [], False


def _spool(config: Config) -> Iterator[Finding]:
    """What is wrong with the spool's directory, and with the room for what it may hold."""
    if config.spool.mode == "off":
        return
    directory = config.spool_directory
    key = "state_dir" if config.spool.directory is None else "spool.directory"
    try:
        if os.path.lexists(directory) and (why := unfit(directory)) is not None:
            yield Finding(key, f"{directory} cannot hold the spool: {why}", True)
            return
        above = next(parent for parent in (directory, *directory.absolute().parents) if parent.exists())
        disk = os.statvfs(above)
        held = sum(each.stat().st_blocks * 512 for each in os.scandir(above) if above == directory)
    except OSError as error:
        yield Finding(key, f"{directory} cannot hold the spool: {reason(error)}", True)
        return
    free = disk.f_bavail * disk.f_frsize + held
    if free < config.spool.bytes:
        yield Finding(
            "spool.bytes",
            f"{config.spool.bytes:,} bytes are more than {directory} has room for ({free:,}): the disk is "
            "full before the spool is",
            False,
        )


def _admin_socket(config: Config) -> Iterator[Finding]:
    path = config.admin_socket
    if len(os.fsencode(path)) > PATH_LIMIT:
        given = config.admin.socket is not None
        yield Finding(
            "admin.socket" if given else "state_dir",
            f"the path of the admin socket, {path}, is longer than the {PATH_LIMIT} bytes of a unix socket"
            + ("" if given else "; set admin.socket to a shorter one"),
            True,
        )


_TRIED: dict[int, Callable[[Address], str]] = {
    errno.EADDRINUSE: lambda address: f"port {address.port} is in use",
    errno.EADDRNOTAVAIL: lambda address: f"{address.host} is no address of this machine",
    errno.EACCES: lambda address: f"this user may not listen on port {address.port}",
}


def _ports(config: Config, hosts: Hosts) -> Iterator[Finding]:
    for key, address in _listening(config):
        for ip in hosts.of(address):
            try:
                with socket.socket(ip.family, socket.SOCK_STREAM) as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    if ip.family == socket.AF_INET6:
                        probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                    probe.bind((ip.host, address.port))
            except OSError as error:
                told = _TRIED.get(error.errno or 0)
                yield Finding(key, told(address) if told else f"{address}: {reason(error)}", False)
                break

"""The commands of the shell and of the command line, each written once.

A command is a function of an :class:`AdminClient` and of typed parameters: positional ones are
arguments, keyword-only ones are options. Types are checked at registration; an unknown one is a
:class:`TypeError` at import, not a surprise for the user.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import time
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NewType, TextIO

from ildm.admin.client import AdminClient, Page
from ildm.admin.view import AdminError, Row, UnknownError
from ildm.mqtt import IldmError, MqttError, validate_topic_filter, validate_topic_name
from ildm.text import printable, reason

AddressText = NewType("AddressText", str)
"""``HOST:PORT``, checked."""
NeighborTarget = NewType("NeighborTarget", str)
"""Address or node id of a neighbour."""
Receiver = NewType("Receiver", str)
"""Who is to get what is in the spool, as ``ildm spool`` names it."""
OutputFile = NewType("OutputFile", str)
"""Where to write; ``-`` is standard output."""
TopicName = NewType("TopicName", str)
"""Of a message: no wildcards, checked."""
LogLevelName = Literal["debug", "info", "warning", "error"]
LogLevelChoice = NewType("LogLevelChoice", str)
"""One of them, or :data:`SHOW`."""
KeyText = NewType("KeyText", str)
"""Part of a key in an overlay."""
ClientName = NewType("ClientName", str)
"""Client identifier, user name or address."""
SenderName = NewType("SenderName", str)
"""Client identifier; empty: nobody in particular."""
BanKind = Literal["client", "user", "address"]
Filter = NewType("Filter", str)
"""Topic filter, checked."""
Duration = NewType("Duration", float)
"""Seconds; 0: without end, or none."""
Limit = NewType("Limit", int)
"""Number of rows."""
ROWS = Limit(1000)
EVERYTHING = Filter("#")
FOR_EVER = Duration(0)
PROBE = Duration(0)
"""No real messages are looked at."""
MESSAGES = Limit(100)
ALL = Limit(1)
PATIENCE = 10.0
"""Seconds after the end of a trace in which the node says so."""
SHOWN = Limit(20)
SHOW = LogLevelChoice("show")
"""Stands for the level as it is."""
ANYBODY = SenderName("")
ANY_KEY = KeyText("")


UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
"""Seconds."""


class NotDone(AdminError):  # noqa: N818 - what was asked is answered: no
    """The node has answered that it is not so, or was not done; programs get its answer, too."""

    def __init__(self, text: str, answer: Row) -> None:
        super().__init__(text)
        self.answer = answer


class UsageError(IldmError):
    """A command that was not understood."""


@dataclass(frozen=True)
class Kind:
    """How values of one type are read, shown in help texts, and completed."""

    metavar: str
    parse: Callable[[str], Any]
    """Text -> value; ValueError says what is wrong."""
    choices: tuple[str, ...] = ()
    complete: Callable[[AdminClient], Iterable[str]] | None = None


@dataclass(frozen=True)
class Parameter:
    name: str
    kind: Kind | None
    """None is an on/off option."""
    option: bool
    default: Any
    """``inspect.Parameter.empty`` where a value must be given."""

    @property
    def flag(self) -> str:
        """Spelling of an option; an on/off option that is on by default is switched off by name."""
        prefix = "--no-" if self.kind is None and self.default else "--"
        return prefix + self.name.rstrip("_").replace("_", "-")

    @property
    def usage(self) -> str:
        if not self.option:
            text = self.kind.metavar if self.kind else self.name
            return text if self.default is inspect.Parameter.empty else f"[{text}]"
        return f"[{self.flag}]" if self.kind is None else f"[{self.flag} {self.kind.metavar}]"


@dataclass(frozen=True)
class Command:
    name: str
    """One or two words."""
    help: str
    parameters: tuple[Parameter, ...]
    call: Callable[..., Any]

    @property
    def arguments(self) -> list[Parameter]:
        return [parameter for parameter in self.parameters if not parameter.option]

    @property
    def options(self) -> dict[str, Parameter]:
        return {parameter.flag: parameter for parameter in self.parameters if parameter.option}

    @property
    def usage(self) -> str:
        return " ".join([self.name, *(parameter.usage for parameter in self.parameters)])

    def bind(self, words: Sequence[str]) -> dict[str, Any]:
        """What follows the command's name -> keyword arguments of :attr:`call`.

        Raises:
            UsageError: a word too many or too few, an unknown option, a value that cannot be read.
        """
        values: dict[str, Any] = {}
        arguments = iter(self.arguments)
        rest = iter(words)
        for word in rest:
            if word.startswith("--"):
                flag, equals, text = word.partition("=")
                parameter = self.options.get(flag)
                if parameter is None:
                    raise UsageError(f"{self.name}: unknown option {flag}; usage: {self.usage}")
                if parameter.kind is None:
                    values[parameter.name] = not parameter.default
                    continue
                value = text if equals else next(rest, None)
                if value is None:
                    raise UsageError(f"{self.name}: {flag} needs a value; usage: {self.usage}")
            else:
                parameter = next(arguments, None)
                if parameter is None:
                    raise UsageError(f"{self.name}: {word!r} is one word too many; usage: {self.usage}")
                value = word
            values[parameter.name] = self.read(parameter, value)
        missing = next((each for each in arguments if each.default is inspect.Parameter.empty), None)
        if missing is not None:
            raise UsageError(f"{self.name}: {missing.usage} is missing; usage: {self.usage}")
        return values

    def read(self, parameter: Parameter, text: str) -> Any:
        """One value.

        Raises:
            UsageError: it cannot be read.
        """
        assert parameter.kind is not None
        try:
            return parameter.kind.parse(text)
        except ValueError as error:
            raise UsageError(f"{self.name}: {error}") from None


COMMANDS: dict[str, Command] = {}


def command(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function; its docstring's first line is the help text.

    Raises:
        TypeError: a parameter whose type is not among :data:`KINDS`, or no docstring.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if not function.__doc__:
            raise TypeError(f"command {name!r} has no docstring")
        hints = typing.get_type_hints(function)
        first, *others = inspect.signature(function).parameters.values()
        if hints.get(first.name) is not AdminClient:
            raise TypeError(f"command {name!r}: the first parameter must be an AdminClient")
        parameters = tuple(_parameter(name, parameter, hints) for parameter in others)
        help_text = function.__doc__.split("\n", 1)[0].rstrip(".")
        COMMANDS[name] = Command(name, help_text, parameters, function)
        return function

    return register


def _parameter(command_name: str, found: inspect.Parameter, hints: dict[str, Any]) -> Parameter:
    option = found.kind is inspect.Parameter.KEYWORD_ONLY
    hint = hints.get(found.name)
    if hint is bool and option and isinstance(found.default, bool):
        return Parameter(found.name, None, True, found.default)
    if hint not in KINDS:
        raise TypeError(f"command {command_name!r}: type of parameter {found.name!r} is not understood")
    if option and found.default is inspect.Parameter.empty:
        raise TypeError(f"command {command_name!r}: option {found.name!r} has no default")
    return Parameter(found.name, KINDS[hint], option, found.default)


def split_name(words: Sequence[str]) -> tuple[Command, Sequence[str]]:
    """Find the command whose name the words begin with; gives it and the rest.

    Raises:
        UsageError: there is none.
    """
    for length in (2, 1):
        found = COMMANDS.get(" ".join(words[:length]))
        if found is not None and len(words) >= length:
            return found, words[length:]
    family = [name for name in COMMANDS if words and name.startswith(words[0] + " ")]
    if family:
        raise UsageError(f"{words[0]}: expected one of: {', '.join(family)}")
    raise UsageError(f"unknown command {words[0]!r}; known: {', '.join(COMMANDS)}")


def _address(text: str) -> str:
    from ildm.config import parse_address  # noqa: PLC0415 - slow to import

    address = parse_address(text)
    if address.port == 0:
        raise ValueError(f"{text!r}: nobody listens at port 0")
    return str(address)


def _target(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError("expected HOST:PORT or a node id")
    return text


def _receiver(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError("expected a receiver, as the command spool names it")
    return text


def _file(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("expected the name of a file, or -")
    return text


def _topic(text: str) -> str:
    if not text:
        raise ValueError("expected a topic name")
    try:
        validate_topic_name(text)
    except MqttError as error:
        raise ValueError(str(error)) from None
    return text


def _filter(text: str) -> str:
    try:
        validate_topic_filter(text)
    except MqttError as error:
        raise ValueError(str(error)) from None
    return text


def _name(text: str) -> str:
    if not text:
        raise ValueError("expected a client identifier, a user name or an address")
    return text


def _kind(text: str) -> str:
    kinds = typing.get_args(BanKind)
    if text not in kinds:
        raise ValueError(f"{text!r}: expected one of {', '.join(kinds)}")
    return text


def _duration(text: str) -> float:
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    try:
        seconds = float(number) * UNITS[unit]
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86400 * 3650:
        raise ValueError(f"{text!r}: expected seconds, or 5m, 2h, 1d; 10 years at most")
    return seconds


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= 100_000):
        raise ValueError(f"{text!r}: expected a number from 1 to 100000")
    return int(text)


def _level(text: str) -> str:
    levels = typing.get_args(LogLevelName)
    if text not in (*levels, SHOW):
        raise ValueError(f"{text!r}: expected one of {', '.join(levels)}")
    return text


def _known_targets(node: AdminClient) -> list[str]:
    rows = node.neighbors().items
    return [str(row[key]) for key in ("address", "node_id") for row in rows if row.get(key)]


def _known_clients(node: AdminClient) -> list[str]:
    return [row["client_id"] for row in node.clients().items if row["connected"]]


def _receivers(node: AdminClient) -> list[str]:
    return [row["receiver"] for row in node.spool()["receivers"]]


KINDS: dict[Any, Kind] = {
    AddressText: Kind("HOST:PORT", _address),
    NeighborTarget: Kind("HOST:PORT|NODE_ID", _target, complete=_known_targets),
    Limit: Kind("NUMBER", _limit),
    TopicName: Kind("TOPIC", _topic),
    Receiver: Kind("RECEIVER", _receiver, complete=_receivers),
    ClientName: Kind("NAME", _name, complete=_known_clients),
    SenderName: Kind("CLIENT_ID", str, complete=_known_clients),
    BanKind: Kind("KIND", _kind, choices=typing.get_args(BanKind)),
    Filter: Kind("FILTER", _filter),
    Duration: Kind("TIME", _duration),
    OutputFile: Kind("FILE", _file),
    LogLevelChoice: Kind("LEVEL", _level, choices=typing.get_args(LogLevelName)),
    KeyText: Kind("TEXT", str),
}


@command("status")
def status(node: AdminClient) -> Row:
    """Broker, links and counters of the node."""
    return node.status()


@command("neighbor list")
def neighbor_list(node: AdminClient) -> Page:
    """Neighbour nodes and the state of the links."""
    return node.neighbors()


@command("neighbor add")
def neighbor_add(node: AdminClient, address: AddressText, *, save: bool = True) -> Row:
    """Add a neighbour node, also for the next start."""
    return node.add_neighbor(address, save)


@command("neighbor remove")
def neighbor_remove(
    node: AdminClient, target: NeighborTarget, *, save: bool = True, force: bool = False
) -> Row:
    """Remove a neighbour node, also for the next start."""
    try:
        return node.remove_neighbor(target, save, force)
    except UnknownError:
        raise
    except AdminError as error:
        if force or not confirmed(str(error)):
            raise
    return node.remove_neighbor(target, save, True)


@command("clients")
def clients(node: AdminClient, *, limit: Limit = ROWS) -> Page:
    """Local clients and their sessions."""
    return node.clients(limit)


@command("client kick")
def client_kick(node: AdminClient, client: ClientName) -> Row:
    """End the connection of a client; it may come again."""
    return node.kick(client)


@command("client ban")
def client_ban(node: AdminClient, kind: BanKind, name: ClientName, *, seconds: Duration = FOR_EVER) -> Row:
    """Keep clients out, by client identifier, user name or address."""
    return node.ban(kind, name, seconds or None)


@command("client allow")
def client_allow(node: AdminClient, kind: BanKind, name: ClientName) -> Row:
    """Lift a ban."""
    return node.lift_ban(kind, name)


@command("client bans")
def client_bans(node: AdminClient, *, limit: Limit = ROWS) -> Page:
    """Who is kept out."""
    return node.bans(limit)


@command("rules")
def rules(node: AdminClient, *, limit: Limit = ROWS) -> Page:
    """Rules for what crosses, and their hits."""
    return node.rules(limit)


@command("events")
def events(node: AdminClient, *, limit: Limit = SHOWN) -> Page:
    """The latest events of the node, the newest last."""
    page = node.events(limit)
    return Page(page.total, page.items[::-1])


@command("retained")
def retained(node: AdminClient, *, filter: Filter = EVERYTHING, limit: Limit = ROWS) -> Page:
    """The retained messages that the node remembers."""
    return node.retained(filter, limit)


@command("health")
def health(node: AdminClient) -> Row:
    """Whether it serves: exit status 0, else 1 and why not."""
    answer = node.health()
    if not answer["ready"]:
        raise NotDone("\n".join(f"not ready: {printable(problem)}" for problem in answer["problems"]), answer)
    return answer


@command("subscriptions")
def subscriptions(node: AdminClient, *, limit: Limit = ROWS) -> Page:
    """Topic filters of local clients and of neighbours."""
    return node.subscriptions(limit)


@command("algorithm")
def algorithm(node: AdminClient) -> Row:
    """The algorithm and the filters: options, counters."""
    return node.algorithm()


@command("reload")
def reload(node: AdminClient, *, dry_run: bool = False) -> Row:
    """Take up the configuration file as it is now."""
    return node.reload(dry_run)


@command("plugin reload")
def plugin_reload(node: AdminClient) -> Row:
    """Give plugins their options of the file again."""
    answer = node.reload_plugins()
    if any(row["error"] is not None for row in answer["plugins"]):
        raise NotDone("\n".join(map(_reloaded, answer["plugins"])), answer)
    return answer


def _reloaded(row: Row) -> str:
    what = f"{row['kind']} {row['name']!r}"
    if row["error"] is not None:
        return f"{what} has its former options: {printable(row['error'])}"
    return f"{what}: {row['result']}" + (f" ({', '.join(row['options'])})" if row["options"] else "")


@command("overlay")
def overlay(node: AdminClient, *, key: KeyText = ANY_KEY) -> Row:
    """The node's keys in the overlay and their neighbours."""
    answer = node.overlay()
    if not key:
        return answer
    return {**answer, "keys": [each for each in answer["keys"] if key in each["key"]], "tables": {}}


@command("overlay trace")
def overlay_trace(node: AdminClient, topic: TopicName) -> Row:
    """The tree which a message on a topic would take."""
    return node.trace(topic)


@command("trace")
def trace(
    node: AdminClient,
    topic: Filter,
    *,
    client: SenderName = ANYBODY,
    for_: Duration = PROBE,
    messages: Limit = MESSAGES,
    one_in: Limit = ALL,
) -> Row:
    """The way of a message on a topic, or of real ones.

    With ``--for`` real messages are noted at all sites, at most ``messages`` of them, of so many ``one_in``.
    Ctrl-C ends it before its time.
    """
    if for_:
        return {"topic": topic, **_watched(node, topic, for_, messages, one_in)}
    try:
        _topic(topic)
    except ValueError as error:
        raise UsageError(f"trace: {error} (a filter needs --for TIME)") from None
    return {**node.follow(topic), "kept": node.kept(topic, client)}


def _watched(node: AdminClient, topic_filter: str, seconds: float, messages: int, one_in: int) -> Row:
    name = node.watch(topic_filter, seconds, messages, one_in)["name"]
    shows, give_up = sys.stderr.isatty(), time.monotonic() + seconds + PATIENCE
    try:
        while not (found := node.watched(name))["over"]:
            left = give_up - PATIENCE - time.monotonic()
            if left < -PATIENCE:
                return node.unwatch(name)
            if shows:
                line = f"{len(found['messages'])} messages noted, {max(0, left):.0f} s left (Ctrl-C ends)"
                print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)
            time.sleep(min(0.5, max(0.1, left)))
    except KeyboardInterrupt:
        return node.unwatch(name)
    finally:
        if shows:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return found


@command("spool")
def spool(node: AdminClient) -> Row:
    """What is acknowledged and not had by others yet, on disk."""
    return node.spool()


@command("spool show")
def spool_show(node: AdminClient, receiver: Receiver, *, limit: Limit = SHOWN) -> Page:
    """The oldest messages which a neighbour, or the broker, is to get."""
    waiting = next((row for row in node.spool()["receivers"] if row["receiver"] == receiver), None)
    items = node.spooled(receiver, 0, limit)
    return Page(max(len(items), waiting["messages"] if waiting else 0), items[:limit])


@command("spool export")
def spool_export(node: AdminClient, receiver: Receiver, file: OutputFile) -> Row:
    """Write all these messages to a file as JSON lines; they stay in the spool."""
    after = count = 0
    with _output(file) as out:
        while items := node.spooled(receiver, after):
            for item in items:
                out.write(json.dumps(item, ensure_ascii=False) + "\n")
            after, count = items[-1]["lsn"], count + len(items)
    return {"receiver": receiver, "file": file, "messages": count}


@command("spool drop")
def spool_drop(node: AdminClient, receiver: Receiver, *, force: bool = False) -> Row:
    """Throw these messages away."""
    rows = {row["receiver"]: row for row in node.spool()["receivers"]}
    row = rows.get(receiver)
    if row is not None and not force:
        what = f"{row['messages']:,} messages for {receiver} that nobody else may have would be thrown away"
        if not confirmed(what):
            raise AdminError(f"{what}; to do so: --force")
    return node.drop_spooled(receiver)


def confirmed(what: str) -> bool:
    """Whether a person at the terminal wants that; without one, no."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    return input(f"{what}. Go on? [y/N] ").strip().lower() in ("y", "yes")


@contextmanager
def _output(file: str) -> Iterator[TextIO]:
    if file == "-":
        yield sys.stdout
        return
    try:
        # whatever is in messages is for their owner alone
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
            yield out
    except OSError as error:
        raise AdminError(f"{file}: {reason(error)}") from error


@command("log-level")
def log_level(node: AdminClient, level: LogLevelChoice = SHOW) -> Row:
    """Show or change how much the node logs."""
    return node.log_level() if level == SHOW else node.set_log_level(level)


@command("stop")
def stop(node: AdminClient, *, wait: bool = True) -> Row:
    """Stop the node and wait until it has."""
    answer = node.stop()
    if wait:
        node.wait_stopped(60.0)
    return {**answer, "stopped": wait}

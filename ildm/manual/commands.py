"""``ildm(1)``: the commands, as the command line knows them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from ildm import __version__
from ildm.cli.app import DEFAULT_SOCKET, EXIT_STATUS, app
from ildm.cli.mqtt import PASSWORD_VARIABLE
from ildm.cli.options import SOCKET_VARIABLE
from ildm.manual.roff import Page, bold, escaped, italic, prose

PURPOSE = "joins MQTT brokers of different make, so that they behave as one"
NODE_OPTIONS = ("as_json", "socket", "config")
"""Parameters that every command has which asks a running node; they are told of once."""
_UNNAMED = {"<int range>": "NUMBER", "<float range>": "NUMBER", "<str>": "TEXT"}
"""What stands for values that have no name."""
EXAMPLE = """\
ildm check /etc/ildm/site.yaml
ildm run --config /etc/ildm/site.yaml
ildm status --config /etc/ildm/site.yaml
ildm neighbor add site-b.example.org:1885 --config /etc/ildm/site.yaml
ildm sub -t 'state/#' & ildm pub -t state/door -m open
"""


def page(day: date) -> str:
    """The whole page."""
    made = Page("ildm", 1, PURPOSE, __version__, day)
    made.heading("SYNOPSIS")
    made.paragraph(rf"{bold('ildm')} {italic('COMMAND')} [{italic('OPTION')}]... [{italic('ARGUMENT')}]...")
    made.heading("DESCRIPTION")
    made.paragraph(
        prose(
            "A node stands in front of a local MQTT broker: clients connect to the node, which relays to the "
            "broker, and transfers messages to and from the nodes of other sites by a cooperation algorithm. "
            "`ildm run` is such a node; most other commands ask or change one that runs, over its admin "
            "socket, or help before there is one. The configuration is described in `ildm.yaml`(5)."
        )
    )
    made.heading("OPTIONS")
    root = _root()
    for each in _options(root):
        _option(made, root, each)
    every = list(commands())
    _section(made, "COMMANDS", [each for each in every if not _asks_a_node(each)])
    asking = [each for each in every if _asks_a_node(each)]
    _section(made, "COMMANDS FOR A RUNNING NODE", asking, shared=NODE_OPTIONS)
    made.heading("EXIT STATUS")
    for status, meaning in EXIT_STATUS.items():
        made.item(bold(str(status)), prose(meaning))
    made.heading("ENVIRONMENT")
    made.item(bold(SOCKET_VARIABLE), prose("The admin socket of the node that is meant."))
    made.item(bold(PASSWORD_VARIABLE), prose("The password with which `ildm pub` and `ildm sub` connect."))
    made.heading("FILES")
    made.item(
        bold(str(DEFAULT_SOCKET)), prose("The admin socket, where neither an option nor a variable says so.")
    )
    made.heading("EXAMPLES")
    made.example(EXAMPLE)
    made.heading("SEE ALSO")
    made.paragraph(rf"{bold('ildm.yaml')}(5), {bold('mosquitto')}(8), {bold('mqtt')}(7)")
    return made.text()


def commands() -> Iterator[typer.Context]:
    """A context for every command, with its whole name as ``command_path``."""
    root = _root()
    yield from _below(root.command, root)


def _root() -> typer.Context:
    return typer.Context(get_command(app), info_name="ildm")


def _below(group: Any, context: typer.Context) -> Iterator[typer.Context]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = typer.Context(command, info_name=name, parent=context)
        if not isinstance(command, TyperGroup):
            yield inner
            continue
        if command.invoke_without_command:
            yield inner
        yield from _below(command, inner)


def _parameters(context: typer.Context) -> list[Any]:
    return [each for each in _options(context) if each.name != "help"]


def _options(context: typer.Context) -> list[Any]:
    command: Any = context.command
    return list(command.get_params(context))


def _asks_a_node(context: typer.Context) -> bool:
    return "socket" in {each.name for each in _parameters(context)}


def _section(made: Page, title: str, found: list[typer.Context], shared: tuple[str, ...] = ()) -> None:
    made.heading(title)
    if shared:
        made.paragraph(prose("Each of these takes, besides its own options:"))
        told: set[str] = set()
        for context in found:
            for each in _parameters(context):
                if each.name in set(shared) - told:
                    told.add(each.name)
                    _option(made, context, each)
    for context in found:
        command: Any = context.command
        parameters = _parameters(context)
        arguments = [each for each in parameters if each.param_type_name == "argument"]
        options = [each for each in parameters if each not in arguments and each.name not in shared]
        made.subheading(context.command_path)
        usage = [bold(context.command_path)]
        usage += [f"{bold(each.opts[0])} {italic(each.metavar)}" for each in options if each.required]
        usage += [f"[{italic('OPTION')}]..."] * any(not each.required for each in options)
        usage += [
            italic(each.metavar) if each.required else f"[{italic(each.metavar)}]" for each in arguments
        ]
        made.paragraph(" ".join(usage))
        for paragraph in (command.help or "").split("\n\n"):
            made.paragraph(prose(paragraph))
        for each in arguments:
            if each.help:
                made.item(italic(each.metavar), prose(each.help))
        for each in options:
            _option(made, context, each)


def _option(made: Page, context: typer.Context, option: Any) -> None:
    record = option.get_help_record(context)
    if record is None:  # a hidden one
        return
    names, text = record
    for what, metavar in _UNNAMED.items():
        names = names.replace(what, metavar)
    words = [bold(word) if word.startswith("-") else _value(word) for word in names.split()]
    made.item(" ".join(words), prose(text))


def _value(word: str) -> str:
    return escaped(word) if word in {"/", ","} else italic(word)

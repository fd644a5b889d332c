"""Commands that other packages add to ``ildm``: entry points of the group ``ildm.commands``.

The name of the entry point is the first word, its target a ``typer.Typer`` with the commands that follow it:
a family, such as ``ildm neighbor``. It is imported when the word is said, or for the list of all commands.
The words of ``ildm`` itself have precedence.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

if TYPE_CHECKING:
    from ildm.api import PluginError

COMMANDS = "ildm.commands"
"""Group of entry points."""
UNLIMITED = 1000
"""Characters of a help text."""
ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True}


class WholeGroup(TyperGroup):
    """Commands whose help wraps on a narrow terminal, where typer cuts it off."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.get_short_help_str(UNLIMITED)) for name, one in found if one and not one.hidden]
            )


class ExtensibleGroup(WholeGroup):
    """The commands of ``ildm`` and those that packages add."""

    def list_commands(self, ctx: Any) -> list[str]:
        own = super().list_commands(ctx)
        return own + sorted({entry.name for entry in entry_points(group=COMMANDS)} - set(own))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        found = list(entry_points(group=COMMANDS, name=cmd_name))
        if not found:
            return None
        from ildm.api import PluginError  # noqa: PLC0415 - slow to import, and no command of ildm's own needs it

        family = typer.Typer(add_completion=False, callback=_nothing)
        try:
            family.add_typer(_load(found), name=cmd_name)
        except PluginError as error:
            family.command(cmd_name, help="Cannot be used.", context_settings=ANYTHING)(_raising(error))
        group: Any = get_command(family)
        return group.get_command(ctx, cmd_name)


def _load(found: list[EntryPoint]) -> typer.Typer:
    from ildm.api import PluginError  # noqa: PLC0415 - slow to import

    name = found[0].name
    if len(found) > 1:
        raise PluginError(
            f"command {name!r} is installed {len(found)} times: {', '.join(map(_origin, found))}"
        )
    from ildm.core.plugin.account import FAILURES  # noqa: PLC0415 - slow to import
    from ildm.core.plugin.arguments import described  # noqa: PLC0415

    try:
        loaded = found[0].load()
    except FAILURES as error:  # whatever the module of a stranger raises
        raise PluginError(f"command {name!r} cannot be imported: {described(error)}") from error
    if not isinstance(loaded, typer.Typer):
        raise PluginError(f"command {name!r} ({found[0].value}) is no typer.Typer")
    if not (loaded.registered_commands or loaded.registered_groups):
        raise PluginError(f"command {name!r} ({found[0].value}) has no commands")
    return loaded


def _nothing() -> None:
    """A callback, with which typer makes a family also of one command."""


def _raising(error: PluginError) -> Callable[[typer.Context], None]:
    """A command that says, when it is called, why it cannot be used."""

    def complain(context: typer.Context) -> None:
        raise error

    return complain


def _origin(entry: EntryPoint) -> str:
    return entry.value if entry.dist is None else f"{entry.dist.name} {entry.dist.version} ({entry.value})"

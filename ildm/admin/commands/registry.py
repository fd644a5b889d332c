"""What a command is, and all of them by name."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ildm.admin.client import AdminClient
from ildm.admin.commands.kinds import KINDS, Kind
from ildm.admin.view import AdminError, Row
from ildm.mqtt import IldmError


class NotDone(AdminError):  # noqa: N818 - what was asked is answered: no
    """The node has answered that it is not so, or was not done; programs get its answer, too."""

    def __init__(self, text: str, answer: Row) -> None:
        super().__init__(text)
        self.answer = answer


class UsageError(IldmError):
    """A command that was not understood."""


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
    like = get_close_matches(" ".join(words[:2]), COMMANDS, n=2) or get_close_matches(words[0], COMMANDS, n=2)
    meant = f"did you mean {' or '.join(like)}?" if like else "help lists all"
    raise UsageError(f"unknown command {words[0]!r}; {meant}")


def confirmed(what: str) -> bool:
    """Whether a person at the terminal wants that; without one, no."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    return input(f"{what}. Go on? [y/N] ").strip().lower() in ("y", "yes")

"""The interactive shell: the commands of the command line without repeating where the node is."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ildm.admin.client import AdminClient, Neighbors, Page
from ildm.admin.commands import COMMANDS, Command, NotDone, UsageError, split_name
from ildm.admin.view import Row
from ildm.mqtt import IldmError
from ildm.text import json_text, printable

LEAVE = ("exit", "quit")
HELP = {"-h", "--help"}
BUILT_IN = {
    "top": "what the node does now, each second, until Ctrl-C",
    "help": "this list, or one command: help COMMAND",
    "exit": "leave the shell (also Ctrl-D)",
}


class Leave(Exception):  # noqa: N818 - not an error
    """The user wants to go."""


def run_command(node: AdminClient, command: Command, values: dict[str, Any], as_json: bool) -> None:
    """Carry out one command and print its answer."""
    try:
        data = command.call(node, **values)
    except NotDone as error:
        if as_json:
            _print_json(error.answer)
        raise
    if as_json:
        _print_json(data)
        return
    from ildm.cli.render import show  # noqa: PLC0415 - only where tables are wanted
    from ildm.cli.terminal import make_console  # noqa: PLC0415

    make_console().print(show(command.name, data))


def _print_json(data: Row | Page | Neighbors) -> None:
    print(json_text(data if isinstance(data, dict) else data._asdict(), indent=2))


def run_line(node: AdminClient, line: str, as_json: bool) -> None:
    """Carry out one line of the shell; an empty one does nothing.

    Raises:
        UsageError: not understood.
        AdminError: refused by the node, or no node there.
        Leave: the line was ``exit``.
    """
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise UsageError(f"{line.strip()}: {str(error).lower()}") from None
    if not words:
        return
    if words[0] in LEAVE:
        raise Leave
    if words[0] == "help" or HELP & set(words):
        print_help(word for word in words if word not in {*HELP, "help"})
        return
    if words[0] == "top":
        _top(node, words[1:], as_json)
        return
    if "--json" in words:
        words.remove("--json")
        as_json = True
    command, rest = split_name(words)
    run_command(node, command, command.bind(rest), as_json)


def _top(node: AdminClient, words: list[str], as_json: bool) -> None:
    """As ``ildm top``; once where nobody can end it."""
    from ildm.cli.top import show_top  # noqa: PLC0415 - only where pictures are wanted

    if words not in ([], ["--json"]):
        raise UsageError("top: expected nothing, or --json")
    show_top(node, 1.0, None if sys.stdin.isatty() else 1, as_json or bool(words))


def run_script(node: AdminClient, script: str, as_json: bool) -> None:
    """Carry out commands separated by ``;`` until one fails, whose error is raised."""
    for line in split_commands(script):
        try:
            run_line(node, line, as_json)
        except Leave:
            return


def split_commands(script: str) -> Iterator[str]:
    """Cut at each ``;`` and newline which is not quoted."""
    start, quote = 0, ""
    for index, character in enumerate(script):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in ";\n":
            yield script[start:index]
            start = index + 1
    yield script[start:]


def print_help(words: Iterable[str]) -> None:
    """All commands, or those whose names begin with ``words``."""
    from ildm.cli.terminal import facts, make_console  # noqa: PLC0415 - only where tables are wanted

    prefix = " ".join(words)
    chosen = [
        c for c in COMMANDS.values() if c.name == prefix or c.name.startswith(prefix + " " if prefix else "")
    ]
    rows = [(command.usage, command.help) for command in chosen]
    if prefix in BUILT_IN:
        rows = [(prefix, BUILT_IN[prefix])]
    if not rows:
        command, _ = split_name(prefix.split())  # its error says what may be meant
        rows = [(command.usage, command.help)]
    if not prefix:
        rows += BUILT_IN.items()
    console = make_console()
    console.print(facts(rows))
    if not prefix:
        console.print("\nEvery command takes --json.", style="dim")


def completions(node: AdminClient, text: str) -> Iterator[tuple[str, str]]:
    """What the last word of ``text`` could become, each with a note for the menu."""
    words = text.split()
    last = "" if not words or text[-1:].isspace() else words.pop()
    yield from (pair for pair in _candidates(node, words) if pair[0].startswith(last))


def _candidates(node: AdminClient, words: list[str]) -> Iterator[tuple[str, str]]:
    if words[:1] == ["help"]:
        yield from _next_words(words[1:])
        return
    yield from _next_words(words)
    if not words:
        yield from BUILT_IN.items()
        return
    try:
        command, rest = split_name(words)
    except UsageError:
        return
    given = [word for word in rest if not word.startswith("--")]
    if len(given) < len(command.arguments):
        kind = command.arguments[len(given)].kind
        assert kind is not None  # an on/off switch is always an option
        yield from ((choice, "") for choice in kind.choices)
        if kind.complete is not None:
            try:
                yield from ((str(value), "") for value in kind.complete(node))
            except IldmError:
                return  # the node has gone; the command itself will say so
    yield from ((flag, "") for flag in [*command.options, "--json"] if flag not in rest)


def _next_words(words: list[str]) -> Iterator[tuple[str, str]]:
    seen = set()
    for command in COMMANDS.values():
        parts = command.name.split()
        if len(parts) > len(words) and parts[: len(words)] == words and parts[len(words)] not in seen:
            seen.add(parts[len(words)])
            yield parts[len(words)], command.help if len(parts) == len(words) + 1 else ""


STOP = "The node drains and ends. Go on? [y/N] "


def _agreed(answer: str) -> bool:
    return answer.strip().lower() in ("y", "yes")


def interact(node: AdminClient, history: Path, as_json: bool = False) -> int:
    """Read and carry out lines until the user leaves; the exit status."""
    from prompt_toolkit import PromptSession  # noqa: PLC0415 - slow to import
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter  # noqa: PLC0415
    from prompt_toolkit.document import Document  # noqa: PLC0415
    from prompt_toolkit.formatted_text import FormattedText  # noqa: PLC0415
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory  # noqa: PLC0415

    from ildm.cli.terminal import make_console  # noqa: PLC0415

    class LiveCompleter(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
            text = document.text_before_cursor
            width = 0 if text[-1:].isspace() or not text else len(text.split()[-1])
            for word, note in completions(node, text):
                yield Completion(f"{word} ", -width, display=word, display_meta=note)

    name = str(node.status()["node_id"])
    saved: History = InMemoryHistory()
    if history.parent.is_dir():
        history.touch(mode=0o600)
        saved = FileHistory(str(history))
    session: PromptSession[str] = PromptSession(
        history=saved, completer=ThreadedCompleter(LiveCompleter()), complete_while_typing=False
    )
    errors = make_console(sys.stderr)
    print(f"Connected to node {name}. Type help, or exit to leave.")
    prompt = FormattedText([("bold ansicyan", name), ("", "> ")])
    while True:
        try:
            line = session.prompt(prompt)
        except KeyboardInterrupt:
            continue  # drops the line, as other shells do
        except EOFError:
            return 0
        try:
            if line.split()[:1] == ["stop"] and not _agreed(session.prompt(STOP)):
                continue
            run_line(node, line, as_json)
        except Leave:
            return 0
        except KeyboardInterrupt:
            continue
        except IldmError as error:
            errors.print(printable(f"error: {error}", keep="\n"), style="red")
        else:
            if line.split()[:1] == ["stop"]:
                return 0

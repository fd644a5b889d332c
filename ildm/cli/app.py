"""The command line ``ildm``."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ildm.admin.client import AdminClient
from ildm.admin.commands import COMMANDS, Command, Kind, Parameter, UsageError
from ildm.cli import plugin
from ildm.cli.commands import ExtensibleGroup, WholeGroup
from ildm.cli.mqtt import pub, sub
from ildm.cli.options import SOCKET_VARIABLE, ConfigOption, JsonOption, SocketOption
from ildm.mqtt import IldmError
from ildm.text import printable

SHELLS = ("bash", "zsh", "fish")
COMPLETE_VARIABLE = "_ILDM_COMPLETE"
"""Set when a shell wants to know what may follow."""
EXIT_STATUS = {0: "Done.", 1: "Failed.", 2: "Wrong usage or configuration.", 130: "Ended by Ctrl-C."}
DEFAULT_SOCKET = Path("ildm-state/admin.sock")
FAMILIES = {
    "neighbor": "Neighbour nodes: list, add, remove.",
    "client": "Clients: kick, ban, allow, bans.",
    "sessions": "Sessions that the broker has and the node does not know; import, adopted.",
    "overlay": "Keys and neighbours in the overlay; trace.",
    "plugin": "Plugins: list, new, reload.",
    "spool": "What is kept on disk for others; show, export, drop.",
}
"""First words of commands that consist of two. The word alone may be a command, too."""

app = typer.Typer(
    name="ildm",
    cls=ExtensibleGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def find_node(socket: Path | None, config: Path | None) -> AdminClient:
    """The node meant: ``--socket``, else ``--config``, else the environment, else the default place."""
    if socket is not None:
        return AdminClient(socket)
    if config is not None:
        from ildm.config import load_config  # noqa: PLC0415 - slow to import

        return AdminClient(load_config(config).admin_socket)
    return AdminClient(Path(os.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET))


def _version(wanted: bool) -> None:
    if wanted:
        from ildm import __version__, compiled  # noqa: PLC0415

        print(f"ildm {__version__} ({compiled.form()})")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """ILDM joins MQTT brokers of different make, so that they behave as one.

    `ildm demo` shows it on this machine. A node runs with `ildm run --config FILE`.
    """


@app.command()
def run(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="Configuration (YAML).")],
) -> None:
    """Run a node in the foreground.

    SIGTERM, Ctrl-C and `ildm stop` drain it and end it; a second signal ends it at once. SIGHUP is
    `ildm reload`, or drains it where it has a terminal.
    """
    from ildm.config import load_config  # noqa: PLC0415
    from ildm.net.handover.taking import predecessor  # noqa: PLC0415

    with predecessor(os.environ) as before:
        loaded = load_config(config)
        from ildm.checking import naming  # noqa: PLC0415
        from ildm.net.run import run_node  # noqa: PLC0415

        with naming(config):
            status = run_node(loaded, source=config, before=before)
    raise typer.Exit(status)


@app.command()
def check(
    configs: Annotated[list[Path], typer.Argument(metavar="FILE", help="Configurations (YAML).")],
    as_json: JsonOption = False,
) -> None:
    """Check configurations.

    Plugins and secret files they name are checked too (a plugin is made as at the start of a node, but what
    it asks for comes to nothing), and whether this machine has what they need: addresses, ports, directories.
    Nothing is started.
    """
    from ildm.checking import check as checked  # noqa: PLC0415
    from ildm.checking import lines  # noqa: PLC0415

    found = [checked(config) for config in configs]
    if as_json:
        print(json.dumps([each.row() for each in found], indent=2))
    else:
        for each in found:
            for line in each.errors:
                _complain(line)
            for warning in each.warnings:
                _complain(f"warning: {each.file}: {warning.key}: {warning.text}")
            if each.config is not None:
                print(printable(f"{each.file}: ok"))
                for line in lines(each.config):
                    print(printable(f"  {line}"))
    if any(each.errors for each in found):
        raise typer.Exit(2)


@app.command()
def advise(
    network: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A network (YAML). Without it: what a running node knows."),
    ] = None,
    prefer: Annotated[
        str | None,
        typer.Option(
            metavar="delay|traffic", help="What counts, instead of the file's: short times, few copies."
        ),
    ] = None,
    as_json: JsonOption = False,
    socket: SocketOption = None,
    config: ConfigOption = None,
) -> None:
    """Say which cooperation algorithm fits a network, and why.

    FILE has sites, regions, near_ms, far_ms, topics (each with subscribers and rate), churn, qos,
    tolerated_loss and prefer. The estimates derive from results of the simulator.
    """
    from ildm.advice import PREFERENCES, load_network  # noqa: PLC0415
    from ildm.advice import advise as advised  # noqa: PLC0415
    from ildm.advice.known import ask  # noqa: PLC0415

    choice = next((each for each in PREFERENCES if each == prefer), None)
    if prefer is not None and choice is None:
        raise UsageError(f"--prefer {prefer}: expected one of {', '.join(PREFERENCES)}")
    assumed: list[str] = []
    if network is not None:
        given = load_network(network)
        given = given if choice is None else given.model_copy(update={"prefer": choice})
    else:
        given, assumed = ask(find_node(socket, config), choice or "delay")
    advice = advised(given)
    if as_json:
        row = {**advice.row(), "assumed": assumed, "network": given.model_dump()}
        print(json.dumps(row, indent=2))
        return
    print(advice.algorithm)
    for line in (*advice.why, *(f"assumed: {each}" for each in assumed)):
        print(f"  {line}")


@app.command(name="import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="mosquitto.conf with a bridge.")],
) -> None:
    """Print a Mosquitto bridge as a configuration.

    A node with it does what the bridge did, and listens where the broker did. Each line that a node does
    not do is named on standard error, and in the output. Exit status 1: there are such lines; 2: nothing is
    printed.
    """
    from ildm.importing.lines import read_text  # noqa: PLC0415
    from ildm.importing.mosquitto import convert  # noqa: PLC0415

    imported = convert(read_text(source), str(source))
    for remark in imported.remarks:
        place = f":{remark.line}" if remark.line else ""
        _complain(f"{remark.file or source}{place}: {remark.text}")
    print(imported.text(str(source)), end="")
    if imported.differs:
        _complain("not all is as before: see above")
        raise typer.Exit(1)


@app.command()
def shell(
    script: Annotated[
        str | None,
        typer.Option("-c", metavar="COMMANDS", help="Carry these out (separated by ;) and end."),
    ] = None,
    as_json: JsonOption = False,
    socket: SocketOption = None,
    config: ConfigOption = None,
) -> None:
    """Operate a running node interactively.

    With completion and history; without a terminal the commands come from standard input.
    """
    from ildm.cli.shell import interact, run_script  # noqa: PLC0415

    node = find_node(socket, config)
    if script is None and sys.stdin.isatty():
        raise typer.Exit(interact(node, node.path.parent / "shell-history", as_json))
    run_script(node, sys.stdin.read() if script is None else script, as_json)


@app.command()
def demo(
    once: Annotated[bool, typer.Option("--once", help="Prove that messages cross, then end.")] = False,
    algorithm: Annotated[str, typer.Option(metavar="sf|pf", help="Cooperation algorithm.")] = "sf",
    broker: Annotated[
        str, typer.Option(metavar="auto|mosquitto|amqtt|mixed", help="Make of the brokers.")
    ] = "auto",
) -> None:
    """Show three sites working as one.

    They stand in a row, each with a broker and a node of its own, all on this machine.
    """
    from ildm.demo.run import ALGORITHMS, MAKES, run_demo  # noqa: PLC0415

    if algorithm not in ALGORITHMS:
        raise UsageError(f"--algorithm {algorithm}: expected one of {', '.join(ALGORITHMS)}")
    if broker not in MAKES:
        raise UsageError(f"--broker {broker}: expected one of {', '.join(MAKES)}")
    raise typer.Exit(run_demo(once=once, algorithm=algorithm, make=broker))


@app.command()
def top(
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, max=3600, help="Between two pictures.")
    ] = 1.0,
    count: Annotated[int, typer.Option(metavar="NUMBER", min=0, help="Pictures; 0: until Ctrl-C.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each.")] = False,
    socket: SocketOption = None,
    config: ConfigOption = None,
) -> None:
    """Show what a node does now, each second."""
    from ildm.cli.top import show_top  # noqa: PLC0415

    show_top(find_node(socket, config), interval, count or None, as_json)


@app.command(name="dashboard-token")
def dashboard_token(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="Configuration of the node.")],
) -> None:
    """Print where the dashboard is, with its token.

    Who has this address may look at the node: open it in a browser, give it to nobody. The token is made if
    there is none yet; to replace it, remove its file and restart the node.
    """
    from ildm.config import ConfigError, load_config  # noqa: PLC0415

    loaded = load_config(config)
    if loaded.dashboard.listen is None:
        raise ConfigError(f"{config}: dashboard.listen: is null, so there is no dashboard")
    from ildm.checking import naming  # noqa: PLC0415
    from ildm.net.dashboard.token import login_address, take_token  # noqa: PLC0415

    with naming(config):
        token, _ = take_token(loaded.dashboard_token)
    print(login_address(loaded, token))


@app.command()
def completion(
    shell: Annotated[str, typer.Argument(metavar="|".join(SHELLS), autocompletion=lambda: list(SHELLS))],
) -> None:
    """Print what makes a shell complete `ildm`.

    As in: source <(ildm completion bash)
    """
    from ildm.cli.completion import script  # noqa: PLC0415

    if shell not in SHELLS:
        raise UsageError(f"completion {shell}: expected one of {', '.join(SHELLS)}")
    print(script(shell))


OWN_H = {"help_option_names": ["--help"]}
"""``-h`` is the host there."""
app.command(context_settings=OWN_H)(pub)
app.command(context_settings=OWN_H)(sub)


def _add_admin_commands() -> None:
    families = {
        word: typer.Typer(
            cls=WholeGroup,
            help=text,
            no_args_is_help=word not in COMMANDS,
            invoke_without_command=word in COMMANDS,
            rich_markup_mode=None,
        )
        for word, text in FAMILIES.items()
    }
    for word, family in families.items():
        app.add_typer(family, name=word)
    plugin.add_to(families["plugin"])
    for command in COMMANDS.values():
        first, _, second = command.name.partition(" ")
        if command.name in families:
            families[first].callback()(_unless_followed(_as_callback(command)))
            continue
        where, name = (families[first], second) if second else (app, first)
        where.command(name, help=f"{command.help}.")(_as_callback(command))


def _unless_followed(callback: Callable[..., None]) -> Callable[..., None]:
    """The same for a word that is also the first of other commands: it does nothing before those."""

    def guarded(context: typer.Context, **values: Any) -> None:
        if context.invoked_subcommand is None:
            callback(**values)

    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    shown = inspect.signature(callback)
    guarded.__signature__ = shown.replace(  # type: ignore[attr-defined]
        parameters=[context, *shown.parameters.values()]
    )
    guarded.__annotations__ = {"context": typer.Context, **callback.__annotations__}
    return guarded


def _as_callback(command: Command) -> Callable[..., None]:
    """A function whose signature shows typer the command's parameters."""

    def callback(**values: Any) -> None:
        node = find_node(values.pop("socket"), values.pop("config"))
        as_json = values.pop("as_json")
        arguments = {
            parameter.name: parameter.default ^ values[parameter.name]
            if parameter.kind is None
            else command.read(parameter, values[parameter.name])
            for parameter in command.parameters
        }
        from ildm.cli.shell import run_command  # noqa: PLC0415

        run_command(node, command, arguments, as_json)

    kind = inspect.Parameter.KEYWORD_ONLY
    shown = [_shown(parameter) for parameter in command.parameters]
    shown += [
        inspect.Parameter("as_json", kind, default=False, annotation=JsonOption),
        inspect.Parameter("socket", kind, default=None, annotation=SocketOption),
        inspect.Parameter("config", kind, default=None, annotation=ConfigOption),
    ]
    callback.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    callback.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return callback


def _offered(kind: Kind) -> Callable[[typer.Context, str], list[str]] | None:
    """What offers a shell the values of one kind; it is imported when a shell asks."""
    if COMPLETE_VARIABLE not in os.environ:
        return None
    from ildm.cli.completion import values  # noqa: PLC0415

    return values(kind, find_node)


def _shown(parameter: Parameter) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    if parameter.kind is None:
        option = typer.Option(parameter.flag, show_default=False)
        return inspect.Parameter(parameter.name, kind, default=False, annotation=Annotated[bool, option])
    metavar = parameter.kind.metavar
    offered = _offered(parameter.kind)
    if not parameter.option:
        return inspect.Parameter(
            parameter.name,
            kind,
            default=parameter.default,
            annotation=Annotated[
                str, typer.Argument(metavar=metavar, show_default=False, autocompletion=offered)
            ],
        )
    return inspect.Parameter(
        parameter.name,
        kind,
        default=str(parameter.default),
        annotation=Annotated[str, typer.Option(parameter.flag, metavar=metavar, autocompletion=offered)],
    )


_add_admin_commands()


def main() -> int:
    """Carry out ``sys.argv``; the exit status."""
    if COMPLETE_VARIABLE in os.environ:
        from ildm.cli.completion import prepare  # noqa: PLC0415

        prepare()
    try:
        app(prog_name="ildm")
    except IldmError as error:
        _complain(str(error))
        return 2 if _is_usage(error) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # the reader has seen enough; without this the interpreter complains when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else 0 if exit.code is None else 1
    return 0


def _is_usage(error: IldmError) -> bool:
    from ildm.api import PluginError  # noqa: PLC0415
    from ildm.config import ConfigError  # noqa: PLC0415

    return isinstance(error, UsageError | ConfigError | PluginError)


def _complain(text: str) -> None:
    for line in text.split("\n") if text else ["failed"]:
        print(f"ildm: {printable(line)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

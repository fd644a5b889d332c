"""New options for plugins at work, from a configuration that was read again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ildm.api import Plugin, PluginError
from ildm.core.plugin.loading import checked_options

if TYPE_CHECKING:
    from ildm.api import PluginConfig
    from ildm.config import Config
    from ildm.core.plugin.dispatch import Dispatch, Loaded

CHANGED = "changed"
SAME = "unchanged"
RESTART = "needs a restart"
FAILED = "failed"


class Reloaded(NamedTuple):
    """What became of a plugin's options."""

    kind: str
    name: str
    result: str
    """``changed``, ``unchanged``, ``needs a restart`` (the plugin cannot change them), or ``failed`` (it has
    its former options again)."""
    options: list[str]
    """Names of those that are others in the configuration; the values may be secrets."""
    error: str | None
    """What a plugin that failed has raised."""


class Wanted(NamedTuple):
    """Options that a plugin at work is to have."""

    loaded: Loaded
    options: PluginConfig
    names: list[str]
    """Of those that are others than now; empty: it has these already."""
    possible: bool
    """The plugin can take others while it is at work."""


def wanted_options(dispatch: Dispatch, config: Config) -> list[Wanted]:
    """What the plugins at work are to have by a configuration.

    Raises:
        PluginError: it names other plugins than those at work, or an option is wrong.
    """
    chosen = [("filter", choice) for choice in config.filters]
    if config.algorithm is not None:
        chosen.append(("algorithm", config.algorithm))
    named = [(kind, choice.name) for kind, choice in chosen]
    at_work = [(loaded.kind, loaded.name) for loaded in dispatch.loaded]
    if named != at_work:
        raise PluginError(
            f"the plugins are {_text(at_work)}, and in the configuration {_text(named)}: that needs a restart"
        )
    wanted = []
    for loaded, (_, choice) in zip(dispatch.loaded, chosen, strict=True):
        if loaded.plugin is None:
            continue
        plugin = type(loaded.plugin)
        options = checked_options(choice, plugin, loaded.kind)
        before = dict(loaded.options)
        names = [name for name, value in options if name not in before or value != before[name]]
        possible = plugin.on_config_changed is not Plugin.on_config_changed
        wanted.append(Wanted(loaded, options, names, possible))
    return wanted


def reload_options(dispatch: Dispatch, config: Config) -> list[Reloaded]:
    """Give plugins the options of a configuration, as far as they can take them.

    Raises:
        PluginError: it names other plugins than those at work, or an option is wrong; nothing was done then.
    """
    results = []
    for loaded, options, names, possible in wanted_options(dispatch, config):
        error = None
        if not names:
            result = SAME
        elif not possible:
            result = RESTART
        else:
            error = dispatch.change_options(loaded, options)
            result = CHANGED if error is None else FAILED
        results.append(Reloaded(loaded.kind, loaded.name, result, names, error))
    return results


def differing_keys(one: Config, other: Config) -> list[str]:
    """Dotted keys of two configurations that differ, those of plugins left out."""
    plugins = {"algorithm", "filters"}
    return sorted(_differences(one.model_dump(exclude=plugins), other.model_dump(exclude=plugins), ""))


def _differences(one: Mapping[str, Any], other: Mapping[str, Any], above: str) -> Iterator[str]:
    for key, value in one.items():
        theirs = other[key]
        if isinstance(value, dict) and isinstance(theirs, dict):
            yield from _differences(value, theirs, f"{above}{key}.")
        elif value != theirs:
            yield above + key


def _text(plugins: list[tuple[str, str]]) -> str:
    return ", ".join(f"{kind} {name!r}" for kind, name in plugins) or "none"

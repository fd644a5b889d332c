"""New options for plugins at work, from a configuration that was read again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ildm.api import Plugin, PluginError
from ildm.core.plugin.loading import checked_options

if TYPE_CHECKING:
    from ildm.config import Config
    from ildm.core.plugin.dispatch import Dispatch

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


def reload_options(dispatch: Dispatch, config: Config) -> list[Reloaded]:
    """Give plugins the options of a configuration, as far as they can take them.

    Raises:
        PluginError: it names other plugins than those at work, or an option is wrong; nothing was done then.
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
    wanted = [
        (loaded, type(loaded.plugin), checked_options(choice, type(loaded.plugin), loaded.kind))
        for loaded, (_, choice) in zip(dispatch.loaded, chosen, strict=True)
        if loaded.plugin is not None
    ]
    results = []
    for loaded, plugin, options in wanted:
        before = dict(loaded.options)
        names = [name for name, value in options if name not in before or value != before[name]]
        error = None
        if not names:
            result = SAME
        elif plugin.on_config_changed is Plugin.on_config_changed:
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

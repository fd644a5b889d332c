"""Finding plugins and checking them before they are used."""

from __future__ import annotations

import inspect
from collections.abc import Sequence, Set
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from pydantic import ValidationError

from ildm.api import (
    Algorithm,
    Filter,
    OverlayAlgorithm,
    Plugin,
    PluginConfig,
    PluginError,
    Source,
    TreeAlgorithm,
)
from ildm.api.plugin import OnError
from ildm.config import required_address
from ildm.core.plugin.dispatch import INTERFACE
from ildm.mqtt import PacketType

if TYPE_CHECKING:
    from ildm.config import Config, PluginChoice

ALGORITHMS = "ildm.algorithms"
FILTERS = "ildm.filters"


class PluginSpec(NamedTuple):
    """A checked plugin class with its checked options, ready to be made."""

    name: str
    plugin: type[Plugin]
    config: PluginConfig


class PluginSpecs(NamedTuple):
    """What a configuration chooses."""

    algorithm: PluginSpec | None
    filters: Sequence[PluginSpec]


def load_plugins(config: Config) -> PluginSpecs:
    """Find and check the plugins of a configuration.

    Raises:
        PluginError: a plugin that is not installed, cannot be imported, or breaks the interface.
    """
    algorithm = None
    if config.algorithm is not None:
        algorithm = _load(config.algorithm, ALGORITHMS, Algorithm)
    return PluginSpecs(algorithm, [_load(choice, FILTERS, Filter) for choice in config.filters])


def check_reachable(config: Config, plugins: PluginSpecs) -> None:
    """Check that other nodes can reach this one, where the algorithm needs it.

    Raises:
        ConfigError: they cannot.
    """
    chosen = plugins.algorithm
    if chosen is not None and issubclass(chosen.plugin, OverlayAlgorithm):
        required_address(config.link, chosen.name)


def _load(choice: PluginChoice, group: str, base: type[Plugin]) -> PluginSpec:
    kind = kind_of(base)
    found = {entry.name: entry for entry in entry_points(group=group)}
    if choice.name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise PluginError(f"{kind} {choice.name!r} is not installed; installed: {known}")
    try:
        plugin = found[choice.name].load()
    except Exception as error:  # whatever the module of a stranger raises
        raise PluginError(f"{kind} {choice.name!r} cannot be imported: {error!r}") from error
    check_plugin(choice.name, plugin, base)
    try:
        options = plugin.Config.model_validate(choice.options)
    except ValidationError as error:
        details = "; ".join(
            f"{'.'.join(str(part) for part in item['loc']) or '(options)'}: "
            + ("unknown option" if item["type"] == "extra_forbidden" else item["msg"])
            for item in error.errors(include_url=False)
        )
        raise PluginError(f"{kind} {choice.name!r}: {details}") from None
    return PluginSpec(choice.name, plugin, options)


def check_plugin(name: str, plugin: Any, base: type[Plugin]) -> None:
    """Check a class against the interface.

    Raises:
        PluginError: not a subclass, a hook nobody calls, a hook with another signature, a wrong
            ``wants`` or ``Config``.
    """
    kind = kind_of(base)
    kinds = (TreeAlgorithm, OverlayAlgorithm) if base is Algorithm else (base,)
    if not (isinstance(plugin, type) and issubclass(plugin, kinds)):
        names = " or ".join(f"ildm.api.{each.__name__}" for each in kinds)
        raise PluginError(f"{kind} {name!r}: {plugin!r} is not a subclass of {names}")
    interface = (each for each in INTERFACE if issubclass(plugin, each))
    inherited = {n: member for each in interface for n, member in vars(each).items()}
    hooks = {n for n, member in inherited.items() if inspect.isfunction(member) and not n.startswith("_")}
    if issubclass(plugin, Filter) and plugin.on_error not in get_args(OnError):
        raise PluginError(f"{kind} {name!r}: on_error is {plugin.on_error!r}, not 'pass' or 'reject'")
    for attribute, member in vars_of(plugin).items():
        if attribute == "on_error" and issubclass(plugin, Filter):
            continue
        if attribute.startswith("on_") and attribute not in hooks:
            raise PluginError(f"{kind} {name!r}: unknown hook {attribute}")
        if attribute not in hooks:
            continue
        if (
            not inspect.isfunction(member)
            or inspect.iscoroutinefunction(member)
            or inspect.isasyncgenfunction(member)
        ):
            raise PluginError(f"{kind} {name!r}: {attribute} must be a plain method")
        expected = list(inspect.signature(inherited[attribute]).parameters.values())
        try:
            inspect.signature(member).bind(*[None] * len(expected))
        except TypeError:
            names = ", ".join(parameter.name for parameter in expected)
            raise PluginError(
                f"{kind} {name!r}: {attribute}{inspect.signature(member)} must accept ({names})"
            ) from None
    if not isinstance(plugin.wants, Set):
        raise PluginError(f"{kind} {name!r}: wants is {plugin.wants!r}, not a set of (Source, PacketType)")
    for entry in plugin.wants:
        if not (
            isinstance(entry, tuple)
            and len(entry) == 2
            and isinstance(entry[0], Source)
            and isinstance(entry[1], PacketType)
        ):
            raise PluginError(f"{kind} {name!r}: wants has {entry!r}, expected (Source, PacketType)")
    if not (isinstance(plugin.Config, type) and issubclass(plugin.Config, PluginConfig)):
        raise PluginError(f"{kind} {name!r}: Config must be a subclass of ildm.api.PluginConfig")


def kind_of(plugin: type[Plugin]) -> str:
    """``algorithm`` or ``filter``."""
    return "algorithm" if issubclass(plugin, Algorithm) else "filter"


def vars_of(cls: type) -> dict[str, Any]:
    """Attributes of a class and its bases as written, without those of ``object``."""
    members: dict[str, Any] = {}
    for base in reversed(cls.__mro__[:-1]):
        members.update(vars(base))
    return members

"""A plugin's class against the interface: whatever nobody would ever call is refused before it is used."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Set
from typing import Any, get_args

from ildm.api import (
    VERSION,
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
from ildm.core.plugin.dispatch import INTERFACE
from ildm.mqtt import PacketType

_ITERATED = ("route", "route_message", "reroute", "reroute_message")
"""Hooks whose answers are gone through."""
_FILTERED = (Source.CLIENT, Source.BROKER, Source.LINK)
"""Sources whose messages go through the filters."""


def check_plugin(name: str, plugin: Any, base: type[Plugin]) -> None:
    """Check a class against the interface.

    Raises:
        PluginError: not a subclass, another version of the interface, a hook nobody calls or with another
            signature, a wrong ``wants``, ``on_error`` or ``Config``.
    """
    called = f"{kind_of(base)} {name!r}"
    kinds = (TreeAlgorithm, OverlayAlgorithm) if base is Algorithm else (base,)
    if not (isinstance(plugin, type) and issubclass(plugin, kinds)):
        names = " or ".join(f"ildm.api.{each.__name__}" for each in kinds)
        raise PluginError(f"{called}: {plugin!r} is not a subclass of {names}")
    if base is Filter and issubclass(plugin, Algorithm):
        raise PluginError(f"{called} ({class_name(plugin)}): it is an algorithm, to be named as such")
    for check in (_kind, _version, _hooks, _wants, _values):
        for problem in check(plugin):
            raise PluginError(f"{called} ({class_name(plugin)}): {problem}")


def kind_of(plugin: type[Plugin]) -> str:
    """``algorithm`` or ``filter``."""
    return "algorithm" if issubclass(plugin, Algorithm) else "filter"


def class_name(plugin: type) -> str:
    """As in an entry point: ``MODULE:CLASS``."""
    return f"{plugin.__module__}:{plugin.__qualname__}"


def _kind(plugin: type[Plugin]) -> Iterator[str]:
    if issubclass(plugin, TreeAlgorithm) and issubclass(plugin, OverlayAlgorithm):
        yield "it inherits from TreeAlgorithm and from OverlayAlgorithm, and can be one of them only"


def _version(plugin: type[Plugin]) -> Iterator[str]:
    version: object = plugin.api_version
    if not isinstance(version, int) or isinstance(version, bool):
        yield f"api_version is {version!r}, not a number"
    elif not 1 <= version <= VERSION:
        has = "version 1" if VERSION == 1 else f"versions 1 to {VERSION}"
        yield f"api_version is {version}; this node has {has} of the interface"


def _hooks(plugin: type[Plugin]) -> Iterator[str]:
    interface = [each for each in INTERFACE if issubclass(plugin, each)]
    inherited = {name: member for each in interface for name, member in vars(each).items()}
    annotated = {name for each in interface for name in each.__annotations__}
    hooks = {n for n, member in inherited.items() if inspect.isfunction(member) and not n.startswith("_")}
    for attribute, member in _vars_of(plugin).items():
        if attribute.startswith("on_") and attribute not in hooks | annotated:
            yield f"unknown hook {attribute}"
        if attribute not in hooks:
            continue
        if (
            not inspect.isfunction(member)
            or inspect.iscoroutinefunction(member)
            or inspect.isasyncgenfunction(member)
        ):
            yield f"{attribute} must be a plain method"
            continue
        if inspect.isgeneratorfunction(member) and attribute not in _ITERATED:
            yield f"{attribute} is a generator, whose body nobody would run"
            continue
        expected = list(inspect.signature(inherited[attribute]).parameters.values())
        try:
            inspect.signature(member).bind(*[None] * len(expected))
        except TypeError:
            names = ", ".join(parameter.name for parameter in expected)
            yield f"{attribute}{inspect.signature(member)} must accept ({names})"


def _wants(plugin: type[Plugin]) -> Iterator[str]:
    wants: Any = plugin.wants
    if not isinstance(wants, Set):
        yield f"wants is {wants!r}, not a set of (Source, PacketType)"
        return
    for entry in wants:
        if not (
            isinstance(entry, tuple)
            and len(entry) == 2
            and isinstance(entry[0], Source)
            and isinstance(entry[1], PacketType)
        ):
            yield f"wants has {entry!r}, expected (Source, PacketType)"
            return
    listens = plugin.mqtt_message_arrived is not Plugin.mqtt_message_arrived
    filters = issubclass(plugin, Filter) and plugin.filter is not Filter.filter
    filtered = {(source, PacketType.PUBLISH) for source in _FILTERED}
    if filters and not filtered & wants:
        yield "filter is never called, as wants has no (Source, PacketType.PUBLISH)"
    if listens and not wants:
        yield "mqtt_message_arrived is never called, as wants is empty"
    if not listens:
        for source, packet_type in sorted(wants - (filtered if filters else set()), key=str):
            yield (
                f"wants has (Source.{source.name}, PacketType.{packet_type.name}), "
                "but there is no mqtt_message_arrived to show it to"
            )


def _values(plugin: type[Plugin]) -> Iterator[str]:
    if issubclass(plugin, Filter) and plugin.on_error not in get_args(OnError):
        yield f"on_error is {plugin.on_error!r}, expected one of {', '.join(get_args(OnError))}"
    options: object = plugin.Config
    if not (isinstance(options, type) and issubclass(options, PluginConfig)):
        yield "Config must be a subclass of ildm.api.PluginConfig"


def _vars_of(cls: type) -> dict[str, Any]:
    """Attributes of a class and its bases as written, without those of ``object``."""
    members: dict[str, Any] = {}
    for base in reversed(cls.__mro__[:-1]):
        members.update(vars(base))
    return members

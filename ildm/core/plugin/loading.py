"""Finding plugins, and choosing those a configuration names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from ildm.api import Algorithm, Filter, OverlayAlgorithm, Plugin, PluginConfig, PluginError
from ildm.config import refuse_classes, refuse_rules, refuse_site_rules, required_address, unknown_or
from ildm.core.plugin.account import FAILURES
from ildm.core.plugin.arguments import described
from ildm.core.plugin.checking import check_plugin, kind_of

if TYPE_CHECKING:
    from ildm.config import Config, PluginChoice

ALGORITHMS = "ildm.algorithms"
FILTERS = "ildm.filters"
GROUPS: dict[str, type[Plugin]] = {ALGORITHMS: Algorithm, FILTERS: Filter}
"""Groups of entry points, each with the class its plugins inherit from."""
_GROUP_OF = {base: group for group, base in GROUPS.items()}


class PluginSpec(NamedTuple):
    """A checked plugin class with its checked options, ready to be made."""

    name: str
    plugin: type[Plugin]
    config: PluginConfig


class PluginSpecs(NamedTuple):
    """What a configuration chooses."""

    algorithm: PluginSpec | None
    filters: Sequence[PluginSpec]

    @property
    def has_overlay(self) -> bool:
        return self.algorithm is not None and issubclass(self.algorithm.plugin, OverlayAlgorithm)


class Installed(NamedTuple):
    """An entry point of a plugin, and what was found there."""

    kind: str
    """``algorithm`` or ``filter``."""
    name: str
    package: str
    """Distribution that has installed it; empty if unknown."""
    version: str
    target: str
    """``MODULE:CLASS``."""
    api_version: int | None
    """None: that could not be found out."""
    problem: str | None
    """Why it cannot be used."""


def load_plugins(config: Config) -> PluginSpecs:
    """Find and check the plugins of a configuration.

    Raises:
        PluginError: a plugin that is not installed or is installed twice, cannot be imported, or breaks the
            interface.
    """
    algorithm = None
    if config.algorithm is not None:
        algorithm = _load(config.algorithm, Algorithm)
    return PluginSpecs(algorithm, [_load(choice, Filter) for choice in config.filters])


def check_reachable(config: Config, plugins: PluginSpecs) -> None:
    """Check that other nodes can reach this one, where the algorithm needs it, and that rules fit it.

    Raises:
        ConfigError: they cannot, or do not.
    """
    chosen = plugins.algorithm
    refuse_site_rules(config.site, has_overlay=plugins.has_overlay)
    if chosen is not None and plugins.has_overlay:
        required_address(config.link, chosen.name)
        refuse_rules(config.link, chosen.name)
        refuse_classes(config.link, chosen.name)


def installed() -> Iterator[Installed]:
    """All plugins that are installed, with what is wrong with them; they are imported, but not made."""
    for group, base in GROUPS.items():
        entries = sorted(entry_points(group=group), key=lambda entry: (entry.name, _origin(entry)))
        for entry in entries:
            same = [each for each in entries if each.name == entry.name]
            problem, version = None, None
            try:
                plugin = _import(entry, same, base)
                version = plugin.api_version
            except PluginError as error:
                problem = str(error)
            package = entry.dist
            yield Installed(
                kind_of(base),
                entry.name,
                "" if package is None else package.name,
                "" if package is None else package.version,
                entry.value,
                version,
                problem,
            )


def _load(choice: PluginChoice, base: type[Plugin]) -> PluginSpec:
    found = list(entry_points(group=_GROUP_OF[base]))
    same = [entry for entry in found if entry.name == choice.name]
    if not same:
        known = ", ".join(sorted({entry.name for entry in found})) or "none"
        raise PluginError(f"{kind_of(base)} {choice.name!r} is not installed; installed: {known}")
    plugin = _import(same[0], same, base)
    return PluginSpec(choice.name, plugin, checked_options(choice, plugin, kind_of(base)))


def checked_options(choice: PluginChoice, plugin: type[Plugin], kind: str) -> PluginConfig:
    """The options of a configuration as the plugin's own class.

    Raises:
        PluginError: some are wrong; all of those are named.
    """
    try:
        return plugin.Config.model_validate(choice.options)
    except ValidationError as error:
        details = "; ".join(
            # what concerns several options has no place of its own, and names them itself
            ": ".join(
                [*filter(None, [".".join(map(str, item["loc"]))]), unknown_or(item, "option", plugin.Config)]
            )
            for item in error.errors(include_url=False)
        )
        raise PluginError(f"{kind} {choice.name!r}: {details}") from None
    except FAILURES as error:  # whatever a stranger's validator raises
        text = f"its options cannot be checked: {described(error)}"
        raise PluginError(f"{kind} {choice.name!r}: {text}") from error


def _import(entry: EntryPoint, same: Sequence[EntryPoint], base: type[Plugin]) -> type[Plugin]:
    """The class of an entry point, ``same`` being all those of its name.

    Raises:
        PluginError: there are several, or it cannot be imported, or breaks the interface.
    """
    called = f"{kind_of(base)} {entry.name!r}"
    if len(same) > 1:
        raise PluginError(f"{called} is installed {len(same)} times: {', '.join(map(_origin, same))}")
    try:
        plugin: Any = entry.load()
    except FAILURES as error:  # whatever the module of a stranger raises
        raise PluginError(f"{called} cannot be imported: {described(error)}") from error
    check_plugin(entry.name, plugin, base)
    return plugin  # type: ignore[no-any-return]


def _origin(entry: EntryPoint) -> str:
    package = entry.dist
    return entry.value if package is None else f"{package.name} {package.version} ({entry.value})"

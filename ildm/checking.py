"""``ildm check``: everything about a configuration that can be known without starting a node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ildm import compiled
from ildm.api import PluginError
from ildm.config import Config, ConfigError, load_config, read_secret
from ildm.core.plugin.loading import check_reachable, load_plugins
from ildm.core.trial import try_plugins
from ildm.mqtt import IldmError
from ildm.preflight import Finding, examine


class Checked(NamedTuple):
    """What was found out about one file."""

    file: Path
    config: Config | None
    """None: it cannot be used."""
    errors: list[str]
    warnings: list[Finding]

    def row(self) -> dict[str, Any]:
        """For programs."""
        found = [{"key": each.key, "text": each.text} for each in self.warnings]
        return {
            "file": str(self.file),
            "ok": not self.errors,
            "errors": self.errors,
            "warnings": found,
            "does": None if self.config is None else _facts(self.config),
        }


def check(file: Path) -> Checked:
    """Check one file."""
    try:
        config, warnings = _checked(file)
    except IldmError as error:
        return Checked(file, None, str(error).splitlines() or ["failed"], [])
    return Checked(file, config, [], warnings)


def _checked(file: Path) -> tuple[Config, list[Finding]]:
    config = load_config(file)
    with naming(file):
        plugins = load_plugins(config)
        check_reachable(config, plugins)
    with naming(file):
        read_secret(config.broker.password, config.broker.password_file, "broker.password_file")
        read_secret(config.link.secret, config.link.secret_file, "link.secret_file")
        read_secret(None, config.metrics.token_file, "metrics.token_file")
        try_plugins(config, plugins)
    findings = examine(config, thorough=True, has_overlay=plugins.has_overlay)
    fatal = [f"{file}: {found.key}: {found.text}" for found in findings if found.fatal]
    if fatal:
        raise ConfigError("\n".join(fatal))
    return config, findings


def _facts(config: Config) -> dict[str, Any]:
    return {
        "node_id": config.node_id,
        "clients_at": [str(each.url) for _, each in config.clients_at],
        "brokers": [str(address) for address in config.broker.candidates],
        "algorithm": config.algorithm.name if config.algorithm else None,
        "filters": [choice.name for choice in config.filters],
        "neighbors": [str(address) for address in config.link.addresses],
        "discover": [str(question) for question in config.link.discover],
        "state_dir": str(config.state_dir),
    }


def lines(config: Config) -> Iterator[str]:
    """What a node with it would do, for people."""
    yield f"clients at     {config.clients_text}"
    yield f"local broker   {', '.join(map(str, config.broker.candidates))}"
    yield f"algorithm      {config.algorithm.name if config.algorithm else 'none: relays only'}"
    if config.filters:
        yield f"filters        {', '.join(choice.name for choice in config.filters)}"
    if config.algorithm:
        yield f"neighbours at  {config.link.listen or 'none'}"
        yield f"neighbours     {', '.join(map(str, config.link.addresses)) or 'none'}"
        if config.link.discover:
            yield f"discovered by  {', '.join(map(str, config.link.discover))}"
    yield f"state          {config.state_dir}"
    yield f"code           {compiled.form()}"


@contextmanager
def naming(config: Path) -> Iterator[None]:
    """What is wrong with a plugin, or does not go with it, is told with the file that chooses it, as all that
    is wrong in the file."""
    try:
        yield
    except PluginError as error:
        raise PluginError(f"{config}: {error}") from error
    except ConfigError as error:
        text = str(error)
        raise ConfigError(text if text.startswith(str(config)) else f"{config}: {text}") from error

"""What a node is set to: its configuration, one object for all its life, and its secrets."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ildm.config import Config, Section, read_secret


class Secrets(NamedTuple):
    """What stands in files of their own, or in the configuration."""

    broker_password: str | None
    link_secret: str | None
    metrics_token: str | None


KEYS = ("broker.password_file", "link.secret_file", "metrics.token_file")
"""Of the same in the file."""


def read_secrets(config: Config) -> Secrets:
    """Raises: ConfigError: a file cannot be read, or is empty."""
    broker, link = config.broker, config.link
    return Secrets(
        read_secret(broker.password, broker.password_file, KEYS[0]),
        read_secret(link.secret, link.secret_file, KEYS[1]),
        read_secret(None, config.metrics.token_file, KEYS[2]),
    )


def own(config: Config) -> Config:
    """A copy whose sections nobody else has, as :func:`take_up` needs it."""
    sections = {name: value.model_copy() for name, value in config if isinstance(value, Section)}
    return config.model_copy(update=sections)


def take_up(config: Config, other: Config) -> None:
    """Let a configuration hold the values of another one.

    Parts of the node have its sections, and look at them when they need a value: so the sections stay and
    what they hold is replaced, which nobody but a reload may do.
    """
    for name, value in other:
        section = getattr(config, name)
        if isinstance(section, Section) and type(section) is type(value):
            _hold(section, value)
        else:
            config.__dict__[name] = value
    config.model_fields_set.clear()
    config.model_fields_set.update(other.model_fields_set)


def take_up_options(config: Config, other: Config, taken: Collection[tuple[str, str]]) -> None:
    """The same of the options of plugins alone: of those that have them, by kind and name.

    Both have the same plugins in the same order.
    """
    if other.algorithm is not None and ("algorithm", other.algorithm.name) in taken:
        config.__dict__["algorithm"] = other.algorithm
    config.__dict__["filters"] = [
        new if ("filter", new.name) in taken else old
        for old, new in zip(config.filters, other.filters, strict=True)
    ]


def _hold(section: Section, other: Section) -> None:
    section.__dict__.update(other.__dict__)
    section.model_fields_set.clear()
    section.model_fields_set.update(other.model_fields_set)

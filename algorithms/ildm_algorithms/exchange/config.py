"""The option that all algorithms with a catch-up share."""

from __future__ import annotations

from typing import TypeVar

from ildm.api import PluginConfig

__all__ = ["with_absence"]

AnyConfig = TypeVar("AnyConfig", bound=PluginConfig)


def with_absence(config: AnyConfig, expiry: float) -> AnyConfig:
    """The options with ``absence_period`` as ``link.expiry`` says it, if they do not say it themselves."""
    if "absence_period" in config.model_fields_set:
        return config
    return config.model_copy(update={"absence_period": expiry})

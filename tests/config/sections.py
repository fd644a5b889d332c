"""What is wrong with a section of the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ildm.config import ConfigError, parse_config
from ildm.core.plugin.loading import check_reachable, load_plugins


def said(link: dict[str, Any], algorithm: str = "sf") -> str:
    """What is wrong with the section; empty: nothing."""
    try:
        config = parse_config({"algorithm": algorithm, "link": link}, "c.yaml", Path())
        check_reachable(config, load_plugins(config))
    except ConfigError as error:
        return str(error)
    return ""

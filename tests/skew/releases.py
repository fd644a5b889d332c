"""The last release beside this tree: sites whose node is a process of either."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ildm import __version__
from tests.sites.process import PROJECT, ProcessSite

RELEASE = "0.2.0"
WHEEL = Path(__file__).parent / f"ildm-{RELEASE}-py3-none-any.whl"


class Release(NamedTuple):
    """Where a node's code is."""

    version: str
    where: Path
    """What ``python -m ildm`` finds first."""
    environment: Mapping[str, str]


THIS = Release(__version__, PROJECT, os.environ)


def unpacked(directory: Path) -> Release:
    """The last release. Interpreted: its wheel holds the sources alone."""
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(directory)
    return Release(RELEASE, directory, {**os.environ, "PYTHONPATH": str(directory), "ILDM_COMPILED": "0"})


class SkewSite(ProcessSite):
    """State directory and ports stay, whichever release is started on them."""

    async def start_as(self, release: Release) -> None:
        self.where, self.environment = release.where, release.environment
        await self.start()
        assert (await self.status())["version"] == release.version

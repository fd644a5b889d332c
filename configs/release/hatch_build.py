"""The wheel with the compiled form beside the sources: what hatchling builds with ``ILDM_WHEEL=compiled``.

For this Python and this kind of machine alone, and tagged so (``linux_x86_64``, not ``manylinux``: it needs
the C library of where it was made, or a newer one). Without that
variable the wheel holds the sources alone and fits everywhere.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "ILDM_WHEEL"


class CompiledWheel(BuildHookInterface[Any]):
    """Adds what `make compiled` has made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Raises: RuntimeError when it is asked for and is not there, or older than its sources."""
        if version == "editable" or os.environ.get(VARIABLE) != "compiled":
            return
        sys.path.insert(0, self.root)
        from ildm import compiled  # noqa: PLC0415

        reason = compiled.stale(compiled.DIRECTORY)
        if reason is not None:
            raise RuntimeError(f"{VARIABLE}=compiled, but {reason} (make compiled)")
        place = compiled.DIRECTORY.relative_to(Path(self.root))
        build_data["force_include"][str(compiled.DIRECTORY)] = place.as_posix()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

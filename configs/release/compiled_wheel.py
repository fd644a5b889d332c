"""The wheel for this Python and machine alone: with what is compiled, beside the sources.

A build hook of hatchling, off unless ``HATCH_BUILD_HOOKS_ENABLE=true`` (`make dist`). The tag says
``linux_x86_64`` and the like, since nobody has looked whether older systems have what the library needs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledWheel(BuildHookInterface):
    """Found by hatchling, being the one hook in this file."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the library, its stubs and the hashes of their sources, and the tag.

        Raises:
            SystemExit: nothing is compiled, or sources have changed since.
        """
        sys.path.insert(0, self.root)
        from ildm import compiled  # noqa: PLC0415 - of the tree that is built

        reason = compiled.stale(compiled.DIRECTORY)
        if reason is not None:
            sys.exit(f"no wheel with what is compiled: {reason} (make compiled)")
        inside = compiled.DIRECTORY.relative_to(Path(self.root))
        build_data["force_include"][str(compiled.DIRECTORY)] = str(inside)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

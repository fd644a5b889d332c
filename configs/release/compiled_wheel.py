"""The wheel for this Python and machine alone: with what is compiled, beside the sources.

A build hook of hatchling. By itself it compiles where a C compiler is, so that `pip install` of the project
brings the fast form; where that cannot be, the wheel holds the sources alone and `ildm --version` says so.
``HATCH_BUILD_HOOKS_ENABLE=true`` takes what is compiled already and refuses to do without (`make dist`);
``HATCH_BUILD_NO_HOOKS=true`` makes the wheel of the sources alone. The tag says ``linux_x86_64`` and the
like, since nobody has looked whether older systems have what the library needs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MYPYC = "mypy[mypyc]>=1.19"


class CompiledWheel(BuildHookInterface):
    """Found by hatchling, being the one hook in this file."""

    def dependencies(self) -> list[str]:
        """What pip puts into the environment of the build: nothing more where there is no compiler."""
        sys.path.insert(0, str(Path(self.root, "configs", "release")))
        from compile import tools_missing  # noqa: PLC0415 - of the tree that is built

        return [MYPYC] if tools_missing() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and add the library, its stubs and the hashes of their sources, and the tag.

        Raises:
            SystemExit: nothing is compiled, or sources have changed since, and that was demanded.
        """
        if version == "editable":
            return  # runs what `make compiled` puts into the tree
        sys.path.insert(0, self.root)
        from ildm import compiled  # noqa: PLC0415 - of the tree that is built

        demanded = os.environ.get("HATCH_BUILD_HOOKS_ENABLE") == "true"
        if not demanded:
            subprocess.run([sys.executable, Path(self.root, "configs/release/compile.py")], check=False)  # noqa: S603
        reason = compiled.stale(compiled.DIRECTORY)
        if reason is not None:
            if demanded:
                sys.exit(f"no wheel with what is compiled: {reason} (make compiled)")
            return
        inside = compiled.DIRECTORY.relative_to(Path(self.root))
        build_data["force_include"][str(compiled.DIRECTORY)] = str(inside)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

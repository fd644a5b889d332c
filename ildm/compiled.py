"""Which form of the node's hot modules runs: compiled by mypyc, or interpreted as they stand.

Both come from the same sources. What is compiled (`configs/release/compile.py`) is in ``_compiled`` beside
this file, with a hash of each source: if one of these has changed since, all run interpreted, so an edited
file always counts. All or none, because compiled modules know the layout of each other's objects.

``ILDM_COMPILED=0`` runs everything interpreted, ``ILDM_COMPILED=1`` refuses to.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import source_hash, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import ModuleType

SWITCH = "ILDM_COMPILED"
SUFFIX = EXTENSION_SUFFIXES[0] if EXTENSION_SUFFIXES else ""
"""Of libraries that fit this very Python and machine."""
DIRECTORY = Path(__file__).parent / "_compiled" / SUFFIX.strip(".").removesuffix(".so")
LIBRARY = "ildm__mypyc"
"""The library with all code, as a module."""
_MANIFEST = "sources"
_ROOT = Path(__file__).parents[1]
COMPILER = _ROOT / "configs" / "release" / "compile.py"
"""There in a clone alone."""
REINSTALL = "install ildm again where a C compiler and Python's headers are (Debian: gcc python3-dev)"


class Finder:
    """Finds compiled modules before Python finds their sources, while these are what was compiled."""

    def __init__(self, directory: Path, wanted: str | None) -> None:
        self._directory = directory
        self._files: dict[str, str] | None = None
        """Module -> its file; None: not known yet."""
        self.wanted = wanted
        self.reason: str | None = None if wanted != "0" else f"{SWITCH}=0"
        """Why all are interpreted."""
        self._checked = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith("ildm"):
            return None
        if self._files is None:
            self._files = {LIBRARY: LIBRARY + SUFFIX}
            if self.wanted != "0":
                self._files |= {module: file for module, _, file in _read_manifest(self._directory)}
        if name not in self._files or not self.is_used():
            return None
        file = str(self._directory / self._files[name])
        return spec_from_file_location(name, file, loader=ExtensionFileLoader(name, file))

    def is_used(self) -> bool:
        """Whether compiled modules are used; looked at once, when the first is imported.

        Raises:
            ImportError: they are not, and the environment demands them.
        """
        if not self._checked:
            self._checked = True
            self.reason = self.reason or stale(self._directory) or self._load()
            if self.reason is not None and self.wanted == "1":
                raise ImportError(f"{SWITCH}=1, but {self.reason}")
        return self.reason is None

    def _load(self) -> str | None:
        """Load the library; why that is not possible, as where the C library is too old for it."""
        try:
            __import__("ildm__mypyc")
        except ImportError as error:
            return str(error)
        return None


def stale(directory: Path) -> str | None:
    """Why what has been compiled into a directory is not to be used."""
    rows = _read_manifest(directory)
    if not rows:
        return "nothing is compiled for this Python"
    for module, digest, _ in rows:
        source = _ROOT / Path(*module.split(".")).with_suffix(".py")
        try:
            if source_hash(source.read_bytes()).hex() != digest:
                return f"{module} has changed since it was compiled"
        except OSError as error:
            return f"{module} cannot be compared with what was compiled: {error.strerror}"
    return None


def modules_of(directory: Path) -> set[str]:
    """What has been compiled into a directory."""
    return {module for module, _, _ in _read_manifest(directory)}


def _read_manifest(directory: Path) -> list[tuple[str, str, str]]:
    """Module, hash of its source, file with its stub."""
    try:
        lines = (directory / _MANIFEST).read_text().splitlines()
    except OSError:
        return []
    return [(module, digest, file) for module, digest, file in map(str.split, lines)]


def write_manifest(directory: Path, modules: Iterable[tuple[str, Path, str]]) -> None:
    """Say which module was made of which source, and where its stub is."""
    rows = (f"{module} {source_hash(source.read_bytes()).hex()} {file}\n" for module, source, file in modules)
    (directory / _MANIFEST).write_text("".join(rows))


_finder = Finder(DIRECTORY, os.environ.get(SWITCH))


def install() -> None:
    """Have compiled modules found from now on."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def form() -> str:
    """What runs, for people: ``compiled``, or ``interpreted``, why, and how to get the fast form."""
    if _finder.is_used():
        return "compiled"
    found = way()
    return f"interpreted: {_finder.reason}" + (f"; for the fast form: {found}" if found else "")


def way() -> str | None:
    """How what runs interpreted would run compiled; None: it does, or shall not."""
    if _finder.is_used() or _finder.wanted == "0":
        return None
    return "make compiled" if COMPILER.is_file() else REINSTALL

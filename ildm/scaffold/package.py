"""A package for a new plugin, made from templates."""

from __future__ import annotations

import builtins
import importlib.util
import keyword
import os
import re
import shutil
import sys
import tempfile
from importlib.metadata import entry_points
from pathlib import Path
from string import Template
from typing import Literal, NamedTuple, get_args

import ildm.api
import ildm.mqtt
from ildm.admin.commands import UsageError
from ildm.core.plugin.loading import ALGORITHMS, FILTERS
from ildm.mqtt import IldmError
from ildm.text import reason

Kind = Literal["tree", "overlay", "filter"]
KINDS: tuple[Kind, ...] = get_args(Kind)

TEMPLATES = Path(__file__).parent / "templates"
SUFFIX = ".tmpl"
"""Of every template, so that no tool takes one for a module or a test."""
LONGEST = 40
_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")


class ScaffoldError(UsageError):
    """A package that is not made: a name that is wrong or taken, a directory that is there."""


class Names(NamedTuple):
    """What a plugin is called in the places where it has a name."""

    name: str
    """In configurations, as entry point, and of the distribution: ``rate-limit``."""
    package: str
    """``rate_limit``"""
    class_name: str
    """``RateLimit``"""
    title: str
    """``Rate limit``"""


def named(name: str) -> Names:
    """Derive all names from that of the plugin.

    Raises:
        ScaffoldError: no package can have it.
    """
    if not _NAME.fullmatch(name) or len(name) > LONGEST:
        raise ScaffoldError(
            f"{name!r} is no name for a plugin: use at most {LONGEST} of a-z, 0-9 and single - or _ between "
            "them, and begin with a letter"
        )
    words = re.split("[-_]", name)
    names = Names(name, "_".join(words), "".join(map(str.capitalize, words)), " ".join(words).capitalize())
    known = {*ildm.api.__all__, *ildm.mqtt.__all__, *vars(builtins), "Options"}
    if names.class_name in known:
        raise ScaffoldError(f"{name!r} would be a class {names.class_name}, and there is one; choose another")
    return names


def create_package(name: str, kind: Kind = "tree", directory: Path | None = None) -> Path:
    """Write the package of a new plugin, wholly or not at all.

    Args:
        directory: of the package, ``NAME`` by default. It must not exist, unless it is empty.

    Returns:
        The directory.

    Raises:
        ScaffoldError: the name is wrong or taken, or something is in the directory.
        IldmError: it cannot be written.
    """
    names = named(name)
    target = Path(name) if directory is None else directory
    try:
        if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
            raise ScaffoldError(f"{target} is there already; choose another place with --directory")
        _check_free(names)
        target.parent.mkdir(parents=True, exist_ok=True)
        _write(target, rendered(names, kind))
    except OSError as error:
        raise IldmError(f"{target}: cannot be written: {reason(error)}") from error
    return target


def _check_free(names: Names) -> None:
    """Raise ScaffoldError if the plugin, once installed, would be in the way of something."""
    for group in (ALGORITHMS, FILTERS):
        for entry in entry_points(group=group):
            if entry.name == names.name:
                owner = f" (of {entry.dist.name} {entry.dist.version})" if entry.dist is not None else ""
                raise ScaffoldError(f"a plugin {names.name!r}{owner} is installed; choose another name")
    package = names.package
    if keyword.iskeyword(package) or package in sys.stdlib_module_names or _importable(package):
        raise ScaffoldError(f"{names.name!r} would be a package {package}, and there is one; choose another")


def _importable(package: str) -> bool:
    found = importlib.util.find_spec(package)
    return found is not None and found.origin is not None  # None: just a directory on the way


def rendered(names: Names, kind: Kind) -> dict[str, str]:
    """The files of a package: path below its directory -> text."""
    group = FILTERS if kind == "filter" else ALGORITHMS
    values = {**names._asdict(), "kind": kind, "group": group, "version": ildm.__version__}
    files: dict[str, str] = {}
    for part in ("all", kind):
        root = TEMPLATES / part
        for path in sorted(root.rglob(f"*{SUFFIX}")):
            place = str(path.relative_to(root)).removesuffix(SUFFIX).replace("PACKAGE", names.package)
            files[place] = Template(path.read_text()).substitute(values)
    return files


def _write(target: Path, files: dict[str, str]) -> None:
    """Write all files beside the target, then give them its name: nothing half written bears it."""
    mask = os.umask(0)
    os.umask(mask)
    made = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        made.chmod(0o777 & ~mask)
        for place, text in files.items():
            path = made / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        made.rename(target)  # over an empty directory, but over no other
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise

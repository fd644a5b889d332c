"""Writes which packages a lock file names as a bill of materials: CycloneDX 1.6, JSON.

usage: sbom.py REQUIREMENTS.LOCK PYPROJECT.TOML FILE

Each package is there with the hashes of all its files, any of which an installer may take, with those that
need it, and whether a node does (scope required) or only what extras bring (optional). The same lock gives
the same file.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


class Locked(NamedTuple):
    """One package of a lock file, as pip-compile and uv write it."""

    requirement: Requirement
    hashes: tuple[str, ...]
    """SHA-256, hexadecimal."""
    via: frozenset[str]
    """Who needs it."""

    @property
    def version(self) -> str:
        (specifier,) = self.requirement.specifier
        return specifier.version


def read_lock(text: str) -> Iterator[Locked]:
    """The packages of a lock file.

    Raises:
        SystemExit: one has no hash, or is not pinned.
    """
    for entry in re.split(r"\n(?=[A-Za-z0-9])", text.strip()):
        requirement = Requirement(entry.splitlines()[0].removesuffix("\\"))
        hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})\b", entry))
        if not hashes or [each.operator for each in requirement.specifier] != ["=="]:
            sys.exit(f"{requirement} is not pinned with a hash")
        _, _, said = entry.partition("# via")
        via = (line.strip("# \t") for line in said.splitlines())
        yield Locked(requirement, hashes, frozenset(each.split(" ")[0] for each in via if each))


def bill(lock: str, project: dict[str, object]) -> Bom:
    """All packages of a lock file, for the project that they are locked for."""
    locked = {canonicalize_name(each.requirement.name): each for each in read_lock(lock)}
    name, version = str(project["name"]), str(project["version"])
    root = Component(
        type=ComponentType.APPLICATION, name=name, version=version, bom_ref=name, purl=_url(name, version)
    )
    direct = project["dependencies"]
    assert isinstance(direct, list)
    required = _closure(locked, {canonicalize_name(Requirement(each).name) for each in direct})
    components = {each: _component(each, found, each in required) for each, found in locked.items()}
    # the same each time for the same contents
    bom = Bom(
        components=components.values(),
        serial_number=uuid.uuid5(uuid.NAMESPACE_OID, f"{name} {version}\n{lock}"),
    )
    bom.metadata.component = root
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    bom.metadata.timestamp = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
    for parent, component in {name: root, **components}.items():
        bom.register_dependency(
            component, [components[each] for each in locked if parent in locked[each].via]
        )
    return bom


def _closure(locked: dict[str, Locked], names: set[str]) -> set[str]:
    """These and what they need."""
    while more := {each for each, found in locked.items() if found.via & names} - names:
        names |= more
    return names


def _component(name: str, found: Locked, required: bool) -> Component:
    url = _url(name, found.version)
    files = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(str(url)),
        comment="the hash of each of its files",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=each) for each in found.hashes],
    )
    marker = found.requirement.marker
    return Component(
        name=name,
        version=found.version,
        bom_ref=str(url),
        purl=url,
        scope=ComponentScope.REQUIRED if required else ComponentScope.OPTIONAL,
        external_references=[files],
        properties=[Property(name="ildm:python:marker", value=str(marker))] if marker else [],
    )


def _url(name: str, version: str) -> PackageURL:
    return PackageURL("pypi", name=name, version=version)


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit("usage: sbom.py REQUIREMENTS.LOCK PYPROJECT.TOML FILE")
    lock, project, out = map(Path, sys.argv[1:])
    made = bill(lock.read_text(), tomllib.loads(project.read_text())["project"])
    text = make_outputter(made, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)
    out.write_text(text + "\n")


main()

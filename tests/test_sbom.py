"""The bill of materials: everything in the lock file, and what the standard wants."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from copy import deepcopy
from importlib import resources
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest

from ildm import __version__

PROJECT = Path(__file__).parents[1]


def made(lock: Path, out: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, PROJECT / "configs/release/sbom.py", lock, PROJECT / "pyproject.toml", out],
        env=os.environ | {"SOURCE_DATE_EPOCH": "1750000000"},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("sbom") / "bom.json"
    done = made(PROJECT / "requirements.lock", out)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_it_names_every_package_and_hash_of_the_lock(bill: dict[str, Any]) -> None:
    expected: dict[str, set[str]] = {}
    for line in (PROJECT / "requirements.lock").read_text().splitlines():
        if "==" in line and not line.startswith(" "):
            name = line.split(" ")[0].replace("==", "@")
        elif found := re.search("sha256:([0-9a-f]+)", line):
            expected.setdefault(f"pkg:pypi/{name}", set()).add(found[1])
    assert expected == {
        each["purl"]: {hash["content"] for hash in each["externalReferences"][0]["hashes"]}
        for each in bill["components"]
    }
    assert len(expected) > 20
    assert all(expected.values())
    assert bill["metadata"]["component"]["purl"] == f"pkg:pypi/ildm@{__version__}"


def test_it_says_who_needs_what(bill: dict[str, Any]) -> None:
    scopes = {each["name"]: each["scope"] for each in bill["components"]}
    assert {scopes[name] for name in ("aiohttp", "yarl", "pydantic-core", "uvloop")} == {"required"}
    assert {scopes[name] for name in ("amqtt", "hatchling")} == {"optional"}
    versions = {each["bom-ref"]: each["name"] for each in bill["components"]}
    needs = {
        versions.get(each["ref"], each["ref"]): {versions[other] for other in each.get("dependsOn", ())}
        for each in bill["dependencies"]
    }
    assert "yarl" in needs["aiohttp"]
    assert {"aiohttp", "uvloop"} <= needs["ildm"]
    assert set().union(*needs.values()) == set(scopes)  # nobody is there without a reason


def test_it_is_as_the_standard_has_it(bill: dict[str, Any]) -> None:
    kept = resources.files("cyclonedx.schema") / "_res"

    def schema(url: str) -> Any:
        return json.loads((kept / url.rsplit("/", 1)[-1]).read_text())

    validate = fastjsonschema.compile(schema("bom-1.6.SNAPSHOT.schema.json"), handlers={"http": schema})
    validate(deepcopy(bill))  # it fills in defaults
    with pytest.raises(fastjsonschema.JsonSchemaException):
        validate(deepcopy(bill) | {"components": [{"name": "no type"}]})


def test_the_same_lock_gives_the_same_bill(bill: dict[str, Any], tmp_path: Path) -> None:
    assert made(PROJECT / "requirements.lock", tmp_path / "again").returncode == 0
    assert json.loads((tmp_path / "again").read_text()) == bill


@pytest.mark.parametrize(
    "line", ["a==1", "a>=1 \\\n    --hash=sha256:" + 64 * "0", "a \\\n    --hash=sha256:" + 64 * "0"]
)
def test_what_is_not_pinned_is_refused(line: str, tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(line + "\n    # via ildm (pyproject.toml)\n")
    done = made(tmp_path / "lock", tmp_path / "out")
    assert done.returncode == 1
    assert done.stderr.endswith(" is not pinned with a hash\n")
    assert not (tmp_path / "out").exists()

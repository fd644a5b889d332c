"""What is in the package."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from ildm import __version__
from tests.debian.conftest import PROJECT
from tests.support.programs import need


def listed(package: Path) -> dict[str, str]:
    """Path in the package -> its permissions and owner."""
    lines = subprocess.run(
        ["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    columns = (line.split(maxsplit=5) for line in lines)
    return {each[5].removeprefix(".").split(" -> ")[0]: f"{each[0]} {each[1]}" for each in columns}


def field(package: Path, name: str) -> str:
    return subprocess.run(
        ["dpkg-deb", "--field", package, name], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_debians_checker_finds_nothing(package: Path) -> None:
    done = subprocess.run(
        [need("lintian"), "--fail-on", "error,warning", "--no-cfg", package],
        env=os.environ | {"LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_it_says_what_it_is(package: Path) -> None:
    assert field(package, "Version") == __version__.replace(".dev", "~dev")
    assert re.match(r"python3 \(>= 3\.\d+~\), python3 \(<< 3\.\d+~\), libc6 \(", field(package, "Depends"))
    files = listed(package)
    assert {owner.split()[1] for owner in files.values()} == {"root/root"}
    assert not [path for path, mode in files.items() if re.match(r"-.*w.*w| .*s", mode)]
    assert {
        "/usr/bin/ildm",
        "/etc/ildm/example.yaml",
        "/usr/share/man/man1/ildm.1.gz",
        "/usr/share/man/man5/ildm.yaml.5.gz",
        "/usr/share/bash-completion/completions/ildm",
        "/usr/share/zsh/vendor-completions/_ildm",
        "/usr/share/fish/vendor_completions.d/ildm.fish",
        "/usr/share/doc/ildm/copyright",
    } <= set(files)
    units = {f"/usr/lib/systemd/system/{unit.name}" for unit in PROJECT.glob("configs/systemd/ildm@.*")}
    assert units
    assert {path for path in files if path.endswith((".service", ".socket"))} == units


def test_it_holds_what_the_node_needs_of_the_lock_and_no_more(package: Path) -> None:
    locked = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (PROJECT / "requirements.lock").read_text(), re.M))
    found = {
        re.sub(r"[-_.]+", "-", name).lower(): version
        for name, version in (
            re.findall(r"/([^/]+)-([^/-]+)\.dist-info/METADATA$", path)[0]
            for path in listed(package)
            if path.endswith(".dist-info/METADATA")
        )
    }
    assert found.pop("ildm") == __version__
    assert found.items() <= locked.items()
    assert {"aiohttp", "pydantic", "uvloop"} <= set(found)
    assert not {"amqtt", "hatchling", "pip", "setuptools"} & set(found)

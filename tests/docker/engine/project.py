"""A copy of the project in which the commands of docker/README.md are carried out as they stand there."""

from __future__ import annotations

import re
import resource
import shutil
from pathlib import Path

from tests.docker.files import DOCKER, PROJECT

README = (DOCKER / "README.md").read_text()


COMPILED = "ildm/_compiled\n"
"""The line of .dockerignore that keeps an image from what was compiled elsewhere."""


def copy_project(target: Path, *, compiled: bool = True) -> Path:
    """What an image may hold and ``docker/``, without secrets and results of the working copy.

    Two things are other than in the original: a limit of open files that is above this machine's hard limit,
    which the engine may be unable to raise, and how long the load lasts. With ``compiled`` images take what
    is compiled in this tree, as far as it fits their Python, because compiling takes minutes.
    """
    rules = (PROJECT / ".dockerignore").read_text()
    assert COMPILED in rules
    kept = [line.removeprefix("!") for line in rules.splitlines() if line.startswith("!")]
    target.mkdir()
    private = shutil.ignore_patterns("secrets", "results")
    for name in (".dockerignore", "docker", *kept):
        source = PROJECT / name
        if source.is_dir():
            ignored = private if source == DOCKER else shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target / name, ignore=ignored, dirs_exist_ok=True)
        else:
            shutil.copy2(source, target / name)
    if compiled:
        (target / ".dockerignore").write_text(rules.replace(COMPILED, ""))
    possible = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for compose in (target / "docker/compose.yaml", target / "docker/pair.yaml"):
        (limit,) = map(int, re.findall(r"nofile: \{soft: (\d+), hard: \1\}", compose.read_text()))
        if possible != resource.RLIM_INFINITY and possible < limit:
            compose.write_text(compose.read_text().replace(str(limit), str(possible)))
    load = target / "docker/load.yaml"
    text = load.read_text()
    for name, seconds in {"duration": 4, "warm_up": 1, "cool_down": 1}.items():
        text, count = re.subn(rf"^{name}: \d+$", f"{name}: {seconds}", text, flags=re.M)
        assert count == 1, name
    load.write_text(text)
    return target


def recipe(heading: str) -> list[str]:
    """The command lines of one section of docker/README.md, in their order."""
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", README, re.M | re.S)
    assert section, f"docker/README.md has no section {heading!r}"
    blocks = re.findall(r"^```sh\n(.*?)^```$", section[1], re.M | re.S)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    assert lines, f"{heading!r} has no commands"
    return lines

"""The commands in docker/README.md are ones that the tools have."""

from __future__ import annotations

import importlib
import re
import shlex

import pytest
from typer.main import get_command

from tests.docker.files import DOCKER, PROJECT, built_stage, mounts, services, stages

README = (DOCKER / "README.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", README, re.M | re.S)
COMMANDS = [
    shlex.split(line)
    for block in BLOCKS
    for line in block.replace("\\\n", " ").splitlines()
    if not line.startswith("#")
]
COMPOSE = ["docker", "compose", "-f", "docker/compose.yaml"]
COMPOSED = [words[len(COMPOSE) :] for words in COMMANDS if words[: len(COMPOSE)] == COMPOSE]
PAIR = ["docker", "compose", "-p", "pair", "-f", "docker/pair.yaml"]
PAIRED = [words[len(PAIR) :] for words in COMMANDS if words[: len(PAIR)] == PAIR]
PROGRAMS = {"ildm": "ildm.cli.app", "ildm-bench": "ildm_bench.cli"}
OWN = [words[i:] for words in COMMANDS for i, word in enumerate(words) if word in PROGRAMS]


def test_every_command_is_looked_at() -> None:
    composed = [COMPOSE, PAIR]
    others = [w for w in COMMANDS if all(w[: len(c)] != c for c in composed) and w[0] not in PROGRAMS]
    assert [" ".join(words[:2]) for words in others] == [
        "docker/new-secret",
        "docker/new-secret",
        "docker build",
        "docker run",
        ".ci/install",
        ".ci/containers/wheels",
        ".ci/moquette/fetch",
        "make test",
    ]
    assert all((PROJECT / words[0]).exists() for words in others if "/" in words[0])
    assert len(COMPOSED) >= 10
    assert len(OWN) >= 8


@pytest.mark.parametrize("words", COMPOSED, ids=" ".join)
def test_compose_commands_name_services(words: list[str]) -> None:
    names = set(services())
    profile = words[:2] == ["--profile", "load"]
    command, *rest = words[2:] if profile else words
    if command == "exec":
        assert rest[0] in names
        assert rest[1] == built_stage(services()[rest[0]]).last("ENTRYPOINT").words[0]
    elif command == "cp":
        service, _, path = rest[0].partition(":")
        assert path.removesuffix("/.") in mounts(services()[service])
    else:
        assert command in {"up", "down", "ps", "logs"}
        assert {word for word in rest if not word.startswith("-")} <= names
    assert profile == ("load" in rest or command in {"cp", "down"})


@pytest.mark.parametrize("words", PAIRED, ids=" ".join)
def test_commands_for_the_pair_name_its_services(words: list[str]) -> None:
    command, *rest = words
    assert command in {"up", "exec", "kill", "start", "down"}
    named = [word for word in rest if word in services(DOCKER / "pair.yaml")]
    assert len(named) == (command in {"exec", "kill", "start"})


@pytest.mark.parametrize("words", OWN, ids=" ".join)
def test_commands_of_the_project_are_understood(words: list[str]) -> None:
    program, *rest = words
    command = get_command(importlib.import_module(PROGRAMS[program]).app)
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    # raises for an option or argument that the command has not, and for one that is missing
    assert command.make_context(program, rest).command is command


def test_docker_commands_build_and_run_what_is_there() -> None:
    build, run = (next(w for w in COMMANDS if w[:2] == ["docker", name]) for name in ("build", "run"))
    file, target, image = (build[build.index(flag) + 1] for flag in ("-f", "--target", "-t"))
    node = stages(PROJECT / file)[target]
    assert run[-1] == image == services()["node-mosquitto"]["image"]
    assert any(f":{node.last('CMD').words[-1]}:ro" in word for word in run)
    assert any(word.endswith(f":{path}") for path in node.volumes for word in run)
    assert "--read-only" in run


def test_every_file_is_described_and_there() -> None:
    described = set(re.findall(r"^\| `([^`]+)` \|", README, re.M))
    there = {
        path.name + "/" if path.is_dir() else path.name
        for path in DOCKER.iterdir()
        if path.name not in {"README.md", ".gitignore", "secrets", "results"}
    }
    assert {name.replace("nodes/*.yaml", "nodes/") for name in described} == there
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (DOCKER / link).exists(), link

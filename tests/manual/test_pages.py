"""The pages as they are: they can be shown, and leave nothing out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from ildm.admin.commands import COMMANDS
from ildm.config import Config, Section, parse_config
from ildm.manual import commands, configuration
from ildm.manual.__main__ import main
from tests.manual.test_roff import DAY, rendered


@pytest.fixture(scope="module")
def command_page() -> str:
    return rendered(commands.page(DAY))


@pytest.fixture(scope="module")
def configuration_page() -> str:
    return rendered(configuration.page(DAY))


def section(page: str, heading: str) -> str:
    """What stands below a heading."""
    found = re.search(rf"^{re.escape(heading)}$(.*?)(?=^\S|\Z)", page, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


def test_every_command_is_there_with_its_options(command_page: str) -> None:
    for command in COMMANDS.values():
        found = re.search(rf"^   ildm {command.name}$(.*?)(?=^ {{0,3}}\S|\Z)", command_page, re.M | re.S)
        assert found is not None, command.name
        text = found[1]
        for parameter in command.parameters:
            shown = parameter.flag if parameter.option else parameter.usage
            assert shown in text, (command.name, parameter)
    for command_name in ("run", "check", "advise", "import", "demo", "completion", "pub", "sub"):
        assert f"\n   ildm {command_name}\n" in command_page
    assert all(f"\n   ildm {command_name}\n" in command_page for command_name in ("shell", "top"))
    assert "<int range>" not in command_page


def test_what_all_commands_for_a_node_take_is_told_once(command_page: str) -> None:
    assert command_page.count("Admin socket of the node [env: ILDM_SOCKET].") == 1
    assert "--json" in section(command_page, "COMMANDS FOR A RUNNING NODE")
    assert "130    Ended by Ctrl-C." in section(command_page, "EXIT STATUS")


def test_every_key_is_there_with_its_default(configuration_page: str) -> None:
    for model, path in configuration.sections(Config):
        text = section(configuration_page, path or "TOP LEVEL")
        names = re.findall(r"^       ([a-z_]+) \(", text, re.MULTILINE)
        assert names == list(model.model_fields), path
    assert {
        (model.__name__, path) for model, path in configuration.sections(Config) if path.count(".") > 0
    } >= {
        ("ListenerTls", "listeners[].tls"),
        ("KeyPair", "listeners[].tls.sni.NAME"),
        ("LinkTls", "link.tls"),
    }
    link = section(configuration_page, "link")
    assert (
        "queue_bytes (integer of bytes, at least 1024, at most 1073741824; default 33554432 (32 MiB))" in link
    )
    assert "overflow (drop or block; default drop)" in link
    assert "expiry (number of seconds, more than 0, at most 31536000; default 604800.0)" in link
    assert 'protocol (auto, "3.1.1" or "5"; default auto)' in section(configuration_page, "broker")


def test_a_key_of_which_nothing_is_said_is_refused() -> None:
    class Inner(Section):
        """A section."""

        told: int = 1
        """What it is."""

    class Outer(Section):
        """Another."""

        inner: Inner = Inner()
        """The section."""
        untold: int = 1

    assert [key.name for key in configuration.keys(Inner)] == ["told"]
    with pytest.raises(LookupError, match=r"Outer\.untold has no docstring"):
        list(configuration.keys(Outer))


def test_values_are_said_in_the_words_of_the_file() -> None:
    class Odd(BaseModel):
        """Kinds of values."""

        a: dict[str, int] = {}
        """A mapping."""
        b: list[str] | None = ["x", "1"]
        """A list."""
        c: bool = True
        """A choice."""
        d: str
        """Needed."""

    assert [(key.kind, key.default) for key in configuration.keys(Odd)] == [
        ("mapping of names to integers", "{}"),
        ("list of texts or null", '[x, "1"]'),
        ("true or false", "true"),
        ("text", None),
    ]


def test_the_example_can_be_used(tmp_path: Path) -> None:
    config = parse_config(yaml.safe_load(configuration.EXAMPLE), "example", tmp_path)
    assert config.algorithm is not None
    assert config.algorithm.name == "sf"


def test_they_are_written_alike_each_time(tmp_path: Path) -> None:
    written = []
    for name in ("a", "b"):
        subprocess.run(
            [sys.executable, "-m", "ildm.manual", tmp_path / name],
            env=os.environ | {"SOURCE_DATE_EPOCH": "1750000000"},
            check=True,
            timeout=300,
        )
        written.append({file.name: file.read_text() for file in (tmp_path / name).iterdir()})
    assert written[0] == written[1]
    assert set(written[0]) == {"ildm.1", "ildm.yaml.5"}
    assert '"2025-06-15"' in written[0]["ildm.1"]


def test_wrong_usage_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["ildm.manual"])
    assert main() == 2
    assert capsys.readouterr().err == "usage: python -m ildm.manual DIRECTORY\n"

"""Keys of the configuration from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from ildm.config import ConfigError, load_config
from ildm.config.environment import LONGEST, OverrideError, overridden


def test_what_it_says_stands_in_place_of_the_file() -> None:
    document = {"listen": "a:1", "broker": {"address": "b:1", "proxy": "v2"}, "link": None}
    given = {
        "ILDM__LISTEN": "c:1",
        "ILDM__BROKER__ADDRESS": "d:1",
        "ILDM__LINK__NEIGHBORS": "[e:1, {url: f:1, id: f}]",
        "ILDM__LIMITS__CLIENTS": "5",
        "ILDM__BROKER__TLS": "null",
        "ILDM_SOCKET": "/somewhere",
        "ILDM": "1",
    }
    changed, sources = overridden(document, given)
    assert changed == {
        "listen": "c:1",
        "broker": {"address": "d:1", "proxy": "v2", "tls": None},
        "link": {"neighbors": ["e:1", {"url": "f:1", "id": "f"}]},
        "limits": {"clients": 5},
    }
    assert document["broker"] == {"address": "b:1", "proxy": "v2"}  # another reload begins with it
    assert sources["link.neighbors"] == "ILDM__LINK__NEIGHBORS"
    assert set(sources.values()) == {name for name in given if name.startswith("ILDM__")}


def test_without_any_the_file_is_all() -> None:
    assert overridden([1], {"ILDM__LISTEN": "a:1"}) == ([1], {})  # it is refused as it is
    assert overridden({"a": 1}, {"PATH": "x"}) == ({"a": 1}, {})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("ILDM__", "1", "ILDM__: expected ILDM__SECTION__KEY"),
        ("ILDM__LINK____QOS", "1", "ILDM__LINK____QOS: expected"),
        ("ILDM__" + "A__" * 9 + "B", "1", "expected ILDM__SECTION__KEY"),
        ("ILDM__LISTEN__PORT", "1", "ILDM__LISTEN__PORT: listen is no section"),
        ("ILDM__LINK__SECRET", "[hush", "ILDM__LINK__SECRET: its value is no YAML"),
        ("ILDM__LINK__SECRET", "x" * (LONGEST + 1), "longer than 65536 bytes"),
        ("ILDM__LINK__SECRET", "[" * 60_000, "its value is no YAML"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named_without_its_value(name: str, value: str, says: str) -> None:
    with pytest.raises(OverrideError) as error:
        overridden({"listen": "a:1"}, {name: value})
    assert says in str(error.value)
    assert "hush" not in str(error.value)


def test_an_error_names_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "node.yaml"
    file.write_text("listen: 127.0.0.1:1\nstate_dir: here\n")
    monkeypatch.setenv("ILDM__STATE_DIR", "there")
    assert load_config(file).state_dir == tmp_path / "there"
    monkeypatch.setenv("ILDM__LINK__SECRTE", "hush")
    monkeypatch.setenv("ILDM__LIMITS__CLIENTS", "many")
    with pytest.raises(ConfigError) as error:
        load_config(file)
    clients, secret = sorted(str(error.value).splitlines(), key=lambda line: "SECRTE" in line)
    assert clients.startswith(f"{file} with ILDM__LIMITS__CLIENTS: limits.clients: ")
    assert secret == f"{file} with ILDM__LINK__SECRTE: link.secrte: unknown key (secret?)"
    monkeypatch.setenv("ILDM__", "1")
    with pytest.raises(ConfigError, match=r"^environment: ILDM__: expected"):
        load_config(file)

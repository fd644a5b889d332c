"""The token, where it is, and what a configuration must have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from ildm.config import Config, ConfigError
from ildm.net.dashboard.token import take_token
from ildm.preflight import examine


def test_it_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "dashboard.token"
    token, made = take_token(path)
    assert made
    assert len(token) >= 43  # 32 bytes
    assert path.stat().st_mode & 0o777 == 0o600
    assert take_token(path) == (token, False)
    assert os.listdir(path.parent) == [path.name]
    assert take_token(tmp_path / "other")[0] != token


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_others_may_not_read_it(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "token"
    take_token(path)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=rf"dashboard\.token_file: .* can be read by others \({mode:04o}\)"):
        take_token(path)


@pytest.mark.parametrize("content", [b"", b"short\n", b"x" * 2000, b"\xff" * 40, b"\x1b" * 40])
def test_what_is_no_token_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="is to be 32 to 1024 characters") as refused:
        take_token(path)
    assert content.decode(errors="replace") not in str(refused.value) or not content


def test_a_directory_is_no_token(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dashboard\.token_file"):
        take_token(tmp_path)


def test_it_is_looked_at_before_the_start(tmp_path: Path) -> None:
    token = tmp_path / "token"
    config = Config.model_validate(
        {"state_dir": str(tmp_path), "dashboard": {"listen": 9090, "token_file": str(token)}}
    )
    assert examine(config, thorough=False) == []
    assert not token.exists()
    take_token(token)
    assert examine(config, thorough=False) == []
    token.chmod(0o644)
    (found,) = examine(config, thorough=False)
    assert (found.key, found.fatal) == ("dashboard.token_file", True)
    assert "chmod 600" in found.text


def test_beyond_loopback_there_has_to_be_tls() -> None:
    with pytest.raises(ValidationError, match="is reached from elsewhere: that needs tls"):
        Config.model_validate({"dashboard": {"listen": "0.0.0.0:9090"}})
    tls = {"cert": "a.crt", "key": "a.key"}
    assert Config.model_validate({"dashboard": {"listen": "0.0.0.0:9090", "tls": tls}}).dashboard.tls
    assert Config.model_validate({"dashboard": {"listen": 9090}}).dashboard.listen == (
        "127.0.0.1",
        9090,
        "mqtt",
    )


def test_the_command_prints_where_to_look(tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text("dashboard: {listen: 9090, token_file: secrets/token}\n")

    def run() -> tuple[int, str, str]:
        command = [sys.executable, "-m", "ildm", "dashboard-token", "--config", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    told = run()
    token = (tmp_path / "secrets" / "token").read_text().strip()
    assert told == (0, f"http://127.0.0.1:9090/#token={token}\n", "")
    config.write_text("node_id: a\n")
    assert run() == (2, "", f"ildm: {config}: dashboard.listen: is null, so there is no dashboard\n")

"""configs/secure/README.md does what it says: its commands are carried out as written, but for the ports."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ildm.config import load_config
from tests.support.ports import free_port
from tests.support.programs import need

PROJECT = Path(__file__).parents[2]
SECURE = PROJECT / "configs" / "secure"
NEW_CERTIFICATE = SECURE / "new-certificate"
PAGE = (SECURE / "README.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
PORT = re.compile(r"(?<=:|\s)(18[89]\d|80\d\d|888\d|190\d|964\d)\b")


def tried(directory: Path) -> tuple[Path, list[str]]:
    """A copy of the project's configurations and the blocks of the page, on ports that are free."""
    ports: dict[str, str] = {}

    def free(text: str) -> str:
        return PORT.sub(lambda port: ports.setdefault(port[0], str(free_port())), text)

    place = directory / "configs" / "secure"
    shutil.copytree(SECURE, place, ignore=shutil.ignore_patterns("tls", "*-state"))
    for path in place.glob("*.yaml"):
        path.write_text(free(path.read_text()))
    return directory, [free(block) for block in BLOCKS]


def test_the_page_as_written(tmp_path: Path) -> None:
    for program in ("bash", "openssl", "mosquitto", "curl"):
        need(program)
    directory, blocks = tried(tmp_path)
    found = Path(sys.executable).with_name("ildm")
    assert found.exists(), "ildm is not beside its Python"
    # Whatever fails ends it, and with it all that it has started.
    begin = "set -eu; trap 'kill $(jobs -p) 2> left' EXIT\n"
    shown = "\necho =====\n".join(blocks)
    paths = [str(found.parent), os.environ["PATH"], "/usr/sbin"]
    done = subprocess.run(
        ["bash", "-c", begin + shown],
        cwd=directory,
        env={**os.environ, "PATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    logs = "\n".join(path.read_text() for path in directory.glob("*.log"))
    # Until the node is up, it is said what is missing.
    complaints = [
        line for line in done.stderr.splitlines() if not re.match("ildm: (no node runs|not ready)", line)
    ]
    assert (done.returncode, complaints) == (0, []), f"{done.stdout}\n{done.stderr}\n{logs}"
    made, started, heard, looked, _ = done.stdout.split("=====\n")
    assert [line.split(":")[0] for line in made.splitlines()] == [
        f"configs/secure/tls/{node}.crt" for node in ("site-a", "site-b")
    ]
    assert started.count(": ok\n") == 2
    assert "warning" not in started
    assert heard == "plant/oven/temp 180\n"
    assert f"`{heard.strip()}`" in PAGE
    assert "site-b" in looked
    assert 'ildm_link_state{neighbor="site-b",state="active"} 1\n' in looked
    assert "ended" not in logs


@pytest.mark.parametrize("site", ["site-a", "site-b"])
def test_the_configurations_are_understood(site: str) -> None:
    assert load_config(SECURE / f"{site}.yaml").node_id == site


def certificate(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    need("openssl")
    return subprocess.run(
        [NEW_CERTIFICATE, directory, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_certificates_stand_strict_looks(tmp_path: Path) -> None:
    tls = tmp_path / "tls"
    for words in (("site-a",), ("site-b", "b.example.org", "*.b.example.org", "192.0.2.7", "2001:db8::7")):
        done = certificate(tls, *words)
        assert (done.returncode, done.stderr) == (0, "")
    described = subprocess.run(
        ["openssl", "x509", "-in", tls / "site-b.crt", "-noout", "-ext", "subjectAltName"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [name.strip() for name in described.splitlines()[1].split(",")] == [
        *("URI:ildm:site-b", "DNS:localhost", "IP Address:127.0.0.1", "IP Address:0:0:0:0:0:0:0:1"),
        *(
            "DNS:b.example.org",
            "DNS:*.b.example.org",
            "IP Address:192.0.2.7",
            "IP Address:2001:DB8:0:0:0:0:0:7",
        ),
    ]
    for purpose in ("sslserver", "sslclient"):
        verify = ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile", tls / "ca.crt"]
        subprocess.run([*verify, tls / "site-a.crt", tls / "site-b.crt"], capture_output=True, check=True)
    ssl.create_default_context(cafile=tls / "ca.crt").load_cert_chain(tls / "site-b.crt", tls / "site-b.key")
    assert {path.name for path in tls.iterdir() if stat.S_IMODE(path.stat().st_mode) == 0o600} == {
        f"{name}.key" for name in ("ca", "site-a", "site-b")
    }
    assert len(list(tls.iterdir())) == 6


def test_nothing_is_written_over_and_renewing_keeps_key_and_authority(tmp_path: Path) -> None:
    assert certificate(tmp_path, "site-a").returncode == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = certificate(tmp_path, "site-a")
    assert (again.returncode, again.stderr) == (1, f"{tmp_path}/site-a.crt is there already\n")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    (tmp_path / "site-a.crt").unlink()
    assert certificate(tmp_path, "site-a").returncode == 0
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert after.pop("site-a.crt") != before.pop("site-a.crt")
    assert after == before


@pytest.mark.parametrize(
    "words", [(), ("ca",), ("a b",), ("a,DNS:evil",), ("../a",), ("a", "b.example,IP:10.0.0.1")]
)
def test_wrong_names_make_nothing(words: tuple[str, ...], tmp_path: Path) -> None:
    done = certificate(tmp_path / "tls", *words)
    assert done.returncode == 2
    assert done.stderr
    assert not (tmp_path / "tls").exists()

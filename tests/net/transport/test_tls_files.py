"""What is wrong with files of certificates is said before anything starts, with the key and the file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ildm.config import ConfigError, load_config, parse_config
from ildm.net.transport import NodeTls
from tests.net.transport.pki import Pki


def files(pki: Pki, directory: Path) -> dict[str, str]:
    """Everything a section may name, sound or not."""
    garbage = directory / "garbage.pem"
    garbage.write_text("-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")
    one, other = pki.server("one"), pki.server("other")
    locked = directory / "locked.key"
    made = ["openssl", "ec", "-in", one["key"], "-aes128", "-passout", "pass:x", "-out", str(locked)]
    subprocess.run(made, check=True, capture_output=True, timeout=300)
    empty, fifo = directory / "empty.pem", directory / "fifo.pem"
    empty.touch()
    os.mkfifo(fifo)
    return {
        "cert": one["cert"],
        "key": one["key"],
        "other": other["key"],
        "garbage": str(garbage),
        "empty": str(empty),
        "device": "/dev/null",
        "fifo": str(fifo),
        "missing": str(directory / "missing.pem"),
        "locked": str(locked),
        "ca": str(pki.ca),
        "directory": str(directory),
    }


@pytest.mark.parametrize(
    ("tls", "key", "says"),
    [
        ({"cert": "missing", "key": "key"}, "cert", "cannot be read: No such file or directory"),
        ({"cert": "directory", "key": "key"}, "cert", "cannot be read: Is a directory"),
        ({"cert": "cert", "key": "missing"}, "key", "cannot be read: No such file"),
        ({"cert": "fifo", "key": "key"}, "cert", "cannot be read: it is no regular file"),
        ({"cert": "cert", "key": "device"}, "key", "cannot be read: it is no regular file"),
        ({"cert": "garbage", "key": "key"}, "cert", "holds no certificate in PEM form"),
        ({"cert": "empty", "key": "key"}, "cert", "holds no certificate in PEM form"),
        ({"cert": "cert", "key": "empty"}, "key", "holds no private key in PEM form"),
        ({"cert": "cert", "key": "other"}, "key", "is not the key of the certificate"),
        ({"cert": "cert", "key": "locked"}, "key", "is protected by a password"),
        ({"cert": "cert", "key": "key", "ca": "empty", "verify": "require"}, "ca", "holds no certificate"),
        ({"cert": "cert", "key": "key", "ca": "missing", "verify": "require"}, "ca", "cannot be read"),
        ({"cert": "cert", "key": "key", "ca": "ca", "crl": "empty", "verify": "require"}, "crl", "holds no"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_key(
    pki: Pki, tmp_path: Path, tls: dict[str, str], key: str, says: str
) -> None:
    paths = files(pki, tmp_path)
    given = {name: paths.get(value, value) for name, value in tls.items()}
    config = parse_config({"listeners": [{"url": "mqtts://127.0.0.1:1", "tls": given}]}, "test", tmp_path)
    with pytest.raises(ConfigError) as error:
        NodeTls(config)
    assert str(error.value).startswith(f"listeners.0.tls.{key}: {given[key]}")
    assert says in str(error.value)


def test_check_says_it_and_so_does_a_start(pki: Pki, tmp_path: Path) -> None:
    paths = files(pki, tmp_path)
    document: dict[str, Any] = {
        "algorithm": "pf",
        "listen": "127.0.0.1:0",
        "link": {
            "listen": "mqtts://127.0.0.1:0",
            "tls": {"cert": paths["cert"], "key": paths["other"], "ca": paths["ca"]},
        },
    }
    config = tmp_path / "node.yaml"
    config.write_text(yaml.safe_dump(document))
    expected = f"link.tls.key: {paths['other']} is not the key of the certificate {paths['cert']}"
    for command in (["check", str(config)], ["run", "--config", str(config)]):
        done = subprocess.run(
            [sys.executable, "-m", "ildm", *command], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 2
        assert expected in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("listeners: [{url: 'mqtts://a:1'}]", "listeners.0: mqtts://a:1 needs tls: {cert: FILE, key: FILE}"),
        (
            "listeners: [{url: 'a:1', tls: {cert: c, key: k}}]",
            "tls is without effect with a:1: write mqtts://",
        ),
        ("listeners: [{url: 'mqtts://a:1', tls: {cert: c, key: k, ca: a}}]", "ca and verify"),
        ("listeners: [{url: 'mqtts://a:1', tls: {cert: c}}]", "listeners.0.tls.key: Field required"),
        ("broker: {address: 'mqtts://a:1'}", "broker: tls: mqtts://a:1 needs it, at least {ca: FILE}"),
        ("broker: {address: 'mqtts://a:1', tls: {}}", "no authority of the system is trusted"),
        ("broker: {address: 'a:1', tls: {ca: c}}", "tls is without effect with a:1"),
        ("link: {listen: 'mqtts://127.0.0.1:1'}", "link: tls: mqtts://127.0.0.1:1 of listen needs it"),
        ("link: {neighbors: ['mqtts://a:1']}\nalgorithm: sf", "link: tls: mqtts://a:1 of neighbors needs it"),
        (
            "link: {listen: 'mqtts://a:1', advertise: 'a:1', tls: {cert: c, key: k, ca: a}}",
            "advertise: a:1 is to have the scheme of listen",
        ),
        ("link: {tls: {cert: c, key: k, ca: a, pins: {b: 'zz'}}}", "link.tls.pins.b: String should match"),
        ("link: {tls: {cert: c, key: k, ca: a, identity: pin}}", "pins and identity: pin go together"),
    ],
)
def test_sections_that_contradict_themselves(tmp_path: Path, text: str, says: str) -> None:
    config = tmp_path / "node.yaml"
    config.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_config(config)
    assert says in str(error.value)


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    tls = "{cert: c, key: k, ca: a, verify: require, sni: {x: {cert: d, key: e}}}"
    document = yaml.safe_load(f"listeners: [{{url: 'mqtts://a:1', tls: {tls}}}]")
    ((_, listener),) = parse_config(document, "test", tmp_path).clients_at
    assert listener.tls is not None
    assert sorted(path.relative_to(tmp_path).name for path in listener.tls.files) == ["a", "c", "d", "e", "k"]


def test_with_mutual_tls_links_listen_beyond_loopback_without_a_secret(tmp_path: Path) -> None:
    document = {"link": {"listen": "mqtts://0.0.0.0:1885", "tls": {"cert": "c", "key": "k", "ca": "a"}}}
    assert parse_config(document, "test", tmp_path).link.secret is None

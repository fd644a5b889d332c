"""When the certificates that a node shows end, and whom they are for."""

from __future__ import annotations

import ssl
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from ildm.config import parse_config
from ildm.config.transports import ListenerTls
from ildm.net.transport.tls import listener_context
from ildm.net.transport.x509 import not_after, uris
from ildm.preflight import examine
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.ports import free_port
from tests.net.transport.client import connected
from tests.net.transport.conftest import StartNode
from tests.net.transport.pki import Pki

WHY = "ends too early|where it is to be|does not match|not enough values|codec"


def said_by_openssl(cert: str) -> float:
    command = ["openssl", "x509", "-in", cert, "-noout", "-enddate"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    return ssl.cert_time_to_seconds(text.strip().removeprefix("notAfter="))


def der(cert: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(Path(cert).read_text())


@pytest.mark.parametrize("days", [-1, 3, 10_000, 100_000])
def test_the_end_is_the_one_that_openssl_reads(pki: Pki, days: int) -> None:
    """Years from 2050 on are written in another form."""
    cert = pki.issue(f"days{days}", "DNS:localhost", days)["cert"]
    assert not_after(der(cert)) == said_by_openssl(cert)


def test_a_certificate_cut_anywhere_or_another_thing_has_no_end(pki: Pki) -> None:
    whole = der(pki.issue("whole")["cert"])
    end = whole.index(b"\x17\x0d") + 30  # both times
    for cut in range(end):
        with pytest.raises(ValueError, match=WHY):
            not_after(whole[:cut])
    for other in (b"\x30\x03\x02\x01\x05", b"\x30\x80" * 20, bytes(100)):
        with pytest.raises(ValueError, match=WHY):
            not_after(other)


@pytest.mark.parametrize(
    ("alternative", "found"),
    [
        ("", []),
        ("DNS:localhost,IP:127.0.0.1", []),
        ("URI:ildm:a,DNS:localhost,URI:ildm:b", ["ildm:a", "ildm:b"]),
        (f"URI:ildm:{'a' * 200}", [f"ildm:{'a' * 200}"]),  # lengths of two bytes
    ],
)
def test_the_names_are_those_it_was_issued_for(pki: Pki, alternative: str, found: list[str]) -> None:
    whole = der(pki.issue("named", alternative)["cert"])
    assert uris(whole) == found
    for cut in range(0, len(whole), 7):
        with pytest.raises(ValueError, match=WHY):
            uris(whole[:cut])


def test_one_that_neighbours_would_take_for_another_node_is_told_of(pki: Pki, tmp_path: Path) -> None:
    def said(node_id: str, **more: object) -> list[tuple[str, str, bool]]:
        link = {"listen": None, "tls": {**pki.node("site-b"), **more}}
        document = {"node_id": node_id, "algorithm": "pf", "link": link, "broker": {"address": "127.0.0.1:1"}}
        return [tuple(each) for each in examine(parse_config(document, "test", tmp_path), thorough=False)]

    ((key, text, fatal),) = said("site-a")
    assert (key, fatal) == ("link.tls.cert", False)
    assert "is for site-b, not for this node" in text
    assert "URI:ildm:site-a" in text
    assert said("site-b") == []
    assert said("site-a", identity="pin", pins={"site-c": "0" * 64}) == []  # neighbours have its fingerprint


def test_of_several_names_the_first_end_counts(pki: Pki) -> None:
    late, soon = pki.issue("late-one", "DNS:localhost", 20), pki.issue("soon-one", "DNS:other", 5)
    tls = ListenerTls.model_validate({**late, "sni": {"other": soon}})
    assert listener_context(tls, "tls", http=False).ends == said_by_openssl(soon["cert"])


def test_metrics_tell_it_and_how_long_handshakes_took(start_node: StartNode, pki: Pki) -> None:
    shown, linked, port = pki.server("ends"), pki.node("node"), free_port()
    node = start_node(
        algorithm="pf",
        listeners=[{"url": f"mqtts://127.0.0.1:{port}", "name": "public", "tls": shown}],
        link={"listen": f"mqtts://127.0.0.1:{free_port()}", "tls": linked},
    )
    with connected("localhost", port, tls=pki.trusting()), connected(*node.address):
        found = scraped(node)
    name = "ildm_certificate_expiry_timestamp_seconds"
    lines = sorted(line for line in found.splitlines() if line.startswith(name))
    uses = [line.rpartition(" ")[0].removeprefix(name) for line in lines]
    assert uses == ['{use="link"}', '{use="listeners.0"}']
    ends = [float(line.rpartition(" ")[2]) for line in lines]
    assert ends == [said_by_openssl(linked["cert"]), said_by_openssl(shown["cert"])]
    for expected in (
        'ildm_client_connections{listener="public"} 1',
        'ildm_client_connections{listener="listen"} 1',
        "ildm_client_handshake_seconds_count 1",
        "ildm_broker_connect_seconds_count 2",
        "ildm_broker_connack_seconds_count 2",
    ):
        assert expected in found.splitlines()


def scraped(node: NodeProcess) -> str:
    return subprocess.run(
        ["curl", "-sS", "--unix-socket", node.admin_socket, "http://node/metrics"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout


@pytest.mark.parametrize("there", [True, False])
def test_tls_without_uvloop_is_warned_of(pki: Pki, tmp_path: Path, there: bool) -> None:
    config = tmp_path / "node.yaml"
    listener = {"url": f"mqtts://127.0.0.1:{free_port()}", "tls": pki.server("warned")}
    document = {
        "listeners": [listener],
        "broker": {"address": "127.0.0.1:1"},
        "state_dir": str(tmp_path / "s"),
    }
    config.write_text(yaml.safe_dump(document))
    # a finder that is asked first, as on a machine where it is not installed
    without = (
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'uvloop' else find(name, *rest)\n"
    )
    code = ("" if there else without) + "import sys; from ildm.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "check", config],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert ("uvloop is not installed" in done.stdout + done.stderr) == (not there)


def test_one_that_has_ended_is_warned_of_before_it_is_used(pki: Pki, tmp_path: Path) -> None:
    """Clients that do not verify it may go on, so it is no reason not to start."""
    ended, sound = pki.issue("ended", "URI:ildm:ended", -1), pki.issue("sound", "DNS:localhost")
    both = {**sound, "sni": {"old.example.org": ended}}
    config = parse_config(
        {
            "listeners": [
                {"url": "mqtts://127.0.0.1:1", "tls": sound},
                {"url": "mqtts://127.0.0.1:2", "tls": ended},
                {"url": "wss://127.0.0.1:4", "tls": both},
            ],
            "algorithm": "sf",
            "link": {"listen": "mqtts://127.0.0.1:3", "tls": {**ended, "ca": str(pki.ca)}},
        },
        "test",
        tmp_path,
    )
    found = [each for each in examine(config, thorough=False) if "ended on" in each.text]
    assert [each.key for each in found] == ["listeners.1.tls.cert", "listeners.2.tls.cert", "link.tls.cert"]
    at = datetime.fromtimestamp(said_by_openssl(ended["cert"]), UTC)
    assert f"ended on {at:%Y-%m-%d at %H:%M} UTC" in found[0].text
    assert not any(each.fatal for each in found)

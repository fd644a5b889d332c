"""Certificates that are not those of the neighbour, at links over TLS, whichever side has dialed."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from ildm.core.link.handshake import Accepted
from ildm.core.link.hello import Refusal
from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.ports import free_port
from tests.net.transport.conftest import running, until
from tests.net.transport.pki import Pki
from tests.security.neighbor import NONE, Listening, dial, taking

FAR = "site-f"
"""Whom strangers pretend to be."""
URI = f"URI:ildm:{FAR}"


class Certified(NamedTuple):
    """A node that takes neighbours by their certificates alone."""

    node: NodeProcess
    link: int

    def handshakes_failed(self) -> int:
        status = self.node.status()
        assert status is not None
        return int(status["counters"].get("tls_handshakes_failed", 0))

    def reason(self, address: str) -> str:
        """Why it is not linked with the neighbour at an address."""
        rows = [row for row in self.node.admin.neighbors().items if row["address"] == address]
        return (rows[0]["reason"] or "") if rows else ""


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory, broker: Mosquitto, pki: Pki) -> Iterator[Certified]:
    port = free_port()
    link = {"listen": f"mqtts://127.0.0.1:{port}", "tls": pki.node("site-c"), "connect_timeout": 2.0}
    with running(
        NodeProcess(tmp_path_factory.mktemp("site-c"), broker.address, "pf", node_id="site-c", link=link)
    ) as node:
        yield Certified(node, port)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory, pki: Pki) -> dict[str, dict[str, str]]:
    """Certificates that strangers may have."""
    foreign = Pki(tmp_path_factory.mktemp("foreign"), "foreign")
    return {
        "true": pki.issue("true", URI),
        "foreign": foreign.issue("foreign-node", URI),
        "expired": pki.issue("expired", URI, days=-1),
        "swapped": pki.issue("swapped", "URI:ildm:site-s"),
        "nameless": pki.issue(FAR),
        "as a host": pki.issue("host", f"DNS:{FAR},DNS:localhost,IP:127.0.0.1"),
        "longer": pki.issue("longer", f"{URI}.example.org"),
        "of another scheme": pki.issue("scheme", f"URI:{FAR}"),
    }


def context(pki: Pki, shown: dict[str, str] | None, side: Any) -> ssl.SSLContext:
    """Of a stranger, who takes any answer."""
    made = ssl.SSLContext(side)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    if shown is not None:
        made.load_cert_chain(shown["cert"], shown["key"])
    return made


REFUSED = {
    "swapped": f"the certificate is for site-s, not for {FAR}",
    "nameless": f"the certificate is for no node, not for {FAR}",
    "as a host": f"the certificate is for no node, not for {FAR}",
    "longer": f"the certificate is for {FAR}.example.org, not for {FAR}",
    "of another scheme": f"the certificate is for no node, not for {FAR}",
}


@pytest.mark.parametrize("kind", ["foreign", "expired", None])
def test_who_dials_with_a_certificate_that_is_not_valid_does_not_get_past_tls(
    certified: Certified, pki: Pki, others: dict[str, dict[str, str]], kind: str | None
) -> None:
    failed = certified.handshakes_failed()
    shown = None if kind is None else others[kind]
    outcome, _ = dial(certified.link, FAR, None, tls=context(pki, shown, ssl.PROTOCOL_TLS_CLIENT))
    assert outcome == NONE
    until(lambda: certified.handshakes_failed() == failed + 1)


def test_less_than_tls_1_3_is_not_spoken_on_links(
    certified: Certified, pki: Pki, others: dict[str, dict[str, str]]
) -> None:
    failed = certified.handshakes_failed()
    old = context(pki, others["true"], ssl.PROTOCOL_TLS_CLIENT)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    outcome, _ = dial(certified.link, FAR, None, tls=old)
    assert outcome == NONE
    until(lambda: certified.handshakes_failed() == failed + 1)


@pytest.mark.parametrize("kind", REFUSED)
def test_who_dials_with_the_certificate_of_another_is_refused(
    certified: Certified, pki: Pki, others: dict[str, dict[str, str]], kind: str
) -> None:
    outcome, _ = dial(certified.link, FAR, None, tls=context(pki, others[kind], ssl.PROTOCOL_TLS_CLIENT))
    assert isinstance(outcome, Refusal)
    assert (outcome.kind, outcome.text) == ("certificate", REFUSED[kind])


def test_who_dials_with_its_own_certificate_is_taken(
    certified: Certified, pki: Pki, others: dict[str, dict[str, str]]
) -> None:
    outcome, _ = dial(certified.link, FAR, None, tls=context(pki, others["true"], ssl.PROTOCOL_TLS_CLIENT))
    assert isinstance(outcome, Accepted)


INVALID = {
    "foreign": "TLS: the certificate is not accepted: unable to get local issuer certificate",
    "expired": "TLS: the certificate is not accepted: certificate has expired",
}


def refused_as(
    certified: Certified, pki: Pki, shown: dict[str, str], why: str, clings: threading.Event | None = None
) -> None:
    """The node dials one that shows this certificate, and does not link with it."""
    tls = context(pki, shown, ssl.PROTOCOL_TLS_SERVER)
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(pki.ca)
    with Listening(taking(FAR, clings=clings), tls) as far:
        address = f"mqtts://{far.address}"
        certified.node.admin.add_neighbor(address, save=False)
        try:
            until(lambda: certified.reason(address) == why)
            assert not certified.node.links_up(1)
        finally:
            certified.node.admin.remove_neighbor(address, save=False, force=True)
            if clings is not None:
                clings.set()


@pytest.mark.parametrize(("kind", "why"), (INVALID | REFUSED).items())
def test_who_is_dialed_and_shows_a_certificate_that_is_not_its_own_is_not_spoken_to(
    certified: Certified, pki: Pki, others: dict[str, dict[str, str]], kind: str, why: str
) -> None:
    refused_as(certified, pki, others[kind], why)


def test_who_is_refused_and_clings_to_the_connection_is_cut_off_and_the_reason_stays(
    certified: Certified, pki: Pki, others: dict[str, dict[str, str]]
) -> None:
    refused_as(certified, pki, others["swapped"], REFUSED["swapped"], threading.Event())

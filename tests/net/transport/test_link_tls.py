"""Links over TLS: both nodes show certificates, each is bound to its node id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ildm.admin.view import Row
from ildm.core.link.chunks import codecs
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.ports import free_port
from tests.net.transport.client import connected
from tests.net.transport.conftest import StartNode, until
from tests.net.transport.pki import Pki, fingerprint


def link(port: int | None, tls: dict[str, Any] | None, to: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "listen": f"mqtts://127.0.0.1:{port}" if port else None,
        "tls": tls,
        "neighbors": [to] if to else [],
        **more,
    }


def neighbor(node: NodeProcess) -> Row:
    (row,) = node.admin.neighbors().items
    return row


def crosses(here: NodeProcess, there: NodeProcess) -> None:
    until(lambda: here.links_up(1) and there.links_up(1))
    with connected(*there.address) as subscriber, connected(*here.address) as publisher:
        subscriber.subscribe("a/#", 2)
        publisher.publish("a/b", b"over TLS", 2)
        assert subscriber.next() == ("a/b", b"over TLS")


@pytest.mark.parametrize("secret", [None, "a secret of many letters"])
def test_messages_cross_between_nodes_with_certificates(
    start_node: StartNode, pki: Pki, secret: str | None
) -> None:
    port = free_port()
    b = start_node("site-b", "pf", link=link(port, pki.node("site-b"), secret=secret, sessions=2))
    to = f"mqtts://127.0.0.1:{port}"
    a = start_node("site-a", "pf", link=link(None, pki.node("site-a"), to, secret=secret, sessions=2))
    crosses(a, b)
    assert neighbor(a)["address"] == to


@pytest.mark.parametrize(
    ("compression", "codec"),
    [
        ({"compression": "auto"}, None),
        ({"compression": "auto", "compression_encrypted": True}, codecs()[0]),
        ({"compression": "deflate"}, "deflate"),
    ],
)
def test_a_link_over_tls_is_compressed_only_where_somebody_says_so(
    start_node: StartNode, pki: Pki, compression: dict[str, Any], codec: str | None
) -> None:
    port = free_port()
    b = start_node("site-b", "pf", link=link(port, pki.node("site-b"), **compression))
    to = f"mqtts://127.0.0.1:{port}"
    a = start_node("site-a", "pf", link=link(None, pki.node("site-a"), to, **compression))
    crosses(a, b)
    found = neighbor(a)["compression"]
    assert (None if found is None else found["codec"]) == codec


def test_a_certificate_for_another_node_is_refused_by_either_side(start_node: StartNode, pki: Pki) -> None:
    ports = free_port(), free_port()
    to = [f"mqtts://127.0.0.1:{port}" for port in ports]
    start_node("site-b", "pf", link=link(ports[0], pki.node("site-b")))
    a = start_node("site-a", "pf", link=link(None, pki.node("site-x"), to[0]))
    until(lambda: neighbor(a)["reason"] == "the certificate is for site-x, not for site-a")
    assert neighbor(a)["state"] == "refused"
    start_node("site-c", "pf", link=link(ports[1], pki.node("site-y")))
    d = start_node("site-d", "pf", link=link(None, pki.node("site-d"), to[1]))
    until(lambda: neighbor(d)["reason"] == "the certificate is for site-y, not for site-c")


def test_a_node_of_another_authority_does_not_get_in(start_node: StartNode, pki: Pki, tmp_path: Path) -> None:
    port = free_port()
    b = start_node("site-b", "pf", link=link(port, pki.node("site-b")))
    other = Pki(tmp_path / "other", "other").node("site-a")
    # it trusts site-b, so the refusal is site-b's
    a = start_node("site-a", "pf", link=link(None, {**other, "ca": str(pki.ca)}, f"mqtts://127.0.0.1:{port}"))
    until(lambda: (b.status() or {})["counters"].get("tls_handshakes_failed", 0) > 0)
    until(lambda: neighbor(a)["state"] == "down")
    assert b.admin.neighbors().items == []
    event = "connection refused: the TLS handshake has failed"
    (told, *_) = [row["fields"] for row in b.admin.events().items if row["event"] == event]
    assert told["listener"] == "link.listen"
    assert told["peer"] == "127.0.0.1"
    assert told["reason"].startswith("TLS: the certificate is not accepted: ")
    (listed,) = b.admin.refused_neighbors().items
    assert (listed["address"], listed["node_id"], listed["kind"]) == ("127.0.0.1", None, "tls")
    assert listed["reason"] == told["reason"]


def test_pinned_certificates_need_no_names_and_stand_for_nobody_else(start_node: StartNode, pki: Pki) -> None:
    port = free_port()
    plain = {name: {**pki.issue(name), "ca": str(pki.ca)} for name in ("site-a", "site-b", "site-c")}
    pins = {name: fingerprint(tls["cert"]) for name, tls in plain.items()}
    known = {"identity": "pin", "pins": pins}
    to = f"mqtts://127.0.0.1:{port}"
    b = start_node("site-b", "pf", link=link(port, {**plain["site-b"], **known}))
    a = start_node("site-a", "pf", link=link(None, {**plain["site-a"], **known}, to))
    crosses(a, b)
    c = start_node("site-c", "pf", link=link(None, {**plain["site-a"], **known}, to))
    until(lambda: "not the certificate known of site-c" in (neighbor(c)["reason"] or ""))
    d = start_node("site-d", "pf", link=link(None, {**plain["site-a"], **known}, to))
    until(lambda: "no certificate of site-d is known" in (neighbor(d)["reason"] or ""))


def test_a_neighbour_may_be_pinned_where_it_is_named_and_others_known_by_name(
    start_node: StartNode, pki: Pki
) -> None:
    """Either side may have dialed."""
    ports = free_port(), free_port()
    plain = {name: {**pki.issue(name), "ca": str(pki.ca)} for name in ("site-a", "site-b")}
    to = [f"mqtts://127.0.0.1:{port}" for port in ports]

    def named(port: int | None, tls: dict[str, str], at: str, node: str, pin: str) -> dict[str, Any]:
        return {**link(port, tls), "neighbors": [{"url": at, "id": node, "pin": fingerprint(pin)}]}

    a_to_b = named(ports[0], plain["site-a"], to[1], "site-b", plain["site-b"]["cert"])
    b_to_a = named(ports[1], plain["site-b"], to[0], "site-a", plain["site-a"]["cert"])
    crosses(start_node("site-a", "pf", link=a_to_b), start_node("site-b", "pf", link=b_to_a))
    known = pki.node("site-c")
    c = start_node("site-c", "pf", link=named(None, known, to[0], "site-a", plain["site-b"]["cert"]))
    until(lambda: "not the certificate known of site-a" in (neighbor(c)["reason"] or ""))

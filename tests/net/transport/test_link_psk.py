"""Links over TLS without certificates: keys are made of the link secret."""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ildm import preflight
from ildm.config import Config, parse_config, transports
from ildm.config.errors import ConfigError
from ildm.core.link.hello import link_key
from ildm.net.transport.psk import hkdf, psk_of
from ildm.net.transport.tls import Context, psk_context
from ildm.testing.live.ports import free_port
from tests.net.transport.conftest import StartNode, until
from tests.net.transport.pki import Pki
from tests.net.transport.test_link_tls import crosses, link, neighbor

SECRET, OTHER = "a secret of many letters", "another of many letters"
needs_psk = pytest.mark.skipif(sys.version_info < (3, 13), reason="Python below 3.13 has no TLS-PSK")


# keys and configuration, on every Python -----------------------------------------------------------


@pytest.mark.parametrize(
    ("secret", "salt", "info", "made"),
    [  # RFC 5869, A.1 and A.3
        (
            b"\x0b" * 22,
            bytes(range(13)),
            bytes(range(0xF0, 0xFA)),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf",
        ),
        (b"\x0b" * 22, bytes(32), b"", "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"),
    ],
)
def test_keys_are_derived_as_rfc_5869_says(secret: bytes, salt: bytes, info: bytes, made: str) -> None:
    assert hkdf(secret, info, salt).hex() == made


def test_a_key_of_tls_tells_nothing_of_that_of_proofs() -> None:
    key = link_key(SECRET)
    made = psk_of(key)
    assert made == psk_of(key)
    assert made.key != key
    assert key.hex()[:16] not in made.identity
    assert made.key.hex()[:16] not in made.identity
    assert psk_of(link_key(OTHER)).identity != made.identity


def configured(tls: str, more: str = f"secret: {SECRET}") -> Config:
    text = f"algorithm: sf\nlink: {{listen: 'mqtts://0.0.0.0:1885', tls: {tls}, {more}}}\n"
    return parse_config(yaml.safe_load(text), "x", Path())


@pytest.mark.parametrize(
    ("tls", "more", "problem"),
    [
        ("{psk: true}", "keep_alive: 5", "link: tls.psk needs secret or secret_file"),
        (
            "{psk: true, ca: c}",
            f"secret: {SECRET}",
            "link.tls: psk: there are no certificates then: leave out ca",
        ),
        ("{psk: true, cert: c, key: k}", f"secret: {SECRET}", "leave out cert, key"),
        ("{cert: c, key: k}", f"secret: {SECRET}", "link.tls: ca: needed"),
        ("{ca: c}", f"secret: {SECRET}", "link.tls: cert and key: needed, or psk: true"),
        (
            "{psk: true}",
            f"secret: {SECRET}, neighbors: [{{url: 'mqtts://b:1', id: b, pin: {'a' * 64}}}]",
            "link: neighbors.0.pin: with tls.psk nobody shows a certificate",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(
    monkeypatch: pytest.MonkeyPatch, tls: str, more: str, problem: str
) -> None:
    monkeypatch.setattr(transports, "psk_missing", lambda: None)
    with pytest.raises(ConfigError, match=problem.replace(".", r"\.")):
        configured(tls, more)
    read = configured("{psk: true}").link.tls
    assert read is not None
    assert read.psk


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="this Python has TLS-PSK")
def test_a_python_without_it_says_so_at_the_start() -> None:
    with pytest.raises(ConfigError, match=r"link\.tls: psk: needs Python 3\.13 or newer at both ends, and"):
        configured("{psk: true}")


def test_check_recommends_it_where_links_are_plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    document = {"state_dir": str(tmp_path), "algorithm": "sf", "link": {"secret": SECRET}}
    document["link"] |= {"listen": "127.0.0.1:0", "neighbors": ["mqtt://192.0.2.1:1885"]}  # type: ignore[operator]
    config = parse_config(document, "x", tmp_path)

    def found() -> list[str]:
        return [each.text for each in preflight.examine(config, thorough=True) if each.key == "link.tls"]

    monkeypatch.setattr(transports, "psk_missing", lambda: "needs more")
    assert not found()
    monkeypatch.setattr(transports, "psk_missing", lambda: None)
    (text,) = found()
    assert text.startswith("links by 192.0.2.1:1885 are not encrypted: if all nodes have Python 3.13")


# between contexts ----------------------------------------------------------------------------------


def keys(*secrets: str) -> Callable[[], list[bytes]]:
    made = [link_key(secret) for secret in secrets]
    return lambda: made


def shaken(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[Any, Any]:
    """What a handshake comes to at both ends: a connection, or what was raised."""
    ends = socket.socketpair()
    found: list[Any] = [None, None]

    def shake(index: int, context: ssl.SSLContext) -> None:
        ends[index].settimeout(20)
        try:
            found[index] = made = context.wrap_socket(ends[index], server_side=index == 0)
            if index:
                made.send(b"x")
                made.recv(1)  # an alert, if the server has something against it
            else:
                made.recv(1)
                made.send(b"x")
        except OSError as error:
            found[index] = error
            with contextlib.suppress(OSError):
                ends[index].shutdown(socket.SHUT_RDWR)

    threads = [threading.Thread(target=shake, args=(i, c)) for i, c in enumerate((server, client))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found[0], found[1]


@needs_psk
def test_both_have_the_secret() -> None:
    for end in shaken(psk_context(keys(SECRET), dials=False), psk_context(keys(SECRET), dials=True)):
        assert end.session_reused
        assert end.version() == "TLSv1.3"
        assert end.getpeercert(True) is None
        end.close()


@needs_psk
def test_another_secret_is_told_by_the_binder() -> None:
    server, client = shaken(psk_context(keys(OTHER), dials=False), psk_context(keys(SECRET), dials=True))
    assert server.reason == "BINDER_DOES_NOT_VERIFY"
    assert isinstance(client, OSError)


@needs_psk
def test_either_key_is_taken_from_who_dials() -> None:
    server = psk_context(keys(OTHER, SECRET), dials=False)
    for dialer in (keys(OTHER), keys(SECRET)):
        for end in shaken(server, psk_context(dialer, dials=True)):
            assert end.session_reused
            end.close()
    for end in shaken(
        psk_context(keys(SECRET), dials=False), psk_context(keys(OTHER, SECRET), dials=True, former=True)
    ):
        assert end.session_reused
        end.close()


def stripped(protocol: int, *, pki: Pki | None = None, suites: bool = False) -> ssl.SSLContext:
    """An end without the key: it shows a certificate, takes any, or wants suites without authentication."""
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if pki is not None:
        files = pki.node("site-x")
        context.load_cert_chain(files["cert"], files["key"])
    if suites:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("aNULL:eNULL:@SECLEVEL=0")
    return context


@needs_psk
@pytest.mark.parametrize("how", ["certificate", "nothing", "suites"])
@pytest.mark.parametrize("dials", [True, False])
def test_nobody_gets_in_without_the_key(pki: Pki, how: str, dials: bool) -> None:
    protocol = ssl.PROTOCOL_TLS_CLIENT if dials else ssl.PROTOCOL_TLS_SERVER
    attacker = stripped(protocol, pki=pki if how == "certificate" else None, suites=how == "suites")
    own = psk_context(keys(SECRET), dials=not dials)
    server, client = shaken(own, attacker) if dials else shaken(attacker, own)
    assert isinstance(server if dials else client, OSError)


@needs_psk
def test_a_callback_that_raises_lets_nobody_in() -> None:
    def none() -> list[bytes]:
        return []

    server = psk_context(none, dials=False)
    ends = shaken(server, psk_context(keys(SECRET), dials=True))
    assert all(isinstance(end, OSError) for end in ends)


def test_a_context_has_no_certificate_and_takes_none_unseen() -> None:
    for dials in (True, False):
        context = psk_context(keys(SECRET), dials=dials)
        assert context.psk
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
        assert context.cert_store_stats() == {"x509": 0, "crl": 0, "x509_ca": 0}
        assert context.own == b""
    assert Context.psk is False


# between nodes -------------------------------------------------------------------------------------


def shared(port: int | None, to: str | None = None, **more: Any) -> dict[str, Any]:
    return link(port, {"psk": True}, to, **{"secret": SECRET, **more})


@needs_psk
def test_messages_cross_between_nodes_with_a_secret(start_node: StartNode) -> None:
    port = free_port()
    b = start_node("site-b", "pf", link=shared(port, sessions=2))
    a = start_node("site-a", "pf", link=shared(None, f"mqtts://127.0.0.1:{port}", sessions=2))
    crosses(a, b)
    assert neighbor(a)["compression"] is None  # as of every link over TLS


@needs_psk
def test_a_neighbour_with_another_secret_is_refused(start_node: StartNode) -> None:
    port = free_port()
    b = start_node("site-b", "pf", link=shared(port))
    a = start_node("site-a", "pf", link=shared(None, f"mqtts://127.0.0.1:{port}", secret=OTHER))
    until(lambda: "another link secret" in (neighbor(a)["reason"] or ""))
    (row,) = b.admin.refused_neighbors().items
    assert (row["kind"], row["reason"]) == ("tls", "TLS: the neighbour has another link secret")
    assert not a.links_up(1)


@needs_psk
def test_secrets_are_changed_one_node_after_the_other(start_node: StartNode, tmp_path: Path) -> None:
    port = free_port()
    files = {name: tmp_path / f"secret-{name}" for name in "ab"}
    for file in files.values():
        file.write_text(SECRET)
        file.chmod(0o600)

    def given(name: str, **more: Any) -> dict[str, Any]:
        return {"secret_file": str(files[name]), "secret": None, **more}

    to = f"mqtts://127.0.0.1:{port}"
    b = start_node("site-b", "pf", link=shared(port, **given("b")))
    a = start_node("site-a", "pf", link=shared(None, to, **given("a")))
    crosses(a, b)
    for node, name in ((a, "a"), (b, "b")):
        files[name].write_text(OTHER)
        node.admin.reload()
        a.admin.remove_neighbor(to)  # what is up stays so
        a.admin.add_neighbor(to)
        crosses(a, b)

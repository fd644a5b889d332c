"""MQTT.js in pages of a real browser, over wss, at the nodes of two sites with TLS between them."""

from __future__ import annotations

import base64
import hashlib
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Error, sync_playwright

from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.ports import free_port
from tests.net.transport.client import WAIT
from tests.net.transport.conftest import running
from tests.net.transport.pki import Pki
from tests.support.programs import need

HERE = Path(__file__).parent
LIBRARY = HERE / "mqttjs" / "mqtt.min.js"
PANEL = "https://panel.example.org"
"""The page whose scripts may connect."""
ELSEWHERE = "https://elsewhere.example.org"
VERSIONS = pytest.mark.parametrize("version", [4, 5])


class StepError(Exception):
    """What went wrong in the page, and what it and the browser complained of."""


class Page:
    """A page of an origin, with clients of MQTT.js; each step is one of ``page.js``."""

    def __init__(self, browser: Any, origin: str) -> None:
        self._context = browser.new_context()
        # Browsers ask their user before a page of the internet may talk to this machine.
        self._context.grant_permissions(["local-network-access"])
        self._context.set_default_timeout(1000 * WAIT)
        # The origin is not on the network: the browser gets its one document from here.
        self._context.route(
            "**/*", lambda route: route.fulfill(content_type="text/html", body="<!doctype html>")
        )
        self._page = self._context.new_page()
        self._console: list[str] = []
        self._page.on("console", lambda message: self._console.append(message.text))
        self._page.goto(f"{origin}/")
        for script in (LIBRARY, HERE / "page.js"):
            self._page.add_script_tag(content=script.read_text(encoding="utf-8"))

    def step(self, step: str, **arguments: Any) -> Any:
        patience = """new Promise((_, reject) => setTimeout(() => reject(new Error("no answer")), wait))"""
        script = f"([step, given, wait]) => Promise.race([steps[step](given), {patience}])"
        try:
            return self._page.evaluate(script, [step, arguments, 1000 * WAIT])
        except Error as error:
            raise StepError("\n".join([f"{step}: {error.message}", *self._console])) from None

    def connect(self, name: str, url: str, version: int, **options: Any) -> Any:
        options = {"clientId": f"{name}-{version}", "protocolVersion": version, **options}
        return self.step("connect", name=name, url=url, options=options)

    def subscribe(self, name: str, topic_filter: str) -> None:
        assert self.step("subscribe", name=name, filter=topic_filter, qos=2) == [2]

    def publish(self, name: str, topic: str, payload: str | int, qos: int = 1, retain: bool = False) -> None:
        self.step("publish", name=name, topic=topic, payload=payload, qos=qos, retain=retain)

    def next(self, name: str) -> tuple[str, str | bytes, int, bool]:
        """Topic, payload (its sum if it is large), QoS and whether it was a retained one."""
        message = self.step("next", name=name)
        payload = message["payload"]
        if not payload.startswith("sha256:"):
            payload = base64.b64decode(payload)
        return message["topic"], payload, message["qos"], message["retain"]

    def close(self) -> None:
        """As its user closes it: nobody says good-bye."""
        self._context.close()


@pytest.fixture(scope="module")
def server(pki: Pki) -> dict[str, str]:
    """What the nodes show to browsers."""
    return pki.issue("panel", "DNS:localhost,IP:127.0.0.1")


@pytest.fixture(scope="module")
def browser(server: dict[str, str]) -> Iterator[Any]:
    """It trusts this one key: an authority of one's own has to be installed, in a place for each browser."""
    chromium = need("chromium", "chromium-browser", "google-chrome")
    key = subprocess.run(
        ["openssl", "pkey", "-in", server["key"], "-pubout", "-outform", "DER"],
        capture_output=True,
        check=True,
    ).stdout
    digest = base64.b64encode(hashlib.sha256(key).digest()).decode()
    quiet = (
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
    )
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", *quiet, f"--ignore-certificate-errors-spki-list={digest}"],
        )
        yield found
        found.close()


@pytest.fixture(scope="module")
def sites(
    tmp_path_factory: pytest.TempPathFactory, pki: Pki, server: dict[str, str]
) -> Iterator[list[tuple[NodeProcess, str]]]:
    """Two nodes, each before a Mosquitto of its own, and where pages reach them."""
    if reason := Mosquitto.available():
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("sites")
    link_port, neighbors = free_port(), []
    found = []
    with ExitStack() as stack:
        for name in ("site-a", "site-b"):
            broker = stack.enter_context(running(Mosquitto(directory / f"{name}-broker")))
            port = free_port()
            listeners = [{"url": f"wss://127.0.0.1:{port}", "tls": server, "origins": [PANEL]}]
            link = {
                "listen": None if neighbors else f"mqtts://127.0.0.1:{link_port}",
                "neighbors": neighbors,
                "tls": pki.node(name),
                "qos": 2,
            }
            node = NodeProcess(
                directory / name,
                broker.address,
                "sf",
                node_id=name,
                link=link,
                extra={"listeners": listeners},
            )
            found.append((stack.enter_context(running(node)), f"wss://localhost:{port}/mqtt"))
            neighbors = [f"mqtts://127.0.0.1:{link_port}"]
        found[1][0].wait_linked(found[0][0])
        yield found


@pytest.fixture
def urls(sites: list[tuple[NodeProcess, str]]) -> list[str]:
    return [url for _, url in sites]


@pytest.fixture
def page(browser: Any) -> Iterator[Page]:
    page = Page(browser, PANEL)
    yield page
    page.close()


def test_the_library_is_the_one_described() -> None:
    assert hashlib.sha256(LIBRARY.read_bytes()).hexdigest() in (LIBRARY.parent / "README.md").read_text()


@VERSIONS
def test_every_qos_and_a_mebibyte_cross_both_ways(page: Page, urls: list[str], version: int) -> None:
    for name, url in zip("ab", urls, strict=True):
        page.connect(name, url, version)
    for here, there in ("ab", "ba"):
        topic = f"browser/{version}/to-{there}"
        page.subscribe(there, f"{topic}/#")
        for qos in (0, 1, 2):
            page.publish(here, f"{topic}/{qos}", f"été {qos}", qos)
            assert page.next(there) == (f"{topic}/{qos}", f"été {qos}".encode(), qos, False)
        large = bytes(index % 251 for index in range(1 << 20))
        page.publish(here, f"{topic}/large", len(large), 1)
        summed = f"sha256:{hashlib.sha256(large).hexdigest()}"
        assert page.next(there) == (f"{topic}/large", summed, 1, False)
        assert page.step("waiting", name=there) == 0


@VERSIONS
def test_what_one_page_retains_another_finds_at_the_other_site(
    browser: Any, page: Page, urls: list[str], version: int
) -> None:
    topic = f"browser/{version}/retained"
    page.connect("watcher", urls[1], version)
    page.subscribe("watcher", f"{topic}/#")
    page.connect("publisher", urls[0], version)
    page.publish("publisher", f"{topic}/state", "on", 1, retain=True)
    assert page.next("watcher")[:2] == (f"{topic}/state", b"on")
    late = Page(browser, PANEL)
    late.connect("late", urls[1], version)
    late.subscribe("late", f"{topic}/#")
    assert late.next("late") == (f"{topic}/state", b"on", 1, True)
    late.close()


@VERSIONS
def test_the_will_of_a_page_that_is_closed_reaches_the_other_site(
    browser: Any, page: Page, urls: list[str], version: int
) -> None:
    topic = f"browser/{version}/wills"
    page.connect("watcher", urls[1], version)
    page.subscribe("watcher", f"{topic}/#")
    closing = Page(browser, PANEL)
    will = {"payload": "gone", "qos": 1, "retain": False}
    closing.connect("polite", urls[0], version, will={"topic": f"{topic}/polite", **will})
    closing.connect("closed", urls[0], version, will={"topic": f"{topic}/closed", **will})
    closing.step("end", name="polite")  # says good-bye, so its will is not sent
    closing.close()
    assert page.next("watcher") == (f"{topic}/closed", b"gone", 1, False)


@VERSIONS
def test_a_session_is_kept_over_a_lost_connection(page: Page, urls: list[str], version: int) -> None:
    topic = f"browser/{version}/kept"
    keep: dict[str, Any] = {"clean": False}
    if version == 5:
        keep["properties"] = {"sessionExpiryInterval": 600}
    assert page.connect("keeper", urls[1], version, **keep) == {"sessionPresent": False}
    page.subscribe("keeper", f"{topic}/#")
    page.connect("publisher", urls[0], version)
    page.publish("publisher", f"{topic}/before", "0", 2)
    assert page.next("keeper") == (f"{topic}/before", b"0", 2, False)
    page.step("cut", name="keeper")
    missed = [(f"{topic}/missed", str(n).encode(), 1 + n % 2, False) for n in range(20)]
    for name, payload, qos, _ in missed:
        page.publish("publisher", name, payload.decode(), qos)
    assert page.step("reconnect", name="keeper") == {"sessionPresent": True}
    found = [page.next("keeper") for _ in missed]
    # In order within a QoS: MQTT.js hands over one of QoS 2 when it is released.
    for qos in (1, 2):
        assert [each for each in found if each[2] == qos] == [each for each in missed if each[2] == qos]
    page.publish("publisher", f"{topic}/after", "1", 2)
    assert page.next("keeper") == (f"{topic}/after", b"1", 2, False)
    assert page.step("waiting", name="keeper") == 0


def test_a_page_of_another_origin_is_refused(
    browser: Any, page: Page, sites: list[tuple[NodeProcess, str]]
) -> None:
    node, url = sites[0]
    elsewhere = Page(browser, ELSEWHERE)
    before = node.admin.status()["counters"].get("websocket_refused", 0)
    with pytest.raises(StepError, match="closed before it was accepted"):
        elsewhere.connect("c", url, 4)
    elsewhere.close()
    assert node.admin.status()["counters"]["websocket_refused"] == before + 1
    page.connect("c", url, 4)  # the same client of the page that may

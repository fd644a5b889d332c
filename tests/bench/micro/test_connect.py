"""The ways of the connection benchmark: clients come, are accepted and go, with TLS and without."""

from __future__ import annotations

from pathlib import Path

import pytest
import uvloop

from ildm_bench.micro.connect import AT_ONCE, TLS, client_context, relay, storm
from tests.support.brokers import Mosquitto
from tests.support.programs import need

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("way", ["haproxy-tls", "none-tls", "none"])
def test_clients_come_and_go(way: str, mosquitto: Mosquitto, tmp_path: Path) -> None:
    need("openssl")
    if way.startswith("haproxy"):
        need("haproxy", "/usr/sbin/haproxy")
    tls = client_context(tmp_path) if way.endswith(TLS) else None
    process = relay(tmp_path, way, mosquitto)
    process.start()
    try:
        # Each has to be accepted, or it fails.
        assert uvloop.run(storm(process.port, AT_ONCE + 5, tls)) > 0
    finally:
        process.kill()

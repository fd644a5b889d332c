"""What stands before a broker in a testbed beside an ILDM node: HAProxy, for comparison."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from ildm.testing.live.brokers.base import answers_connect
from ildm.testing.live.process import HERE, ManagedProcess, Placement


class HaproxyProcess(ManagedProcess):
    """HAProxy as a relay of TCP with one thread: what a relay costs that looks at nothing."""

    name = "haproxy"

    _CONFIG: ClassVar[str] = """global
  nbthread 1
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  maxconn 30000
listen mqtt
  bind {host}:{port}{tls}
  server broker {broker[0]}:{broker[1]}
"""

    def __init__(
        self, directory: Path, broker: tuple[str, int], *, pem: Path | None = None, place: Placement = HERE
    ) -> None:
        """With ``pem``, a file with certificate and key, clients come by TLS."""
        super().__init__(directory, place)
        self.broker = broker
        self.pem = pem

    @classmethod
    def available(cls) -> str | None:
        """None where it can run, else what is missing."""
        return None if _haproxy() else "HAProxy is not installed: apt-get install haproxy"

    def command(self) -> Sequence[str | Path]:
        path = self.directory / "haproxy.cfg"
        tls = "" if self.pem is None else f" ssl crt {self.pem}"
        path.write_text(self._CONFIG.format(host=self.host, port=self.port, broker=self.broker, tls=tls))
        return [_haproxy() or "haproxy", "-db", "-f", path]

    def ready(self) -> bool:
        """Whether the broker's CONNACK comes through; by TLS, whether it takes connections."""
        return answers_connect(self.address) if self.pem is None else takes_connections(self.address)


def takes_connections(address: tuple[str, int]) -> bool:
    """Whether somebody listens there."""
    with contextlib.suppress(OSError), socket.create_connection(address, 1.0):
        return True
    return False


def _haproxy() -> str | None:
    # Debian keeps it where only root's search path leads.
    return shutil.which("haproxy", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")

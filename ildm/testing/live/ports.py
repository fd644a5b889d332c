"""Free TCP ports on the loopback interface."""

from __future__ import annotations

import random
from pathlib import Path

from ildm.demo.processes import is_free

LOOPBACK = "127.0.0.1"

_FIRST_PORT = 12_000
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_given: set[int] = set()
_chance = random.SystemRandom()


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on, given to one caller of this process only.

    The port lies below the kernel's ephemeral range. A port inside it could be taken as the source port of
    some client while its broker is down, and a client that keeps dialling it may even connect to itself;
    either would make a restart on the same port fail now and then.
    """
    end = _ephemeral_start()
    for _ in range(1000):
        port = _chance.randrange(_FIRST_PORT, end)
        if port not in _given and is_free(port):
            _given.add(port)
            return port
    raise OSError(f"no free port between {_FIRST_PORT} and {end} on {LOOPBACK}")


def _ephemeral_start() -> int:
    if not _RANGE_FILE.exists():
        return 32_768
    low = int(_RANGE_FILE.read_text().split()[0])
    # A machine may be set up with a range that leaves no room below it; then any port has to do.
    return low if low >= _FIRST_PORT + 1000 else 65_536

"""How fast the simulator's event loop is: ``python -m ildm_bench.sim.speed`` prints events per second."""

from __future__ import annotations

import time

from ildm.testing import Kernel


def speed(events: int = 500_000, pending: int = 10_000) -> float:
    """Events per second of real time, with ``pending`` callbacks waiting at any time."""
    kernel = Kernel()
    random = kernel.random.random
    post = kernel.post

    def again() -> None:
        post(random(), again)

    for _ in range(pending):
        again()
    begin = time.perf_counter()
    kernel.run(max_events=events)
    return events / (time.perf_counter() - begin)


if __name__ == "__main__":
    print(f"{speed():,.0f} events per second")

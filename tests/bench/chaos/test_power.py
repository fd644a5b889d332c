"""Overlays whose nodes lose power: nothing was said to a peer that the disk did not have."""

from __future__ import annotations

from functools import partial

import pytest

from ildm.testing.virtual.disk import SimDisk
from ildm_bench.chaos.schedule import Client, Fault, Operation, Schedule, Setting
from ildm_bench.chaos.virtual import site
from ildm_bench.chaos.virtual.hunt import carry_out

SYNC = 0.03
"""Seconds, about: so long that peers would hear of much which is not on the disk."""
BEGIN = 15.0


def published(algorithm: str, victim: str, at: float) -> Schedule:
    """From c to a and b, while a node loses power."""
    setting = Setting(
        algorithm, ("a", "b", "c"), (("b", "a"), ("c", "b")), ("mosquitto",) * 3, mode="power", seed=1
    )
    operations = [Operation(0.1, client, "connect") for client in "rsp"]
    operations += [Operation(0.2, client, "subscribe", topic="t/#", qos=2) for client in "rs"]
    operations += [Operation(BEGIN + n / 50, "p", "publish", topic="t/1", qos=2) for n in range(20)]
    clients = tuple(Client(client, at, clean=False) for client, at in ("ra", "sb", "pc"))
    return Schedule(setting, clients, tuple(operations), (Fault(at, "power", (f"node/{victim}",), 1.0),))


@pytest.mark.parametrize("algorithm", ["sg_tbps", "stla", "octopia"])
@pytest.mark.parametrize(("victim", "moments"), [("a", (2,)), ("b", (2,)), ("c", (1, 2, 3))])
def test_what_is_passed_on_or_acknowledged_is_on_the_disk(
    algorithm: str, victim: str, moments: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the publisher's node gives its number to another message, or counts a lost one as arrived."""
    monkeypatch.setattr(site, "SimDisk", partial(SimDisk, latency=SYNC))
    for moment in moments:
        result, _ = carry_out(published(algorithm, victim, BEGIN + 0.1 + 0.053 * moment))
        assert not result.failed, (moment, result.failures)
        assert result.verdict.owed == 40

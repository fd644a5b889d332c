"""What this machine allows a testbed to have, found out by trying."""

from __future__ import annotations

from typing import NamedTuple

from ildm.testing.live.brokers import KINDS, broker_class
from ildm.testing.live.process import ProcessError
from ildm.testing.live.reaper import clear_up
from ildm_bench.testbed.cgroups import find_cgroups
from ildm_bench.testbed.front import HaproxyProcess
from ildm_bench.testbed.leftovers import give_up_name, new_name
from ildm_bench.testbed.network import Network, NetworkError


class Ability(NamedTuple):
    """Something a testbed may need; ``detail`` says how it is had, or why not."""

    name: str
    there: bool
    detail: str


def abilities() -> list[Ability]:
    """CPU quotas, network namespaces, delay and loss, HAProxy, and each make of broker.

    Raises:
        ProcessError: what was made for the trial could not be removed.
    """
    name = new_name()
    try:
        cgroups, why = find_cgroups(name)
        found = [
            Ability(
                "CPU quotas",
                cgroups is not None,
                why if cgroups is None else f"cgroups version {cgroups.version}, {cgroups.above}",
            ),
            *_network(name),
        ]
    finally:
        trial = {"network": [name]}
        if cgroups is not None:
            trial |= {"cgroup": [str(cgroups.directory)], "supervisor": [str(cgroups.above)]}
        failures = clear_up(trial)
        give_up_name(name)
    if failures:
        raise ProcessError("; ".join(failures))
    found.append(_installed("HAProxy", HaproxyProcess.available()))
    return found + [_installed(make, broker_class(make).available()) for make in KINDS]


def _network(name: str) -> list[Ability]:
    try:
        network = Network(name, 1)
        network.open()
    except NetworkError as error:
        return [
            Ability("network namespaces", False, str(error)),
            Ability("delay and loss", False, "needs network namespaces"),
        ]
    namespaces = Ability("network namespaces", True, "one for each site, joined by veth")
    try:
        network.impair(1.0, 0.0)
    except NetworkError as error:
        return [namespaces, Ability("delay and loss", False, str(error))]
    return [namespaces, Ability("delay and loss", True, "tc netem")]


def _installed(name: str, missing: str | None) -> Ability:
    return Ability(name, missing is None, missing or "installed")

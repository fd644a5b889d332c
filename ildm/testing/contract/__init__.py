"""What :class:`ildm.api.NodeApi` promises, and in which order a plugin's hooks are called.

One suite for everything that stands in for a node: :class:`NodeContract` holds the tests, a :class:`Stage`
puts one implementation on. What an implementation cannot do stands in its :attr:`Stage.cannot` with the
reason, and is expected to fail: a reason that no longer holds is found.
"""

from ildm.testing.contract.broker import BrokerContract
from ildm.testing.contract.life import LifeContract
from ildm.testing.contract.links import LinkContract
from ildm.testing.contract.overlay import OverlayContract
from ildm.testing.contract.packets import PacketContract
from ildm.testing.contract.probes import OverlayProbe, Probe, TreeProbe, stamped
from ildm.testing.contract.spool import SpoolContract
from ildm.testing.contract.stage import Injected, Make, Stage, states
from ildm.testing.contract.tree import TreeContract


class NodeContract(
    LifeContract,
    LinkContract,
    TreeContract,
    OverlayContract,
    BrokerContract,
    SpoolContract,
    PacketContract,
):
    """All the tests. A subclass names the implementation.

    ``class TestMine(NodeContract): stage = MyStage``
    """


ELSEWHERE = {
    "before_subscribe": "tests/core/local/test_overlay_subscriptions.py: a simulator's SUBSCRIBE never waits",
    "on_config_changed": "tests/core/plugin/test_plugin_options.py: asked by the administrator only",
    "overlay": "tests/admin, tests/net: asked by the administrator only",
    "reroute": "tests/core/transfer/test_rings.py: asked only where the links that are used change",
    "reroute_message": "tests/core/transfer/test_rings.py: asked only where the links that are used change",
    "trace": "tests/admin, tests/net: asked by the administrator only",
    "when_known": "tests/core/local/test_overlay_subscriptions.py: a simulator's SUBACK never waits",
}
"""Members of the interface which the suite leaves to other tests, and why."""

__all__ = [
    "ELSEWHERE",
    "Injected",
    "Make",
    "NodeContract",
    "OverlayProbe",
    "Probe",
    "Stage",
    "TreeProbe",
    "stamped",
    "states",
]

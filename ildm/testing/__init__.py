"""What authors of plugins test with; README.md beside this file shows how."""

from ildm.core.plugin.filtering import Rejected
from ildm.testing.broker import LocalBroker, RecordingBroker
from ildm.testing.client import SimClient
from ildm.testing.fake_node import FakeLink, FakeNode, Sent, Transferred
from ildm.testing.kernel import Kernel
from ildm.testing.link import SimLink
from ildm.testing.network import (
    Between,
    Delay,
    LinkModel,
    Network,
    constant,
    exponential,
    lognormal,
    normal,
    uniform,
)
from ildm.testing.node import SimNode
from ildm.testing.transcript import Transcript
from ildm.testing.values import Cause, Delivery, SimSession, SimulationError
from ildm.testing.world import PluginWorld

__all__ = [
    "Between",
    "Cause",
    "Delay",
    "Delivery",
    "FakeLink",
    "FakeNode",
    "Kernel",
    "LinkModel",
    "LocalBroker",
    "Network",
    "PluginWorld",
    "RecordingBroker",
    "Rejected",
    "Sent",
    "SimClient",
    "SimLink",
    "SimNode",
    "SimSession",
    "SimulationError",
    "Transcript",
    "Transferred",
    "constant",
    "exponential",
    "lognormal",
    "normal",
    "uniform",
]

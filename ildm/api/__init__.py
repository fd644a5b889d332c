"""Everything the author of a plugin sees: version 1 of the interface.

A *cooperation algorithm* decides which messages cross to which other nodes: subclass
:class:`TreeAlgorithm`, whose messages go from neighbour to neighbour, or :class:`OverlayAlgorithm`, whose
nodes send to any other. A *filter* decides which messages, subscriptions and clients pass: subclass
:class:`Filter`. All are plain synchronous objects: time, chance and input/output are reached through the
:class:`NodeApi` handed to the constructor, so one and the same class runs in the live node, in the
simulator and in tests (:mod:`ildm.testing`). A plugin is found by its entry point in the group
``ildm.algorithms`` or ``ildm.filters``.

The smallest algorithm, publication flooding, needs one method::

    class PublicationFlooding(TreeAlgorithm):
        def route(self, topic, retain, source):
            return [(link, 2) for link in self.api.links if link is not source]

Nodes of an overlay have addresses (:class:`Peer`), and :meth:`NodeApi.send` takes data of the algorithm's own
to any of them, over a link made on demand. How messages spread is up to it::

    class Gossip(OverlayAlgorithm):
        def on_publish(self, message, turn):
            for peer in self.known:
                self.api.send(peer, pack(message), turn)

        def on_message(self, sender, data, turn):
            self.api.inject(unpack(data))

The five components of the thesis (Table 5.1) and where they are here:

================== ======================================================================
Session manager    ``NodeApi.create_session, close_session, send_message, get_paired_session``
Message listener   ``Plugin.mqtt_message_arrived`` for the types named in ``Plugin.wants``
Event listener     ``Plugin.on_tcp_down, on_recv_failure``
Status listener    ``Plugin.on_session_established, on_session_closed, on_ildm_start,
                   on_ildm_stop, on_ildm_add, on_ildm_remove``
Message generator  ``NodeApi.create_mqtt_message``
================== ======================================================================
"""

from ildm.api.algorithm import Algorithm, OverlayAlgorithm, TreeAlgorithm
from ildm.api.node import Link, NodeApi, Route, Session, Timer, Via
from ildm.api.overlay import Fact, MessageTrace, OverlayKey, OverlayView, TracedTree, TreeNode
from ildm.api.plugin import VERSION, Filter, Plugin, PluginConfig
from ildm.api.retained_view import RetainedView
from ildm.api.values import (
    STAMP_PROPERTY,
    Deferred,
    Injections,
    NodeStatus,
    Peer,
    PluginError,
    Reject,
    Role,
    SendResult,
    SessionStatus,
    Source,
    Stamp,
    Unreachable,
)

__all__ = [
    "STAMP_PROPERTY",
    "VERSION",
    "Algorithm",
    "Deferred",
    "Fact",
    "Filter",
    "Injections",
    "Link",
    "MessageTrace",
    "NodeApi",
    "NodeStatus",
    "OverlayAlgorithm",
    "OverlayKey",
    "OverlayView",
    "Peer",
    "Plugin",
    "PluginConfig",
    "PluginError",
    "Reject",
    "RetainedView",
    "Role",
    "Route",
    "SendResult",
    "Session",
    "SessionStatus",
    "Source",
    "Stamp",
    "Timer",
    "TracedTree",
    "TreeAlgorithm",
    "TreeNode",
    "Unreachable",
    "Via",
]

"""Cooperation algorithms over a tree of links, and those with an overlay of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from ildm.api.node import Link, Route
from ildm.api.overlay import MessageTrace, OverlayView
from ildm.api.plugin import Options_co, Plugin
from ildm.api.values import Peer, Unreachable
from ildm.mqtt import Publish


class Algorithm(Plugin[Options_co]):
    """What both kinds have in common; inherit from :class:`TreeAlgorithm` or :class:`OverlayAlgorithm`."""

    wire: ClassVar[tuple[int, int]] = (1, 1)
    """Lowest and highest version of its own messages that the algorithm reads. A neighbour that has none of
    them is refused; what another one reads is in :attr:`Link.wire`."""

    def on_link_up(self, link: Link) -> None:
        """A neighbour has joined the cooperation; ``link`` is among :attr:`NodeApi.links` now.

        With an overlay also for links made on demand, by either side, and once more when such a link
        becomes that of a neighbour the administrator has named (:attr:`Link.introducer`).
        """

    def on_link_down(self, link: Link) -> None:
        """A neighbour has left: removed, blocked to break a cycle, or away for too long.

        A short outage is not reported: the node queues what is routed to the link meanwhile. With an overlay
        there is no such grace, a lost link is down at once; so is one made on demand that was unused for
        ``link.idle`` seconds, of which no :meth:`OverlayAlgorithm.on_unreachable` tells.
        """

    def on_writable(self, link: Link) -> None:
        """The queue of a link that had refused something (``transfer``, ``send``) is half empty again.

        Of several sessions it is the queue of the one whose turn it was.
        """

    def on_interest_changed(self, source: Link | None, changes: Mapping[str, int | None]) -> None:
        """Interest of local clients (``source`` None, after a successful SUBACK) or of a neighbour changed.

        ``changes`` maps each filter to its maximum QoS now, or to None if nobody there wants it. Of a shared
        subscription ``$share/GROUP/FILTER`` it is ``FILTER``.
        """


class TreeAlgorithm(Algorithm[Options_co]):
    """Messages go from neighbour to neighbour; the node blocks links that would close a cycle.

    Order, queues, outages, acknowledgements, retained messages and wills are the node's affair.
    """

    def route(self, topic: str, retain: bool, source: Link | None) -> Route:
        """Where a PUBLISH on ``topic`` goes besides the local broker.

        ``source`` is the link it came over, or None for a local client's (or its will). The node
        remembers the answer for each topic and source until :meth:`NodeApi.routes_changed` or until links
        or interest change; a retained message is asked about each time. Links that have left, and the
        source, are passed over; an answer with a QoS that is none, or with a link twice, counts as a
        failure.
        """
        return ()

    def route_message(self, message: Publish, source: Link | None, turn: int) -> Route:
        """The same for one message, asked instead of :meth:`route` and for each message if overridden.

        For decisions on payload, properties, rate or load. Wills are asked about, too. The message is as it
        will cross: topic aliases resolved, a retained one with the node's stamp. It is a copy of its own,
        which may be kept, and what becomes of it changes nothing.
        ``turn`` is the publisher's, or that of the session over which a neighbour sent it; what has the same
        turn and source comes in order, to be passed to :meth:`NodeApi.transfer` if need be.

        Not asked about: what this node tells a neighbour of retained messages it had missed, and what was on
        its way over a link that has left. :meth:`reroute_message` is asked about that, or, where none of it,
        :meth:`reroute` and :meth:`route` is overridden, it goes over the link which leads to the same
        neighbour now.
        """
        return self.route(message.topic, message.retain, source)

    def reroute(self, topic: str, retain: bool, source: Link | None) -> Route:
        """Where a PUBLISH of QoS 1 or 2 goes that has lost its way, as the tree of links has changed.

        A node that kept such a message reroutes it over the new tree (``source`` None), others pass it on.
        Nodes that have had it give it to their brokers no second time. What was beyond a link that has left
        may be beyond any other one now, and what neighbours want may not have become known again: better too
        many links than one too few.
        """
        return self.route(topic, retain, source)

    def reroute_message(self, message: Publish, source: Link | None) -> Route:
        """The same for one message, asked instead of :meth:`reroute` and for each message if overridden.

        For algorithms whose :meth:`route_message` decides on payload or properties. The message is a copy of
        its own. Overriding this one has the node ask :meth:`route_message` about each message, too.
        """
        return self.reroute(message.topic, message.retain, source)


class OverlayAlgorithm(Algorithm[Options_co]):
    """Any node sends to any other; who needs what, and how it gets there, is the algorithm's affair."""

    def on_publish(self, message: Publish, turn: int) -> None:
        """A local client's PUBLISH (or will), to be spread; its local broker has it already.

        Topics that begin with ``$`` are not shown. A retained message carries the node's stamp in its
        user properties; pass it on whole. ``turn`` is the publisher's in the round-robin over sessions
        (thesis 5.4.1): what is sent with the same turn stays in order.
        """

    def before_subscribe(self, topic_filters: Sequence[str], done: Callable[[], bool]) -> bool:
        """Whether the local broker has the retained messages of other sites that match these filters, so that
        it serves them itself, with their flag and as Retain Handling says.

        Asked before a SUBSCRIBE goes to the broker, which may still refuse it. After the answer False
        the SUBSCRIBE, and all that the client sends behind it, waits until ``done`` is called, once and
        later, for ``link.subscribe_wait`` at most. ``done`` answers False if that time was over.
        """
        return True

    def when_known(self, topic_filters: Sequence[str], done: Callable[[], bool]) -> bool:
        """Whether all nodes that have to know of these filters of local clients do, so that what is published
        there from now on arrives.

        Asked after :meth:`on_interest_changed`, before the client gets its SUBACK. After the answer False the
        SUBACK waits until ``done`` is called, once and later, for ``link.subscribe_wait`` at most. ``done``
        answers False if that time was over.
        """
        return True

    def on_message(self, sender: Peer, data: bytes, turn: int) -> None:
        """Data which the algorithm of another node sent with :meth:`NodeApi.send`.

        ``turn`` is that of the session it came over: what has the same sender and turn comes in order.
        """

    def on_unreachable(self, node_id: str, reason: Unreachable) -> None:
        """A node that data was sent to cannot be reached, or the link with a node was lost."""

    def is_leaving(self) -> bool:
        """Whether something is still to be said to other nodes after :meth:`on_ildm_stop`.

        The node goes on until then, for ``limits.drain_timeout`` at most.
        """
        return False

    def overlay(self) -> OverlayView | None:
        """The overlay as this node sees it, for ``ildm overlay``; None: there is nothing to be seen."""
        return None

    def trace(self, topic: str, done: Callable[[MessageTrace], None]) -> None:
        """Find the trees which a message on ``topic`` would take now, without delivering anything.

        ``done`` is to be called once, at once or later.

        Raises:
            PluginError: it is not possible now; the text is for people.
        """
        done(MessageTrace(topic=topic))

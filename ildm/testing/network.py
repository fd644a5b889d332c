"""The virtual network: how long messages take, what gets lost, who can reach whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from ildm.api import Peer, Unreachable
from ildm.config import parse_address
from ildm.testing.link import Carried, Outbox, Parcel, by_priority
from ildm.testing.values import Cause

if TYPE_CHECKING:
    from ildm.testing.kernel import Kernel
    from ildm.testing.link import SimLink
    from ildm.testing.node import SimNode

Delay = Callable[[Random], float]
"""Draws the time one message takes, in seconds."""

Processing = Callable[[str, str], float]
"""Id of the node that a message has come to, and the message's kind -> seconds. Asked when it arrives."""

FRAME = 24
"""Bytes of the MQTT frame around data of an algorithm: header, control topic and property length."""


def constant(seconds: float) -> Delay:
    """Always the same."""
    return lambda random: seconds


def uniform(low: float, high: float) -> Delay:
    """Anything between two bounds."""
    return lambda random: random.uniform(low, high)


def exponential(mean: float) -> Delay:
    """Most are short, some are long."""
    return lambda random: random.expovariate(1 / mean)


def normal(mean: float, sigma: float, least: float = 0.0) -> Delay:
    """Gaussian; what falls below ``least`` is raised to it."""
    return lambda random: max(least, random.gauss(mean, sigma))


def lognormal(median: float, sigma: float) -> Delay:
    """``median`` times e to the power of a Gaussian of deviation ``sigma``: a long tail above."""
    return lambda random: median * random.lognormvariate(0.0, sigma)


@dataclass(frozen=True, slots=True)
class Between:
    """A delay that depends on where two nodes are."""

    choose: Callable[[str, str], Delay]
    """Node ids of sender and receiver -> how long messages take; asked once for each link."""


@dataclass(frozen=True, slots=True)
class LinkModel:
    """What holds between any two nodes. Times are in seconds.

    The defaults are a quiet local network under TCP: nothing lost, order kept.
    """

    delay: Delay | Between = field(default_factory=lambda: constant(0.001))
    loss: float = 0.0
    """Share of messages that vanish without a sign."""
    duplicate: float = 0.0
    """Share of messages that arrive twice, the second one at a time of its own."""
    ordered: bool = True
    """Messages of one turn between two nodes arrive in order, as TCP has it; else as drawn."""
    sessions: int = 1
    """TCP connections per link; order holds on each of them (``link.sessions``)."""
    processing: float | Processing = 0.0
    """Time a node is busy with each message that arrives; the next ones wait."""
    sending: float = 0.0
    """Time a node needs for each message it sends; they leave one after the other, those of the highest
    priority first."""
    handshake: int = 4
    """One-way delays until a new link can be used: TCP, then CONNECT and CONNACK."""
    queue_messages: int = 10_000
    """Messages sent but not arrived on one session, above which further ones are refused, unless they have a
    higher priority than one that has not left."""
    packet_size: int = 16 << 20
    """Bytes of the largest message (``link.packet_size``)."""
    connect_timeout: float = 5.0
    """Until the dialer gives up a node that does not answer at all."""
    silence: float = 15.0
    """Until a link is taken for lost if nothing comes from it: power cut, partition."""
    expiry: float = 300.0
    """The same for links of a tree, which last through outages; a node's ``link.expiry`` is longer."""
    reconnect_min: float = 0.5
    """The shortest pause until a node that could not be reached is dialed again; it doubles each time."""
    reconnect_max: float = 30.0
    """The longest one, unless ``connect_timeout`` is less."""
    redial: float = 5.0
    """Configured neighbours find each other again within this time, when they can."""
    idle: float = 60.0
    """A link made on demand that nothing uses for this time is closed."""

    def __post_init__(self) -> None:
        if not (0 <= self.loss < 1 and 0 <= self.duplicate < 1):
            raise ValueError("loss and duplicate are shares below 1")
        if self.sessions < 1 or self.handshake < 0 or self.queue_messages < 1:
            raise ValueError("sessions and queue_messages must be at least 1, handshake at least 0")

    def delay_between(self, sender: str, receiver: str) -> Delay:
        """The distribution for messages of one node to another, by id."""
        return self.delay.choose(sender, receiver) if isinstance(self.delay, Between) else self.delay


class Network:
    """Carries messages over links, and makes, breaks and closes those.

    Attributes:
        sent: messages by kind: ``publish``, ``subscribe``, ``unsubscribe``, ``sync`` and, for data of
            an algorithm, ``data`` or what ``classify`` answers. Copies over several links count each.
        bytes: their sizes, as MQTT 5 frames.
        lost: messages that never arrived, by reason.
        cause: set while a node handles a message.
        on_carry: told of each message when it is sent: the link's end, and the PUBLISH, the filters with
            their QoS, or the data.
    """

    def __init__(self, kernel: Kernel, model: LinkModel, any_topology: bool) -> None:
        self.kernel = kernel
        self.random = Random(kernel.random.getrandbits(64))
        self.model = model
        self.any_topology = any_topology
        self.nodes: dict[str, SimNode] = {}
        self.sent: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.cause: Cause | None = None
        self.classify: Callable[[bytes], str] | None = None
        self.on_carry: Callable[[SimLink, Any], None] | None = None
        self.jitter = Random()
        """Chance of the pauses between dials: a stream of its own, so that they change nothing else."""
        self.jitter.setstate(self.random.getstate())
        self._side: dict[str, int] = {}  # of a partition, by node id
        self._cuts: set[frozenset[str]] = set()
        self._next_sweep = 0.0

    # messages ---------------------------------------------------------------------------------

    def full(self, link: SimLink) -> bool:
        """Whether a link takes no more; its algorithm hears of it when it does again."""
        if link.under_way < self.model.queue_messages * self.model.sessions:
            return False
        link.refused = True
        return True

    def carry(
        self,
        link: SimLink,
        turn: int,
        kind: str,
        size: int,
        receive: Callable[..., None],
        *args: Any,
        priority: int = 0,
    ) -> bool:
        """Send one message, for ``receive(far link, *args)`` to take. False: the queue is full."""
        if self.on_carry is not None:
            self.on_carry(link, args[0])
        model = self.model
        if link.under_way >= model.queue_messages * model.sessions:
            self.lost["queue"] += 1
            dropped = None
            if link.outbox is not None and link.here.ranked:
                dropped = link.outbox.drop_lowest(priority, self.kernel.now)
            if dropped is None:
                return False
            link.under_way -= len(dropped.delays)
        self.sent[kind] += 1
        self.bytes[kind] += size
        link.last_used = self.kernel.now
        carried = Carried(turn, size, priority, self.cause, kind, receive, args)
        if link.back is not None:
            self._depart(link, carried)
        elif link.here.by_id.get(link.node_id) is link:
            if link.held is None:
                link.held = []
            link.held.append(carried)
            link.under_way += 1
        else:
            self.lost["unreachable"] += 1
        return True

    def _depart(self, link: SimLink, carried: Carried) -> None:
        model, random, now = self.model, self.random, self.kernel.now
        if model.loss and random.random() < model.loss:
            self.lost["loss"] += 1
            return
        departure = max(now, link.ready_at)
        if departure > now or model.sending:
            self._wait(Parcel(link, carried), departure)
            return
        self._post(link, carried, departure + link.delay(random))
        if model.duplicate and random.random() < model.duplicate:
            self._post(link, carried, departure + link.delay(random))

    def _post(self, link: SimLink, carried: Carried, arrival: float) -> None:
        link.under_way += 1
        arrival = self._in_order(link, carried.turn, arrival)
        self.kernel.post_at(arrival, self._arrive, link, carried)

    def _in_order(self, link: SimLink, turn: int, arrival: float) -> float:
        """When a message arrives that would have at ``arrival`` if it had the session to itself."""
        if self.model.ordered:
            last = link.last_arrival
            lane = turn % len(last)
            last[lane] = arrival = max(arrival, last[lane])
        return arrival

    def _wait(self, parcel: Parcel, ready: float) -> None:
        """Send a message that departs later: the link is ready then, and those before it must have gone."""
        model, random, link, now = self.model, self.random, parcel.link, self.kernel.now
        here, priority = link.here, parcel.carried.priority
        parcel.begins = parcel.departure = ready
        if model.sending:
            parcel.begins = max(ready, here.sends_until)
            here.sends_until = parcel.departure = parcel.begins + model.sending
        if link.outbox is None:
            link.outbox = Outbox()
        link.outbox.add(parcel, now)
        parcel.delays.append(link.delay(random))
        self._post_parcel(parcel)
        if model.duplicate and random.random() < model.duplicate:
            parcel.delays.append(link.delay(random))
            self._post_copy(parcel, parcel.delays[1])
        link.under_way += len(parcel.delays)
        here.ranked = here.ranked or priority != 0
        last, here.last_parcel = here.last_parcel, parcel
        if model.sending and last is not None and last.begins > now and last.carried.priority < priority:
            here.last_parcel = last
            moved, here.sends_until = by_priority(here.by_id.values(), now, model.sending)
            for each in moved:
                self._post_parcel(each)
                for delay in each.delays[1:]:
                    self._post_copy(each, delay)

    def _post_parcel(self, parcel: Parcel) -> None:
        last = parcel.link.last_arrival
        parcel.before = last[parcel.carried.turn % len(last)]
        self._post_copy(parcel, parcel.delays[0])

    def _post_copy(self, parcel: Parcel, delay: float) -> None:
        arrival = self._in_order(parcel.link, parcel.carried.turn, parcel.departure + delay)
        self.kernel.post_at(arrival, self._parcel_arrives, parcel, parcel.version)

    def _parcel_arrives(self, parcel: Parcel, version: int) -> None:
        if version == parcel.version:
            self._arrive(parcel.link, parcel.carried)

    def _arrive(self, link: SimLink, carried: Carried) -> None:
        if link.stalled is not None:
            link.stalled.append(carried)
            return
        link.under_way -= 1
        if link.refused and 2 * link.under_way <= self.model.queue_messages * self.model.sessions:
            link.refused = False
            self.kernel.post(0.0, link.writable)
        back = link.back
        if back is None:
            self.lost["link"] += 1
            return
        processing = self.model.processing
        if processing:
            node = back.here
            taken = processing(node.node_id, carried.kind) if callable(processing) else processing
            node.busy_until = max(self.kernel.now, node.busy_until) + taken
            self.kernel.post_at(node.busy_until, self._handle, back, carried)
        else:
            self._handle(back, carried)

    def _handle(self, link: SimLink, carried: Carried) -> None:
        if not link.here.alive:
            self.lost["node"] += 1
            return
        cause = carried.cause
        self.cause = None if cause is None else Cause(cause.origin, cause.time, cause.hops + 1)
        carried.receive(link, *carried.args)
        self.cause = None

    # links ------------------------------------------------------------------------------------

    def reachable(self, a: SimNode, b: SimNode) -> bool:
        """Whether a message from one would get to the other now."""
        if self._cuts and frozenset((a.node_id, b.node_id)) in self._cuts:
            return False
        return a.alive and b.alive and self._side.get(a.node_id) == self._side.get(b.node_id)

    def dial(self, here: SimNode, to: Peer) -> SimLink:
        """Begin a link. It takes messages at once; they wait until it is up, or are lost with it.

        A node that could not be reached shortly before is dialed after a pause.
        """
        existing = here.by_id.get(to.node_id)
        if existing is not None:
            return existing
        link = here.make_link(to, dialed=True)
        pause = here.pauses.left(to.node_id, self.kernel.now) if here.has_failed else 0.0
        if pause:
            link.paused = True
            self.kernel.post(pause, self._attempt, link)
        else:
            self._attempt(link)
        return link

    def _attempt(self, link: SimLink) -> None:
        here, to = link.here, link.peer
        link.paused = False
        if not here.alive or here.by_id.get(to.node_id) is not link:
            return  # there is a link that the other side has made
        far = self.nodes.get(to.node_id)
        delay = link.delay
        if far is None or not self.reachable(here, far) or far.peer.address != to.address:
            why = self._why_not(here, to, far)
            # without an answer it takes long, a refusal one round trip
            mute = why is Unreachable.NO_ANSWER
            after = self.model.connect_timeout if mute else 2 * delay(self.random)
            self.kernel.post(0.0 if why is Unreachable.NO_ADDRESS else after, self._failed, link, why)
            return
        theirs = far.by_id.get(here.node_id)
        back = far.make_link(here.peer, dialed=False)
        link.back, back.back = back, link
        handshake = sum(delay(self.random) for _ in range(self.model.handshake))
        link.ready_at = back.ready_at = self.kernel.now + handshake
        for end, held in ((link, link.held), (back, None if theirs is None else theirs.held)):
            for carried in sorted(held or (), key=_rank):
                self._depart(end, carried)
        if link.held:
            link.under_way -= len(link.held)
            link.held = None
        self.kernel.post(handshake, self._up, link)
        self._sweep()

    def _failed(self, link: SimLink, why: Unreachable) -> None:
        here = link.here
        if here.alive and here.by_id.get(link.node_id) is link:
            here.has_failed = True
            here.pauses.failed(link.node_id, why, self.kernel.now)
            self.lose(link, why)
            if why is Unreachable.NO_ANSWER:
                self.redial(here)  # the partition may have healed meanwhile

    def _why_not(self, here: SimNode, to: Peer, far: SimNode | None) -> Unreachable:
        """Why a dial fails."""
        try:
            parse_address(to.address)
        except ValueError:
            return Unreachable.NO_ADDRESS
        if far is None or far.peer.address != to.address:
            far = next((node for node in self.nodes.values() if node.peer.address == to.address), None)
            if far is not None and self.reachable(here, far):
                return Unreachable.OTHER_NODE
        mute = far is not None and not self.reachable(here, far) and (far.alive or far.silent)
        return Unreachable.NO_ANSWER if mute else Unreachable.REFUSED

    def _up(self, link: SimLink) -> None:
        for end in (link, link.back):
            # the first end's hook may close the link
            if end is not None and end.back is not None and end.here.alive:
                end.up = True
                if end.outbox is not None and not end.outbox.waiting(self.kernel.now):
                    end.outbox = None  # mostly for good: a large run has very many links
                if end.here.has_failed:
                    end.here.pauses.reached(end.node_id)
                end.here.link_up(end)

    def lose(self, link: SimLink, why: Unreachable | None = Unreachable.LOST) -> None:
        """One end learns that a link is no more; the other end, if it is there, as well.

        Args:
            why: what the algorithms are told; None: closed on purpose, no node is unreachable.
        """
        for end in (link, link.back):
            if end is None:
                continue
            if end.stalled:
                self.lost["link"] += len(end.stalled)
            end.stalled = None
            if end.held:
                self.lost["unreachable"] += len(end.held)
            end.held = None
            node = end.here
            if node.by_id.get(end.node_id) is end:
                del node.by_id[end.node_id]
            if end.up and why is not None and node.alive and self.any_topology:
                node.has_failed = True
                node.pauses.link_lost(end.node_id, self.kernel.now - end.ready_at, self.kernel.now)
        back, link.back = link.back, None
        if back is not None:
            back.back = None
        for end in (link, back):
            if end is not None and end.here.alive:
                end.here.link_lost(end, why)

    def stall(self, link: SimLink) -> None:
        """Nothing passes a link any more; if that lasts it is lost."""
        for end in (link, link.back):
            if end is not None and end.stalled is None:
                end.stalled = []
        after = self.model.silence if self.any_topology else self.model.expiry
        link.stall_timer = self.kernel.schedule(after, self.lose, link, Unreachable.NO_ANSWER)

    def resume(self, link: SimLink) -> None:
        """A stalled link works again: what waited goes on."""
        for end in (link, link.back):
            if end is None:
                continue
            if end.stall_timer is not None:
                end.stall_timer.cancel()
                end.stall_timer = None
            waiting, end.stalled = end.stalled or [], None
            for carried in sorted(waiting, key=_rank):
                arrival = self.kernel.now + end.delay(self.random)
                # what waited keeps one order, on whatever sessions it was
                end.last_arrival = [max(arrival, *end.last_arrival, 0.0)] * len(end.last_arrival)
                self.kernel.post_at(end.last_arrival[0], self._arrive, end, carried)

    def _sweep(self) -> None:
        """Close links made on demand that nothing uses, now and then."""
        now = self.kernel.now
        idle = self.model.idle
        if now >= self._next_sweep and self.any_topology:
            self._next_sweep = now + idle
            for node in self.nodes.values():
                for link in node.by_id.values():
                    back = link.back
                    if (
                        link.dialed
                        and back is not None
                        and link.up
                        and max(link.last_used, back.last_used) < now - idle
                        and not (link.introducer or back.introducer or link.under_way or back.under_way)
                        and link.stalled is None
                    ):
                        self.kernel.post(0.0, self._close_idle, link)

    def _close_idle(self, link: SimLink) -> None:
        if link.back is not None:
            self.lose(link, None)

    # faults -----------------------------------------------------------------------------------

    def kill(self, node: SimNode, silent: bool) -> None:
        """End a node. Its peers see their links reset, or if it dies in silence nothing for a while."""
        node.die(silent)
        for link in list(node.by_id.values()):
            back = link.back
            if back is None:
                continue
            if silent or not self.any_topology:
                if link.stalled is None:
                    self.stall(back)
            else:
                arrival = self.kernel.now + link.delay(self.random)
                self.kernel.post_at(max(arrival, *link.last_arrival, self.kernel.now), self._reset, back)

    def _reset(self, link: SimLink) -> None:
        if link.back is not None:
            self.lose(link)

    def part(self, groups: list[set[str]]) -> None:
        """Cut the network: nodes of different groups cannot reach each other; unnamed ones make one more."""
        self._side = {node_id: i for i, group in enumerate(groups) for node_id in group}
        self._stall_cut_off()

    def cut(self, a: str, b: str) -> None:
        """Two nodes cannot reach each other any more, though all others can."""
        self._cuts.add(frozenset((a, b)))
        self._stall_cut_off()

    def _stall_cut_off(self) -> None:
        for node in self.nodes.values():
            for link in node.by_id.values():
                back = link.back
                crosses = back is not None and not self.reachable(node, back.here)
                if link.dialed and crosses and link.stalled is None:
                    self.stall(link)

    def heal(self) -> None:
        """Undo all partitions and cuts."""
        self._side = {}
        self._cuts.clear()
        for node in self.nodes.values():
            for link in node.by_id.values():
                back = link.back
                if link.stalled is not None and back is not None and self.reachable(node, back.here):
                    self.resume(link)
        for node in self.nodes.values():
            self.redial(node)

    def redial(self, node: SimNode) -> None:
        """Configured neighbours that are not connected find each other again, now that they can."""
        for node_id in node.configured:
            far = self.nodes.get(node_id)
            if node_id not in node.by_id and far is not None and self.reachable(node, far):
                self.kernel.post(self.random.uniform(0, self.model.redial), node.connect, far.peer)


def _rank(carried: Carried) -> int:
    """The highest priority first."""
    return -carried.priority

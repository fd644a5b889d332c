"""Values which plugins and the node hand to each other."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, StrEnum
from typing import Generic, NamedTuple, TypeVar

from ildm.mqtt import IldmError, Property, Publish, ReasonCode


class PluginError(IldmError):
    """A plugin that cannot be loaded: unknown name or option, missing or unknown hook, wrong signature.

    Or a call of a plugin that cannot be carried out: a wrong argument, beyond a bound, or not now.
    """


class SessionStatus(StrEnum):
    """Status of a session (thesis Fig. 5.3)."""

    CLOSED = "closed"
    ESTABLISHED = "established"
    TERMINATING = "terminating"


class NodeStatus(StrEnum):
    """Status of a node (thesis Fig. 5.4)."""

    STOPPED = "stopped"
    RUNNING = "running"
    ILDM_ADDING = "ildm_adding"
    ILDM_REMOVING = "ildm_removing"


class Role(StrEnum):
    """The peer of a session."""

    CLIENT = "client"
    """A local client."""
    BROKER = "broker"
    """The local broker; the session is paired with a local client's."""
    INJECTION = "injection"
    """The local broker; the session carries transferred messages."""
    LINK = "link"
    """A neighbour node."""
    PEER = "peer"
    """Whatever a plugin has connected to with :meth:`NodeApi.create_session`."""


class Source(Enum):
    """Where a message comes from; with a packet type it makes an entry of :attr:`Plugin.wants`."""

    CLIENT = Role.CLIENT
    BROKER = Role.BROKER
    LINK = Role.LINK
    PEER = Role.PEER

    # There is one of each; that of Enum is a function in Python, which costs more than the look-up it is for.
    __hash__ = object.__hash__


STAMP_PROPERTY = "ildm-retained"
"""User property of a stamp; its value is ``MILLISECONDS:NODE``, and ``:sync`` after it in a repetition."""


class Injections(NamedTuple):
    """What a node publishes into its broker for its algorithm, in messages since it has started."""

    given: int
    """All."""
    taken: int
    """Those of them that wait here no more: the broker has acknowledged them, or they were sent at QoS 0, or
    dropped and counted. As brokers take them in order, these are the first ones, as a rule."""


class Stamp(NamedTuple):
    """When and where a retained message entered the network; of two on a topic the greater is newer.

    A hybrid logical clock: milliseconds of Unix time, but always later than what the node had seen. Between
    nodes it travels in the user property :data:`STAMP_PROPERTY`.
    """

    time: int
    node: str

    def text(self, repeated: bool = False) -> str:
        """Value of the user property."""
        return f"{self.time}:{self.node}" + (":sync" if repeated else "")

    @classmethod
    def of(cls, message: Publish) -> Stamp | None:
        """The stamp a message carries."""
        for name, value in message.properties.get(Property.USER_PROPERTY, ()):
            if name == STAMP_PROPERTY:
                return cls.parse(value)[0]
        return None

    @classmethod
    def parse(cls, text: str) -> tuple[Stamp | None, bool]:
        """Value of the user property -> the stamp, None if it is none, and whether it is a repetition."""
        time, _, rest = text.partition(":")
        node, _, mark = rest.partition(":")
        if time.isascii() and time.isdecimal() and len(time) < 20 and node:
            return cls(int(time), node), mark == "sync"
        return None, False


class Peer(NamedTuple):
    """A node as others reach it."""

    node_id: str
    address: str
    """``HOST:PORT`` of its link listener, as the node advertises it (``link.advertise``); empty if it cannot
    be dialed."""


class SendResult(Enum):
    """What became of data handed to :meth:`NodeApi.send`; only OK is true."""

    OK = "ok"
    """It waits, or is on its way. Whether it arrives is not said."""
    FULL = "full"
    """There is no room in the queue for that node, or no link to be had. :meth:`Algorithm.on_writable`
    tells when the queue of a link has room again."""
    TOO_LARGE = "too large"
    """Larger than ``link.packet_size``: it will never go."""
    SELF = "self"
    """The receiver is this very node."""

    def __bool__(self) -> bool:
        return self is SendResult.OK


class Unreachable(StrEnum):
    """Why a node is reported with :meth:`OverlayAlgorithm.on_unreachable`."""

    REFUSED = "refused"
    """Nothing listens at its address: its process has ended."""
    NO_ANSWER = "no answer"
    """Nothing came back in time, on the way to it or on its link: it is dead, slow, or cut off."""
    LOST = "lost"
    """Its link broke, or the connection that was to become one."""
    OTHER_NODE = "other node"
    """Another node, or another program, answers at its address."""
    REJECTED = "rejected"
    """It is there and does not want a link: another algorithm, secret or version, or it is full."""
    NO_ADDRESS = "no address"
    """Its address is none that could be dialed."""


class Reject(NamedTuple):
    """A filter's decision that a message, a subscription or a client is not to pass.

    A reason that is not possible in the answer due (PUBACK and PUBREC, SUBACK, CONNACK: MQTT 5, 2.4)
    becomes "implementation specific error" (0x83) and counts as a failure of the plugin.
    """

    reason: ReasonCode | None = None
    """None: payload format invalid (0x99) for a message, not authorized (0x87) otherwise. Before MQTT 5: a
    message is acknowledged all the same, a SUBACK has 0x80 (in MQTT 3.1, which has no code for it, the QoS
    asked for), a CONNACK the return code nearest to it."""
    text: str = ""
    """Reason string for the client (MQTT 5) and the log."""


Decision = TypeVar("Decision")


class Deferred(Generic[Decision]):
    """A decision that is still to come, returned by a filter in the decision's place.

    What the same client sends after the packet waits behind it, unread beyond a buffer, so its order is
    kept; also the end of its connection, but not for longer than one decision may take. One object may be
    the answer to several questions, as for all entries of a SUBSCRIBE: its decision is that on each. If it
    has not come within ``limits.decision_timeout`` :attr:`Filter.on_error` decides.
    """

    __slots__ = ("_decision", "_told")

    def __init__(self) -> None:
        self._decision: tuple[Decision] | None = None
        self._told: dict[Callable[[Decision], None], None] = {}

    @property
    def decided(self) -> bool:
        return self._decision is not None

    def decide(self, decision: Decision) -> None:
        """Give the decision, from a timer, :meth:`NodeApi.offload`, or any hook.

        Raises:
            PluginError: it was given before.
        """
        if self._decision is not None:
            raise PluginError("this was decided before")
        self._decision = (decision,)
        told, self._told = self._told, {}
        for callback in told:
            callback(decision)

    def when_decided(self, callback: Callable[[Decision], None]) -> None:
        """For the node: be told, at once if the decision is there."""
        if self._decision is not None:
            callback(self._decision[0])
        else:
            self._told[callback] = None

    def forget(self, callback: Callable[[Decision], None]) -> None:
        """For the node: whom nobody need tell any more."""
        self._told.pop(callback, None)

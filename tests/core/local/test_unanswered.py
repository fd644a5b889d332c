"""What is kept of messages that the broker answers out of order."""

from __future__ import annotations

from ildm.core.local.unanswered import Unanswered
from ildm.mqtt import Publish


def test_while_one_message_is_never_answered_nothing_is_kept_of_those_that_are() -> None:
    unanswered = Unanswered()
    for packet_id in (1, 2):
        unanswered.add_run(b"t", b"%04d" % packet_id, 4, (packet_id,))
    assert unanswered.answer(2, 1, taken=True) == []
    assert unanswered.release() == [(b"t", b"0002", 4)]
    for packet_id in range(3, 1003, 2):
        unanswered.add_run(b"t", b"%04d" % packet_id, 4, (packet_id,))
        unanswered.add(Publish(topic="t", qos=2, packet_id=packet_id + 1), None, 4)
        for answered in (packet_id, packet_id + 1):
            assert len(unanswered.answer(answered, 2 - answered % 2, taken=True) or ()) == 1
    assert unanswered.messages == 1
    assert list(unanswered._places or ()) == [1]
    assert unanswered.answer(1, 1, taken=True) == [(b"t", b"0001", 4)]
    assert not unanswered

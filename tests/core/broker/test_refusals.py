"""CONNACK codes that refuse the node's own session, in words."""

import pytest

from ildm.core.broker.refusals import own_session_refused, refused_in_every_version
from ildm.testing.virtual.world import World
from tests.support.site import row


@pytest.mark.parametrize("code", [0x04, 0x05, 0x86, 0x87])
def test_a_refused_account_names_the_key(code: int) -> None:
    said = own_session_refused(code)
    assert f"0x{code:02X}" in said
    assert "broker.username" in said


@pytest.mark.parametrize("code", [0x02, 0x85])
def test_a_refused_client_identifier_names_the_nodes_own(code: int) -> None:
    assert "client identifier not valid" in own_session_refused(code)
    assert "ildm-" in own_session_refused(code)


def test_an_unknown_code_is_told_as_one() -> None:
    assert own_session_refused(0xFE).endswith("0xFE: a code that MQTT does not name")


def test_a_broker_that_hangs_up_is_told_from_one_that_answers() -> None:
    assert refused_in_every_version(None).endswith("in no version: no CONNACK came")
    assert refused_in_every_version(0x84).endswith("code 0x84: unsupported protocol version")


@pytest.mark.parametrize("code", [5, 0x87])
def test_the_node_says_why_its_session_was_refused(code: int) -> None:
    world = World()
    (site,) = row(world, "a", "sf")
    site.broker.refuse_with = code
    site.broker.crash()
    world.run(30)
    reason = site.node.reach.down_reason
    assert reason is not None
    assert f"0x{code:02X}" in reason
    assert "broker.username" in reason

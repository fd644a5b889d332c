"""What has come is told to the next life, whatever was done with it since."""

from __future__ import annotations

import pytest

from ildm.core.spool import Delivery
from tests.state.spool.lives import Lives, Settings, record


@pytest.mark.parametrize("mode", ["process", "power"])
@pytest.mark.parametrize("snapshots", [0, 1, 2])
def test_identities_of_what_was_freed_are_told_until_a_snapshot_has_them(snapshots: int, mode: str) -> None:
    """The first snapshot is of before the record, as the node takes one when it starts."""
    lives = Lives(Settings(mode=mode))
    spool = lives.spool
    if snapshots:
        spool.snapshot = lambda: b"nothing yet"
    for _ in range(2 * snapshots):
        spool.commit()
        lives.run(0.1)
    sent = record(1)
    lsn = spool.append(sent, [Delivery("injection/0", 1, held=True)])
    spool.commit()
    lives.run(0.1)
    spool.consumer("injection/0").free(lsn, 0, 1)
    spool.commit()
    lives.run(0.1)
    after = lives.kill()
    assert after.restored == (b"nothing yet" if snapshots else b"")
    assert list(after.identities()) == [(sent.identity, 1)]

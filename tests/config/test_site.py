"""Members of a site: what a configuration has to say of them, and what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from ildm.config import Config, ConfigError, parse_config
from ildm.state.lock import DirectoryLock

PAIR = {"id": "plant", "members": ["a", "b"], "member": "a"}


def parsed(**document: object) -> Config:
    return parse_config(document, "c.yaml", Path("/d"))


def test_members_have_the_name_of_their_site_and_an_admin_socket_each() -> None:
    config = parsed(algorithm="sf", site=PAIR)
    assert config.node_id == "plant"
    assert config.admin_socket == Path("/d/ildm-state/admin-a.sock")
    other = parsed(algorithm="sf", site={**PAIR, "member": "b"}, node_id="plant")
    assert other.admin_socket == Path("/d/ildm-state/admin-b.sock")
    assert other.state_dir == config.state_dir


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"site": {**PAIR, "member": "c"}}, "site: member c is none of them: a, b"),
        ({"site": {**PAIR, "member": None}}, "site: member is missing: a, b"),
        ({"site": {**PAIR, "id": None}}, "site: id: members need a name that they share"),
        ({"site": {**PAIR, "members": ["a"]}}, "site: members: one alone needs no others"),
        ({"site": {**PAIR, "members": ["a", "a"]}}, "site: members: each has a name of its own"),
        ({"site": {**PAIR, "members": [f"m{n}" for n in range(17)]}}, "site.members: "),
        ({"site": {**PAIR, "members": ["a", "b c"]}}, "site.members.1: "),
        ({"site": {"id": "plant"}}, "site: id is without effect unless members names two or more"),
        ({"site": {"member": "a"}}, "site: member is without effect unless members names two or more"),
        ({"site": {**PAIR, "claim_after": "50ms"}}, "site.claim_after: "),
        ({"site": {**PAIR, "fence": "ask"}}, "site.fence: "),
        ({"site": PAIR, "node_id": "other"}, "node_id: leave it out, or write plant as in site.id"),
        ({"site": PAIR, "algorithm": None}, "site.members: nodes without an algorithm own nothing"),
        ({"site": PAIR, "spool": {"mode": "off"}}, "spool.mode: with off nothing that is acknowledged"),
    ],
)
def test_what_cannot_be_is_refused_and_named(document: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parsed(**{"algorithm": "sf", **document})
    assert expected in str(refused.value)


def test_a_lock_in_a_place_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"state_dir: .* cannot be used"):
        DirectoryLock(tmp_path / "file")

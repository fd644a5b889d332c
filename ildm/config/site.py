"""The site that a node belongs to: the nodes before its broker, and what leaves and enters it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ildm.config.errors import ConfigError
from ildm.config.rules import NodeId, SiteRules
from ildm.config.section import IN_SECONDS, Section

MOST_MEMBERS = 16


class SiteConfig(Section):
    """What leaves this site and enters it in an overlay, whoever is at the other end, and its members."""

    rules: SiteRules = []
    """The first rule that matches decides, the rest is denied; empty: everything may. For links in a tree see
    ``link.rules``."""
    id: NodeId | None = None
    """Name of the site among all sites: the ``node_id`` of each of its members."""
    members: Annotated[list[NodeId], Field(max_length=MOST_MEMBERS)] = []
    """Nodes before the broker of this site that share ``state_dir``; one at a time owns the site, the others
    stand by."""
    member: NodeId | None = None
    """Which of them this one is."""
    serve: Literal["owner", "all"] = "owner"
    """Who serves clients: the owner alone, or ``all`` members, each at addresses of its own. What crosses
    goes through the owner then, over a unix socket in ``state_dir``."""
    claim_after: Annotated[float, IN_SECONDS, Field(ge=0.2, le=3600)] = 1.0
    """An owner that gives no sign of life for so long is ended and followed by another member."""
    fence: Literal["kill", "wait"] = "kill"
    """What is done with an owner that stands still: ``kill`` ends its process, ``wait`` waits for it."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.members:
            for key in ("id", "member"):
                if getattr(self, key) is not None:
                    raise ValueError(f"{key} is without effect unless members names two or more")
            if self.serve != "owner":
                raise ValueError("serve: all is without effect unless members names two or more")
            return self
        if len(set(self.members)) < len(self.members):
            raise ValueError("members: each has a name of its own")
        if len(self.members) == 1:
            raise ValueError("members: one alone needs no others to wait for it: name two or more")
        if self.id is None:
            raise ValueError("id: members need a name that they share, which neighbours know")
        if self.member not in self.members:
            given = "is missing" if self.member is None else f"{self.member} is none of them"
            raise ValueError(f"member {given}: {', '.join(self.members)}")
        return self


def refuse_site_rules(site: SiteConfig, *, has_overlay: bool) -> None:
    """For a node that is in no overlay.

    Raises:
        ConfigError: there are rules for its site.
    """
    if site.rules and not has_overlay:
        raise ConfigError(
            "site.rules: they are for overlays (such as sg_tbps); what crosses a tree of links (pf, sf) "
            "stands in link.rules"
        )

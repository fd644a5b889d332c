"""One node: all sections of the file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from ildm.address import Address
from ildm.config.broker import BrokerConfig
from ildm.config.limits import LimitsConfig
from ildm.config.link import LinkConfig
from ildm.config.rules import PublishRule
from ildm.config.section import Section
from ildm.config.site import SiteConfig
from ildm.config.spool import SpoolConfig
from ildm.config.transports import ListenerConfig, PlainAddress
from ildm.config.watching import (
    TOKEN_NAME,
    AdminConfig,
    DashboardConfig,
    LogConfig,
    MetricsConfig,
    TraceConfig,
)


class PluginChoice(Section):
    """A plugin, with its options."""

    name: str
    """Of an installed plugin."""
    options: dict[str, Any] = {}
    """What it takes; in the file they stand beside the name."""


def _plugin_choice(value: object) -> object:
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, dict) and "name" in value:
        rest = {k: v for k, v in value.items() if k != "name"}
        return {"name": value["name"], "options": rest}
    return value


Choice = Annotated[PluginChoice, BeforeValidator(_plugin_choice)]


class Config(Section):
    """One node."""

    node_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")] | None = None
    """Identifier among all nodes; by default one is made and kept in the state directory."""
    state_dir: Path = Path("ildm-state")
    """What survives a restart: identity, neighbours added at run time, interest of persistent sessions."""
    listen: PlainAddress = Address("127.0.0.1", 1883)
    """Where local clients connect to; with ``listeners`` only if it is given, too."""
    listeners: list[ListenerConfig] = []
    """More such places, each with its transport."""
    broker: BrokerConfig = BrokerConfig()
    """The local broker."""
    algorithm: Choice | None = None
    """Cooperation algorithm; null relays only."""
    filters: list[Choice] = []
    """Filters that PUBLISH messages pass in this order. Each is an installed plugin's name, or a mapping of
    name and options."""
    publish: list[PublishRule] = []
    """What local clients may send to other sites: the first rule that matches decides; none: it may cross."""
    site: SiteConfig = SiteConfig()
    """What leaves this site and enters it in an overlay, and several nodes before its broker."""
    link: LinkConfig = LinkConfig()
    """Links with neighbour nodes."""
    spool: SpoolConfig = SpoolConfig()
    """What is acknowledged and not had by others yet."""
    limits: LimitsConfig = LimitsConfig()
    """Bounds of what local clients can make the node hold."""
    admin: AdminConfig = AdminConfig()
    """The admin API."""
    metrics: MetricsConfig = MetricsConfig()
    """Metrics and health over HTTP."""
    dashboard: DashboardConfig = DashboardConfig()
    """Pages for people, in a browser."""
    trace: TraceConfig = TraceConfig()
    """Where traces of messages go."""
    log: LogConfig = LogConfig()
    """The log, on standard error."""

    @model_validator(mode="before")
    @classmethod
    def _named_by_its_site(cls, document: Any) -> Any:
        """Members of a site have its name."""
        if not isinstance(document, dict) or document.get("node_id") is not None:
            return document
        site = document.get("site")
        name = site.get("id") if isinstance(site, dict) else None
        return document if name is None else {**document, "node_id": name}

    @model_validator(mode="after")
    def _members_keep_what_they_acknowledge(self) -> Config:
        if not self.site.members:
            return self
        if self.node_id != self.site.id:
            raise ValueError(f"node_id: leave it out, or write {self.site.id} as in site.id")
        if self.algorithm is None:
            raise ValueError(
                "site.members: nodes without an algorithm own nothing: any number of them serves before one "
                "broker, without this key"
            )
        if self.spool.mode == "off":
            raise ValueError(
                "spool.mode: with off nothing that is acknowledged is with the other members of site.members"
            )
        return self

    @model_validator(mode="after")
    def _links_need_an_algorithm(self) -> Config:
        if self.algorithm is None and self.link.neighbors:
            raise ValueError("link.neighbors is without effect unless algorithm names one, such as sf")
        if self.algorithm is None and self.link.discover:
            raise ValueError("link.discover is without effect unless algorithm names one, such as sf")
        return self

    @model_validator(mode="after")
    def _neighbors_are_others(self) -> Config:
        for index, each in enumerate(self.link.neighbors):
            if each.id is not None and each.id == self.node_id:
                raise ValueError(f"link.neighbors.{index}.id: {each.id} is the node_id of this node")
        return self

    @model_validator(mode="after")
    def _spool_has_a_directory(self) -> Config:
        spool, state = (path.absolute() for path in (self.spool_directory, self.state_dir))
        spool, state = Path(os.path.normpath(spool)), Path(os.path.normpath(state))
        if spool == state or spool in state.parents:
            raise ValueError(f"spool.directory: {spool} holds state_dir, {state}: name another one")
        return self

    @model_validator(mode="after")
    def _listeners_differ(self) -> Config:
        seen: set[str] = set()
        for _, each in self.clients_at:
            if each.label in seen:
                raise ValueError(f"listeners: there are two with the name {each.label}")
            seen.add(each.label)
        return self

    @property
    def clients_at(self) -> list[tuple[str, ListenerConfig]]:
        """All that clients connect to, each with its key in the file."""
        found = [(f"listeners.{index}", each) for index, each in enumerate(self.listeners)]
        if "listen" in self.model_fields_set or not found:
            found.insert(0, ("listen", ListenerConfig(url=self.listen, name="listen")))
        return found

    @property
    def clients_text(self) -> str:
        """The same for people."""
        return ", ".join(str(each.url) for _, each in self.clients_at)

    @property
    def admin_socket(self) -> Path:
        member = self.site.member
        return self.admin.socket or self.state_dir / (f"admin-{member}.sock" if member else "admin.sock")

    @property
    def pair_address(self) -> Address:
        """Where the owner of a site listens for the other members, whose clients it serves as well."""
        return Address(str(self.state_dir / "pair.sock"), 0, "unix")

    @property
    def dashboard_token(self) -> Path:
        """File of what the dashboard demands."""
        return self.dashboard.token_file or self.state_dir / TOKEN_NAME

    @property
    def spool_directory(self) -> Path:
        return self.spool.directory or self.state_dir / "spool"

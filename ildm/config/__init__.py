"""The configuration file: one YAML document, checked as a whole before anything starts.

Each section has a module of its own; :mod:`ildm.config.loading` reads the file and puts them together.
"""

from ildm.address import Address, parse_address
from ildm.config.broker import BrokerConfig
from ildm.config.classes import LinkClass, refuse_classes
from ildm.config.errors import ConfigError, unknown_or
from ildm.config.limits import LimitsConfig
from ildm.config.link import LinkConfig, LookupConfig, advertised_address, required_address
from ildm.config.loading import load_config, parse_config
from ildm.config.node import Config, PluginChoice
from ildm.config.rules import (
    NeighborConfig,
    PublishRule,
    TopicRule,
    refuse_rules,
)
from ildm.config.secret import SHORT_SECRET, read_secret
from ildm.config.section import Section
from ildm.config.site import SiteConfig, refuse_site_rules
from ildm.config.spool import SpoolConfig
from ildm.config.transports import LinkAddress, LinkTls, ListenerConfig
from ildm.config.watching import AdminConfig, DashboardConfig, LogConfig, MetricsConfig, TraceConfig

__all__ = [
    "SHORT_SECRET",
    "Address",
    "AdminConfig",
    "BrokerConfig",
    "Config",
    "ConfigError",
    "DashboardConfig",
    "LimitsConfig",
    "LinkAddress",
    "LinkClass",
    "LinkConfig",
    "LinkTls",
    "ListenerConfig",
    "LogConfig",
    "LookupConfig",
    "MetricsConfig",
    "NeighborConfig",
    "PluginChoice",
    "PublishRule",
    "Section",
    "SiteConfig",
    "SpoolConfig",
    "TopicRule",
    "TraceConfig",
    "advertised_address",
    "load_config",
    "parse_address",
    "parse_config",
    "read_secret",
    "refuse_classes",
    "refuse_rules",
    "refuse_site_rules",
    "required_address",
    "unknown_or",
]

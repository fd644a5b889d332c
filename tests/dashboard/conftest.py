"""Nodes with a dashboard, and browsers without a screen."""

from __future__ import annotations

from tests.net.transport.conftest import pki
from tests.sites.conftest import Sites, sites

__all__ = ["Sites", "pki", "sites"]

"""The command line is tested against the same fake node as the admin API."""

from tests.admin.conftest import node, socket_path, view

__all__ = ["node", "socket_path", "view"]

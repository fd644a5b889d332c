"""The command line ``ildm``, and how it shows what a node answers."""

from ildm.cli.app import main

__all__ = ["main"]

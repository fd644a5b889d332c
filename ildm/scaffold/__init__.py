"""``ildm plugin new``: a package with one working plugin, its configuration and its tests."""

from ildm.scaffold.package import KINDS, Kind, Names, ScaffoldError, create_package, named, rendered

__all__ = ["KINDS", "Kind", "Names", "ScaffoldError", "create_package", "named", "rendered"]

"""Tells which Python packages a directory holds besides ILDM, and under which licence each says it is."""

from __future__ import annotations

import sys
from importlib.metadata import Distribution, distributions


def licence(package: Distribution) -> str:
    """An SPDX expression where the package has one, else what its classifiers say, else its own words."""
    said = package.metadata
    classified = [
        line.split(" :: ")[-1] for line in said.get_all("Classifier", []) if line.startswith("License")
    ]
    found = said.get("License-Expression") or ", ".join(classified) or said.get("License", "").split("\n")[0]
    if not found:
        sys.exit(f"{package.name} {package.version} does not say under which licence it is")
    return found


for each in sorted(distributions(path=[sys.argv[1]]), key=lambda each: each.name.lower()):
    if each.name != "ildm":
        print(f"{each.name} {each.version}: {licence(each)}")

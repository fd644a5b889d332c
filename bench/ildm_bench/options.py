"""Options that several commands of ``ildm-bench`` have; defaults are those of the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RESULTS = Path("bench-results")
LOCAL = "local[*]"
"""Spark within the process."""

OutOption = Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory of the results.")]
MasterOption = Annotated[str, typer.Option(metavar="URL", help="Spark master, such as spark://host:7077.")]

"""Golden transcripts: what a run has to look like, line by line."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

TRANSCRIPTS = Path(__file__).parent.parent / "transcripts"


def check_transcript(name: str, lines: Iterable[str]) -> None:
    """Compare with the golden transcript; ``ILDM_REWRITE=1`` writes it anew."""
    path = TRANSCRIPTS / f"{name}.txt"
    text = "\n".join(lines) + "\n"
    if os.environ.get("ILDM_REWRITE") == "1":
        path.write_text(text)
    assert text == path.read_text()

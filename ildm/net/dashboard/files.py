"""The pages: files of this package, read once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

PAGES = Path(__file__).parent / "pages"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
START = "index.html"


class File(NamedTuple):
    content: bytes
    kind: str
    tag: str
    """Changes with the content."""


def read_files() -> dict[str, File]:
    """Path of the URL -> file."""
    found = {}
    for path in sorted(PAGES.rglob("*")):
        kind = TYPES.get(path.suffix)
        if kind is not None:
            content = path.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
            name = path.relative_to(PAGES).as_posix()
            found["/" if name == START else f"/{name}"] = File(content, kind, tag)
    return found

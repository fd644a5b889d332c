"""Reading pages back: a parser that complains about what browsers silently repair."""

from __future__ import annotations

import subprocess
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "link", "br", "hr", "img", "input"}
REFERENCES = {"src", "href", "xlink:href", "srcset", "action", "data", "poster", "background"}


class Page(HTMLParser):
    """Elements of a page, checked while they are read: each one closed, in the right order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert "svg" in self.open, f"<{tag}/> does not close an element outside of SVG"
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.words.append((self.open[-1] if self.open else "", " ".join(data.split())))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def texts(self, tag: str) -> list[str]:
        return [text for name, text in self.words if name == tag]

    @property
    def text(self) -> str:
        """What the page says, styles not included."""
        return "\n".join(text for name, text in self.words if name != "style")

    @property
    def references(self) -> list[str]:
        """What the page points to."""
        return [
            value
            for _, attributes in self.elements
            for name, value in attributes.items()
            if name in REFERENCES
        ]


def read_page(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def browse(chromium: str, page: Path, profile: Path, *options: str) -> tuple[str, list[str]]:
    """What the browser prints, and the lines that the page left on its console."""
    done = subprocess.run(
        [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--window-size=1100,1400",
            "--enable-logging=stderr",
            f"--user-data-dir={profile}",
            *options,
            page.as_uri(),
        ],
        capture_output=True,
        check=True,
        text=True,
        timeout=300,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]

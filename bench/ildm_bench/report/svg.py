"""Pictures: PNG beside the page, and SVG that can stand inside of it."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from matplotlib.figure import Figure

_NAMESPACE = re.compile(r"^\{[^}]*\}")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_FONT = re.compile(r"\s*font-family:[^;]*;?")
_NOTHING = {"Date": None, "Creator": None, "Format": None, "Type": None}


@dataclass(frozen=True)
class Picture:
    """A figure with its words. ``name`` is the PNG's without suffix and unique on a page."""

    name: str
    title: str
    description: str
    caption: str
    figure: Figure


def write_png(picture: Picture, directory: Path) -> Path:
    """Write the picture as PNG into the directory."""
    path = directory / f"{picture.name}.png"
    picture.figure.savefig(path, format="png", metadata={"Title": picture.title, "Software": None})
    return path


def settle(picture: Picture) -> None:
    """Decide once where things go: with a layout engine each file would draw and lay out all over again."""
    engine = picture.figure.get_layout_engine()
    if engine is not None:
        engine.execute(picture.figure)
        picture.figure.set_layout_engine("none")


def inline_svg(picture: Picture) -> str:
    """The picture as element for the inside of a page: no prolog, ids that no other picture has."""
    stream = io.BytesIO()
    picture.figure.savefig(stream, format="svg", metadata=_NOTHING)
    root = ElementTree.fromstring(stream.getvalue())
    used = _used_ids(root)
    for element in root.iter():
        _clean(element, picture.name, used)
    for parent in root.iter():
        # A style sheet inside would hold for the whole page.
        for child in [c for c in parent if c.tag == "style"]:
            parent.remove(child)
        parent.text, parent.tail = _trim(parent.text), _trim(parent.tail)
    size = root.get("viewBox", "")
    root.attrib.clear()
    root.attrib.update(
        {
            "viewBox": size,
            "role": "img",
            "aria-labelledby": f"{picture.name}-title {picture.name}-desc",
            "stroke-linejoin": "round",
        }
    )
    for place, (tag, text) in enumerate((("title", picture.title), ("desc", picture.description))):
        words = ElementTree.Element(tag, {"id": f"{picture.name}-{tag}"})
        words.text = text
        root.insert(place, words)
    return ElementTree.tostring(root, encoding="unicode")


def _used_ids(root: ElementTree.Element) -> set[str]:
    used = set()
    for element in root.iter():
        for key, value in element.attrib.items():
            if key.endswith("href"):
                used.add(value.removeprefix("#"))
            used.update(_REFERENCE.findall(value))
    return used


def _clean(element: ElementTree.Element, prefix: str, used: set[str]) -> None:
    element.tag = _NAMESPACE.sub("", element.tag)
    attributes = dict(element.attrib)
    element.attrib.clear()
    for full, value in attributes.items():
        key = _NAMESPACE.sub("", full)
        if key == "id":
            if value in used:
                element.set("id", f"{prefix}-{value}")
        elif key == "href":
            element.set("href", f"#{prefix}-{value.removeprefix('#')}")
        elif key == "d":
            element.set("d", " ".join(_NUMBER.sub(_rounded, value).split()))
        elif key == "transform" and value.startswith("rotate(-0 "):
            continue
        else:
            renamed = _REFERENCE.sub(rf"url(#{prefix}-\1)", value)
            element.set(key, _FONT.sub("", _NUMBER.sub(_rounded, renamed)))


def _rounded(match: re.Match[str]) -> str:
    # A hundredth of a point cannot be seen; the page is a third smaller.
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".")


def _trim(text: str | None) -> str | None:
    return text if text and text.strip() else None

"""Draws the pictures of the README anew: ``python -m tests.dashboard.pictures [SECONDS [DIRECTORY]]``.

The pages are those of the tree that this file is of, whichever is installed.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

from tests.dashboard.chromium import chromium
from tests.dashboard.scene import Scene

TREE = Path(__file__).resolve().parents[2]
PICTURES = TREE / "ildm" / "net" / "dashboard" / "pictures"
LARGEST = 150_000
"""Bytes of one."""
SIGHTS = (("three-sites.png", 1280, 1010, "light"), ("narrow.png", 390, 1400, "dark"))
"""File, width, height, colours."""


def use_this_tree() -> None:
    """For processes started from now on: nodes run in directories of their own, where Python would find what
    is installed."""
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TREE), str(TREE / "algorithms"), *filter(None, others)])


def busy(scene: Scene) -> None:
    """A plant: sensors at each site, screens that show those of all."""
    for index, site in enumerate(("osaka", "kyoto", "tokyo")):
        scene.client(index, f"screen-{site}", ("plant/#", 1), ("alarm/#", 2))
        lines = [f"plant/{site}/line-{line}" for line in range(4)]
        topics = [f"{line}/{what}" for line in lines for what in ("temperature", "speed")]
        scene.keep_busy(index, f"sensors-{site}", topics, (38, 21, 14)[index])
        client = scene.client(index, f"gateway-{site}", (f"plant/{site}/+/command", 1))
        for line in lines:
            client.publish(f"{line}/state", "running", 1, retain=True)


def save(picture: bytes, path: Path) -> None:
    """With a palette, as what is shown has few colours."""
    image = Image.open(io.BytesIO(picture)).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    path.parent.mkdir(exist_ok=True)
    image.save(path, optimize=True)
    assert path.stat().st_size <= LARGEST, f"{path} has {path.stat().st_size} bytes"


def main(seconds: float, directory: Path) -> None:
    use_this_tree()
    print(f"the pages of {TREE}, into {directory}")
    with tempfile.TemporaryDirectory() as temporary:
        scene = Scene(Path(temporary), ["osaka", "kyoto", "tokyo"])
        with scene, chromium() as browser:
            busy(scene)
            time.sleep(seconds * 0.75)
            scene.nodes[2].kill()
            time.sleep(seconds * 0.25)
            for name, width, height, colours in SIGHTS:
                context = browser.new_context(
                    viewport={"width": width, "height": height}, color_scheme=colours, reduced_motion="reduce"
                )
                page = context.new_page()
                page.on("console", lambda message: print("console:", message.text))
                page.on("pageerror", lambda error: print("error:", error))
                page.goto(scene.address())
                page.wait_for_selector("#clients table, #panel-clients td")
                page.wait_for_timeout(4500)  # the rates are of some seconds
                save(page.screenshot(), directory / name)
                context.close()


if __name__ == "__main__":
    main(
        float(sys.argv[1]) if len(sys.argv) > 1 else 60.0,
        Path(sys.argv[2]) if len(sys.argv) > 2 else PICTURES,
    )

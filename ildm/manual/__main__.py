"""``python -m ildm.manual DIRECTORY`` writes the pages there: ``ildm.1`` and ``ildm.yaml.5``."""

from __future__ import annotations

import os
import sys
from datetime import UTC, date, datetime
from pathlib import Path

from ildm.manual import commands, configuration

PAGES = {"ildm.1": commands.page, "ildm.yaml.5": configuration.page}


def day() -> date:
    """Of the pages: what SOURCE_DATE_EPOCH (seconds) says, so that they can be made again alike; or today."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return datetime.fromtimestamp(int(given), UTC).date() if given else datetime.now(UTC).date()


def main() -> int:
    if len(sys.argv) != 2:  # the program and one argument
        print("usage: python -m ildm.manual DIRECTORY", file=sys.stderr)
        return 2
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (directory / name).write_text(page(day()), encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())

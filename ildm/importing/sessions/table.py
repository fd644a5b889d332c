"""Sessions of any broker, as lines ``client,filter,qos`` (CSV, RFC 4180)."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from ildm.importing.sessions.found import Found, SourceError, read_file

MAX_BYTES = 64 << 20
HEADER = ["client", "filter", "qos"]
"""May stand in the first line."""


def read_table(path: Path) -> Found:
    """The sessions of a file.

    A line with an empty filter names a session without filters.

    Raises:
        SourceError: a line is none of these; nothing is taken then.
    """
    raw = read_file(path, MAX_BYTES)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SourceError(f"{path}: line {line}: no UTF-8") from None
    found = Found(str(path))
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in lines:
            where = f"line {lines.line_num}"
            if not row or (lines.line_num == 1 and row == HEADER):
                continue
            if len(row) != len(HEADER):
                raise found.wrong(where, f"expected {','.join(HEADER)}, found {len(row)} fields")
            client_id, topic_filter, qos = row
            if not topic_filter and not qos:
                found.session(where, client_id)
            elif qos in ("0", "1", "2"):
                found.add(where, client_id, topic_filter, int(qos))
            else:
                raise found.wrong(where, f"QoS {qos[:20]!r}: expected 0, 1 or 2")
    except csv.Error as error:
        raise found.wrong(f"line {lines.line_num}", str(error)) from None
    return found

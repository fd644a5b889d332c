"""The tree that a trace reports, on its way from the nodes that the query has reached to the origin."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import Any

from ildm_algorithms.overlay.wire.messages import OverlayError

__all__ = ["TREE_BYTES_PER_NODE", "read_tree", "write_tree"]

TREE_BYTES_PER_NODE = 64
"""What a node in a tree is taken to need."""
_COUNTS = Struct(">HHHH")
"""Of a node: length of its id, depth, keys, children."""


def write_tree(node_id: str, depth: int, keys: Sequence[bytes], below: Sequence[bytes]) -> bytes:
    """The tree of a node, with the trees of those it has handed parts on to."""
    name = node_id.encode()
    counts = _COUNTS.pack(len(name), depth, min(len(keys), 0xFFFF), len(below))
    parts = [len(key).to_bytes(2, "big") + key for key in keys[:0xFFFF]]
    return b"".join((counts, name, *parts, *below))


def read_tree(data: bytes) -> dict[str, Any]:
    """The tree that :func:`write_tree` wrote, node before children; raises OverlayError."""
    root: dict[str, Any] = {"children": []}
    above: list[tuple[dict[str, Any], int]] = [(root, 1)]
    at = 0
    try:
        while above:
            parent, missing = above.pop()
            if not missing:
                continue
            above.append((parent, missing - 1))
            length, depth, count, children = _COUNTS.unpack_from(data, at)
            at += _COUNTS.size
            name = data[at : at + length].decode()
            at += length
            keys = []
            for _ in range(count):
                start, at = at + 2, at + 2 + int.from_bytes(data[at : at + 2], "big")
                keys.append(data[start:at])
            node: dict[str, Any] = {"node": name, "keys": keys, "depth": depth, "children": []}
            parent["children"].append(node)
            above.append((node, children))
    except (error, UnicodeDecodeError) as cause:
        raise OverlayError("the tree of a trace is malformed") from cause
    result: dict[str, Any] = root["children"][0]
    return result

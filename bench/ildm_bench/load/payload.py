"""What a message of the load carries: who sent it, its number and two times, in 32 bytes.

Little-endian: magic (2 bytes), topic (2), publisher (4), sequence number (8), intended time (8),
time of sending (8); zeros up to the size of the scenario. Times are nanoseconds of the coordinator.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

MAGIC = 0x4C49
LAYOUT = struct.Struct("<HHIQqq")
DTYPE = np.dtype(
    [
        ("magic", "<u2"),
        ("topic", "<u2"),
        ("publisher", "<u4"),
        ("seq", "<u8"),
        ("intended_ns", "<i8"),
        ("sent_ns", "<i8"),
    ]
)
SIZE = LAYOUT.size
assert DTYPE.itemsize == SIZE


_BYTES = np.arange(SIZE)


def decode(payloads: NDArray[np.uint8]) -> NDArray[np.void]:
    """Records of :data:`DTYPE` from an array of shape (messages, at least 32)."""
    return np.ascontiguousarray(payloads[:, :SIZE]).view(DTYPE).reshape(-1)


def decode_at(data: NDArray[np.uint8], places: NDArray[np.int64]) -> NDArray[np.void]:
    """Records of :data:`DTYPE` from bytes, of which each of ``places`` begins 32."""
    rows: NDArray[np.uint8] = data[places[:, None] + _BYTES]
    return rows.view(DTYPE).reshape(-1)

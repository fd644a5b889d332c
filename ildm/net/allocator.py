"""The C library's allocator, set to what TLS under uvloop does with it."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3


def keep_freed_memory() -> bool:
    """Let glibc keep the buffers that TLS reads into; False where there is no glibc.

    uvloop reads each time into a new object of 256 KiB. As it comes, glibc gives that back to the system at
    once, and the next one costs page faults: 25 us for a message instead of 6.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    # one of them alone changes little
    return bool(mallopt(M_TRIM_THRESHOLD, 16 << 20) and mallopt(M_MMAP_THRESHOLD, 4 << 20))

"""Runs a command as a unit of systemd would: ``confined.py RULES COMMAND...``, with what libseccomp can do.

RULES is JSON: ``allowed`` names of system calls (others give EPERM), ``families`` numbers of address families
(others EAFNOSUPPORT), and ``no_new_code``: no memory is writable and executable, or becomes executable.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import sys
from typing import Any

ALLOW = 0x7FFF0000
ERRNO = 0x00050000
NOT_EQUAL, LESS, EQUAL, GREATER, MASKED = 1, 2, 4, 6, 7  # scmp_compare
PROT_WRITE, PROT_EXEC, SHM_EXEC = 2, 4, 0o100000


class Compare(ctypes.Structure):
    """struct scmp_arg_cmp."""

    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    )


class Filter:
    """What happens to system calls, once it is loaded; several are all asked."""

    def __init__(self, default: int) -> None:
        self._library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._filter = ctypes.c_void_p(self._library.seccomp_init(ctypes.c_uint32(default)))
        assert self._filter.value is not None

    def rule(self, action: int, name: str, *compared: Compare) -> None:
        """Names that this machine does not know are passed over, as systemd does."""
        number = self._library.seccomp_syscall_resolve_name(name.encode())
        if number < 0:
            return
        array = (Compare * len(compared))(*compared)
        self._done(
            self._library.seccomp_rule_add_array(
                self._filter, ctypes.c_uint32(action), number, len(compared), array
            )
        )

    def load(self) -> None:
        self._done(self._library.seccomp_load(self._filter))

    def _done(self, answer: int) -> None:
        if answer != 0:
            raise OSError(-answer, os.strerror(-answer))


def confine(rules: dict[str, Any]) -> None:
    """This process and all it starts; that cannot be taken back."""
    code = Filter(ALLOW)
    if rules["no_new_code"]:
        both = PROT_WRITE | PROT_EXEC
        code.rule(ERRNO | errno.EPERM, "mmap", Compare(2, MASKED, both, both))
        code.rule(ERRNO | errno.EPERM, "mprotect", Compare(2, MASKED, PROT_EXEC, PROT_EXEC))
        code.rule(ERRNO | errno.EPERM, "pkey_mprotect", Compare(2, MASKED, PROT_EXEC, PROT_EXEC))
        code.rule(ERRNO | errno.EPERM, "shmat", Compare(2, MASKED, SHM_EXEC, SHM_EXEC))
    known = rules["families"]
    for family in range(max(known)):
        if family not in known:
            code.rule(ERRNO | errno.EAFNOSUPPORT, "socket", Compare(0, EQUAL, family, 0))
    code.rule(ERRNO | errno.EAFNOSUPPORT, "socket", Compare(0, GREATER, max(known), 0))
    code.load()
    calls = Filter(ERRNO | errno.EPERM)
    for name in rules["allowed"]:
        calls.rule(ALLOW, name)
    calls.load()


if __name__ == "__main__":
    confine(json.loads(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])

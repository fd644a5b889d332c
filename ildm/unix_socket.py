"""Unix sockets that listen: with the right mode from the first moment, in the place of a dead one."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from pathlib import Path

PATH_LIMIT = 107
"""Bytes in the address of a unix socket (sockaddr_un on Linux, less the final zero)."""


def listen_at(path: Path, mode: int, backlog: int) -> socket.socket:
    """Listen on a unix socket whose file has these permissions.

    Raises:
        OSError: a live process listens there, something else than a socket stands there, or the
            path cannot be used.
    """
    if len(os.fsencode(path)) > PATH_LIMIT:
        limit = f"the path is longer than the {PATH_LIMIT} bytes of a unix socket"
        raise OSError(errno.ENAMETOOLONG, limit)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Two nodes that start at once would otherwise both find a stale file, and the second one
        # remove the socket of the first.
        fcntl.flock(directory, fcntl.LOCK_EX)
        if path.is_symlink() or path.exists():
            _remove_stale(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Nobody can connect between bind and listen, so the mode is right before it matters,
            # and the umask, which belongs to the whole process, stays alone.
            listener.bind(str(path))
            path.chmod(mode)
            listener.listen(backlog)
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
        return listener
    finally:
        os.close(directory)


def close_socket(path: Path, inode: tuple[int, int]) -> None:
    """Remove the socket file if it is still the one with this device and inode number."""
    try:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return  # the whole directory was removed meanwhile
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        if _inode(path) == inode:
            path.unlink()
    finally:
        os.close(directory)


def socket_inode(path: Path) -> tuple[int, int] | None:
    """Device and inode number of the socket file, or None."""
    return _inode(path)


def _remove_stale(path: Path) -> None:
    if path.is_symlink() or not path.is_socket():
        raise OSError(errno.EEXIST, "there is a file which is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except TimeoutError:
            pass  # somebody listens, but is busy
    raise OSError(errno.EADDRINUSE, "a running process listens there; is this node started twice?")


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino

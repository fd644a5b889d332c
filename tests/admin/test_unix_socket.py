from __future__ import annotations

import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from ildm.admin.unix_socket import open_socket
from ildm.admin.view import AdminError
from ildm.unix_socket import close_socket, socket_inode


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_only_the_owner_can_use_it_from_the_first_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "made" / "admin.sock"
    at_listen: list[int] = []
    listen = socket.socket.listen

    def spy(self: socket.socket, backlog: int) -> None:
        at_listen.append(mode(path))
        listen(self, backlog)

    monkeypatch.setattr(socket.socket, "listen", spy)
    before = os.umask(0)
    try:
        with open_socket(path):
            assert at_listen == [0o600]
            assert mode(path) == 0o600
            assert mode(path.parent) == 0o700
            assert os.umask(0) == 0  # the process's own setting was left alone
    finally:
        os.umask(before)


def test_a_directory_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with open_socket(tmp_path / "admin.sock"):
        assert mode(tmp_path) == 0o755


def test_the_socket_of_a_dead_process_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    open_socket(path).close()
    assert path.is_socket()
    with open_socket(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_a_live_one_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with open_socket(path):
        with pytest.raises(AdminError, match=rf"{path}: a running process listens there"):
            open_socket(path)
        assert path.is_socket()


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_is_no_socket_stays(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "admin.sock"
    if kind == "file":
        path.write_text("precious")
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AdminError, match="no socket"):
        open_socket(path)
    assert path.is_symlink() or path.exists()


def test_a_path_too_long_for_the_kernel(tmp_path: Path) -> None:
    with pytest.raises(AdminError, match=r"longer than the 107 bytes.*admin\.socket"):
        open_socket(tmp_path / ("x" * 120))


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AdminError, match=r"admin\.sock: .*(exists|directory)"):
        open_socket(tmp_path / "file" / "admin.sock")


def test_of_many_that_start_at_once_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    open_socket(path).close()  # all of them find a stale one
    opened: list[socket.socket] = []
    refused: list[AdminError] = []
    together = threading.Barrier(8)

    def start() -> None:
        together.wait()
        try:
            opened.append(open_socket(path))
        except AdminError as error:
            refused.append(error)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(opened), len(refused)) == (1, 7)
    opened[0].close()


def test_closing_spares_the_socket_of_a_successor(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with open_socket(path):
        inode = socket_inode(path)
        assert inode is not None
        path.rename(tmp_path / "old")  # keeps the inode in use, so the new one differs
        with open_socket(path):
            close_socket(path, inode)
            assert path.is_socket()


def test_closing_where_all_was_removed(tmp_path: Path) -> None:
    path = tmp_path / "state" / "admin.sock"
    with open_socket(path):
        inode = socket_inode(path)
        assert inode is not None
        path.unlink()
        close_socket(path, inode)
        path.parent.rmdir()
        close_socket(path, inode)
    assert socket_inode(path) is None

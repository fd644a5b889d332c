#!/usr/bin/python3
"""Writes a root file system to standard output as a tar archive: this machine's Debian packages as an image.

usage: stand_in.py            the image
       stand_in.py compiler   what a C compiler and Python's headers add to it

No registry of images is needed, and no download: the files are those that the packages installed here have
put down, with all they depend on. One image stands in for every base that docker/ names; what differs
between them (environment, command) is said in `load`.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "python3-venv",
    "mosquitto",
    "mosquitto-clients",
    "rabbitmq-server",
    "activemq",
    "libmqtt-client-java",
    "libhawtdispatch-java",
)
COMPILER = ("gcc", "libc6-dev", "libpython3-dev")
LEFT_OUT = (
    "/usr/share/doc/",
    "/usr/share/man/",
    "/usr/share/info/",
    "/usr/share/locale/",
    "/usr/share/fonts/",
)
USERS = (("root", 0, "/root"), ("rabbitmq", 999, "/var/lib/rabbitmq"), ("mosquitto", 1883, "/mosquitto"))
"""Name, number and home, as in the original images; Debian's numbers are others."""
INFO = Path("/var/lib/dpkg/info")


def closure(wanted: Iterable[str]) -> set[str]:
    """Names of installed packages: the essential ones, those wanted, and all that these depend on."""
    fields = ("db:Status-Status", "Essential", "Package", "Provides", "Pre-Depends", "Depends")
    form = "\t".join(f"${{{field}}}" for field in fields) + "\n"
    asked = ["/usr/bin/dpkg-query", "--show", "--showformat", form]
    lines = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()  # noqa: S603
    depends: dict[str, str] = {}
    providers: dict[str, list[str]] = {}
    todo = list(wanted)
    for line in lines:
        status, essential, name, provides, before, after = line.split("\t")
        if status == "installed":
            depends[name] = f"{before},{after}"
            for virtual in names(provides):
                providers.setdefault(virtual, []).append(name)
            if essential == "yes":
                todo.append(name)
    if missing := [name for name in wanted if name not in depends]:
        raise SystemExit(f"not installed: {' '.join(missing)} (see .ci/install)")
    found: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            for clause in depends[name].split(","):
                here = [
                    real
                    for alternative in names(clause, "|")
                    for real in (alternative, *providers.get(alternative, ()))
                ]
                todo += [real for real in here if real in depends][:1]
    return found


def names(text: str, separator: str = ",") -> list[str]:
    """Names of packages in a field of dpkg's, without versions and architectures."""
    plain = (re.sub(r"\(.*?\)|:\S+", "", part).strip() for part in text.split(separator))
    return [name for name in plain if name]


def files(packages: Iterable[str]) -> set[str]:
    """Absolute paths of what packages put down, directories by their real names (/usr/bin for /bin)."""
    found: set[str] = set()
    for package in packages:
        lists = [
            path for path in (INFO / f"{package}.list", *INFO.glob(f"{package}:*.list")) if path.exists()
        ]
        found.update(*(path.read_text().splitlines() for path in lists))
    real = (
        f"{os.path.realpath(os.path.dirname(path))}/{os.path.basename(path)}"
        for path in found
        if path != "/."
    )
    return {
        path.replace("//", "/") for path in real if not path.startswith(LEFT_OUT) and os.path.lexists(path)
    }


class Image:
    """The archive while it is written."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self.archive = archive
        self._made: set[str] = set()

    def directory(self, path: str, mode: int = 0o755) -> None:
        for parent in (*reversed(Path(path).parents), Path(path)):
            name = str(parent).lstrip("/")
            if name and name not in self._made:
                self._made.add(name)
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755 if str(parent) != path else mode
                self.archive.addfile(entry)

    def link(self, path: str, target: str) -> None:
        self.directory(os.path.dirname(path))
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        self.archive.addfile(entry)

    def text(self, path: str, text: str, mode: int = 0o644) -> None:
        self.directory(os.path.dirname(path))
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.size, entry.mode = len(text.encode()), mode
        self.archive.addfile(entry, io.BytesIO(text.encode()))

    def file(self, source: str, path: str | None = None) -> None:
        """A file or symbolic link of this machine, as root's."""
        path = path or source
        if os.path.isdir(source) and not os.path.islink(source):
            self.directory(path, os.stat(source).st_mode & 0o7777)
            return
        self.directory(os.path.dirname(path))
        entry = self.archive.gettarinfo(source, path.lstrip("/"))
        entry.uid = entry.gid = 0
        if entry.isreg():
            with open(source, "rb") as content:
                self.archive.addfile(entry, content)
        else:
            self.archive.addfile(entry)


def write_compiler(image: Image) -> None:
    for path in sorted(files(closure((*PACKAGES, *COMPILER))) - files(closure(PACKAGES))):
        image.file(path)


def write(image: Image) -> None:
    there = files(closure(PACKAGES))
    for path in sorted(there):
        image.file(path)
    for name in ("bin", "lib", "lib64", "sbin"):
        if os.path.islink(f"/{name}") and f"/{name}" not in there:
            image.link(f"/{name}", os.readlink(f"/{name}"))
    image.directory("/tmp", 0o1777)  # noqa: S108 - the image's
    # What maintainer scripts would have made.
    image.text("/etc/passwd", "".join(f"{name}:x:{n}:{n}::{home}:/bin/sh\n" for name, n, home in USERS))
    image.text("/etc/group", "".join(f"{name}:x:{n}:\n" for name, n, _ in USERS))
    image.link("/usr/bin/awk", "mawk")
    (java,) = (path for path in there if re.fullmatch(r"/usr/lib/jvm/[^/]+/bin/java", path))
    image.link("/usr/local/bin/java", java)

    # python: the image's `python` and `pip`, and wheels in the place of a network
    image.link("/usr/local/bin/python", "/usr/bin/python3")
    (pip,) = (path for path in there if re.fullmatch(r"/usr/share/python-wheels/pip-[^/]+\.whl", path))
    image.text("/usr/local/bin/pip", f'#!/bin/sh\nexec python3 {pip}/pip "$@"\n', 0o755)
    for wheel in sorted((PROJECT / ".cache/wheels").glob("*.whl")):
        image.file(str(wheel), f"/wheelhouse/{wheel.name}")

    # maven: the jars where .ci/moquette/fetch looks for them
    for jar in sorted((PROJECT / ".cache/moquette").glob("*.jar")):
        image.file(str(jar), f"/src/.cache/moquette/{jar.name}")

    # activemq: one installation of Debian's package and the library that its MQTT transport lacks
    home, packaged = "/opt/apache-activemq", "/usr/share/activemq"
    image.link(f"{home}/bin", f"{packaged}/bin")
    for name in sorted(os.listdir(f"{packaged}/lib")):
        image.link(f"{home}/lib/{name}", f"{packaged}/lib/{name}")
    image.link(f"{home}/lib/mqtt-client.jar", "/usr/share/java/mqtt-client.jar")
    image.directory(f"{home}/conf")

    for path in ("/mosquitto/config", "/etc/rabbitmq"):
        image.directory(path)


if __name__ == "__main__":
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.GNU_FORMAT) as opened:
        (write_compiler if sys.argv[1:] == ["compiler"] else write)(Image(opened))

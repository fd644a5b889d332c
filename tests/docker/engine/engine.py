"""A container engine for tests: ``dockerd`` in namespaces of its own, with its own directories and socket.

Bridges, addresses, published ports and mounts exist in these namespaces alone, and everything the engine
starts is in one PID namespace: when its first process ends, the kernel ends all of it and takes mounts and
bridges away.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.docker.files import PROJECT
from tests.support.programs import missing, need

PATIENCE = 60.0
"""Seconds until a wait for the engine itself is given up."""

MEMORY = "4g"
"""Bound for the engine's images and containers, of which there are some 2 GiB."""

PROGRAMS = (
    "dockerd",
    "docker",
    "containerd",
    "runc",
    "iptables",
    "ip",
    "tini",
    "unshare",
    "nsenter",
    "setpriv",
)
PLUGIN = """#!/bin/sh
# Compose 1 under the name of Compose 2: `docker` starts this with "compose" as the first argument.
if [ "$1" = docker-cli-plugin-metadata ]; then
    echo '{"SchemaVersion": "0.1.0", "Vendor": "Docker", "Version": "1"}'
    exit 0
fi
shift
exec docker-compose "$@"
"""


def require_engine() -> None:
    """Skip, or fail in CI, with the reason that no engine can run here."""
    if os.geteuid() != 0:
        missing("only root runs a container engine")
    if not shutil.which("dpkg-query"):
        missing("the stand-ins for base images are made of Debian's packages, and dpkg is not installed")
    for program in PROGRAMS:
        need(program)
    entered = subprocess.run([*_NAMESPACES, "true"], capture_output=True, text=True, check=False)
    if entered.returncode:
        missing(f"no namespaces here: {entered.stderr.strip()}")
    if not (PROJECT / ".cache/wheels/complete").exists():
        missing("what the images take from pip is not here: .ci/containers/wheels")
    if not any((PROJECT / ".cache/moquette").glob("*.jar")):
        missing("Moquette is not here: .ci/moquette/fetch")


_NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc")


class Engine:
    """Runs within a ``with`` block, which leaves nothing behind."""

    def __enter__(self) -> Self:
        # short: the path of a Unix socket has at most 107 bytes
        self.directory = Path(tempfile.mkdtemp(prefix="ildm-engine-"))
        self._data = self.directory / "data"
        self._data.mkdir()
        self._cgroup = self.directory.name
        self._log = self.directory / "log"
        try:
            self._start()
            self._write_client_settings()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    # commands ---------------------------------------------------------------------------------

    @property
    def environment(self) -> dict[str, str]:
        """That of clients of this engine."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.directory),
            "LANG": "C.UTF-8",
            "DOCKER_HOST": f"unix://{self.directory}/socket",
            "DOCKER_CONFIG": str(self.directory / "config"),
            "DOCKER_BUILDKIT": "0",  # no plugin needed
            "COMPOSE_DOCKER_CLI_BUILD": "0",
        }

    def run(self, *words: str | Path, cwd: Path = PROJECT, timeout: float = PATIENCE) -> str:
        """Carry out a command to its end with status 0; answers what it printed."""
        done = subprocess.run(
            words, cwd=cwd, env=self.environment, capture_output=True, text=True, timeout=timeout, check=False
        )
        assert done.returncode == 0, (
            f"{' '.join(map(str, words))}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )
        return done.stdout

    def lines(self, *words: str | Path) -> list[str]:
        return self.run(*words).splitlines()

    @property
    def data(self) -> Path:
        """The engine's data, as other processes see them."""
        return self.seen(self._data)

    def seen(self, path: Path) -> Path:
        """A path that the engine names, in its own mount namespace."""
        return Path(f"/proc/{self.first}/root{path}")

    def on_host(self, *words: str | Path) -> list[str | Path]:
        """The words of a command that connects to ports which containers publish, being in none itself."""
        return ["nsenter", "--target", str(self.first), "--net", *words]

    # life -------------------------------------------------------------------------------------

    def _start(self) -> None:
        # /run is its own, too: containerd's sockets are there, whatever other directories are named.
        # Images and containers are in memory: tens of thousands of files that nobody needs afterwards.
        inside = (
            f"mount -t tmpfs tmpfs /run && mount -t tmpfs -o size={MEMORY} tmpfs '{self._data}'"
            ' && ip link set lo up && exec tini -s -- "$@"'
        )
        engine = [
            "dockerd",
            f"--data-root={self._data}",
            f"--exec-root={self.directory}/exec",
            f"--pidfile={self.directory}/pid",
            f"--host=unix://{self.directory}/socket",
            f"--cgroup-parent=/{self._cgroup}",
            "--exec-opt=native.cgroupdriver=cgroupfs",
            "--log-level=warn",
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                # pdeathsig: nothing stays when the tests are killed
                ["setpriv", "--pdeathsig", "KILL", "--", *_NAMESPACES, "sh", "-c", inside, "sh", *engine],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd="/",
            )
        self.first = 0
        version = ["docker", "version", "--format", "{{.Server.Version}}"]
        deadline = time.monotonic() + PATIENCE
        while subprocess.run(version, env=self.environment, capture_output=True, check=False).returncode:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the engine does not answer:\n{self._log.read_text()[-4000:]}")
            time.sleep(0.1)
        self.first = self._child()

    def _child(self) -> int:
        """The first process of the PID namespace, by the number it has here; 0: there is none."""
        number = self._process.pid
        try:
            children = Path(f"/proc/{number}/task/{number}/children").read_text().split()
        except FileNotFoundError:
            return 0
        return int(children[0]) if children else 0

    def _stop(self) -> None:
        try:
            if self._process.poll() is None and (first := self._child()):
                os.kill(first, signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(PATIENCE)
        finally:
            self._process.kill()  # and with it the namespace
            self._process.wait()
            self._clear()

    def _clear(self) -> None:
        """Directory and cgroups, which are gone only when the last process is."""
        deadline = time.monotonic() + PATIENCE
        while left := self._cgroups():
            try:
                for path in left:
                    path.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        shutil.rmtree(self.directory)

    def _cgroups(self) -> list[Path]:
        """The engine's cgroups, in one hierarchy or in several, the deepest first."""
        root = Path("/sys/fs/cgroup")
        tops = [path for path in (root / self._cgroup, *root.glob(f"*/{self._cgroup}")) if path.is_dir()]
        return [Path(path) for top in tops for path, _, _ in os.walk(top, topdown=False)]

    def _write_client_settings(self) -> None:
        """Without those of the user; with Compose 2 or, where only that is installed, 1 in its place."""
        plugins = self.directory / "config/cli-plugins"
        plugins.mkdir(parents=True)
        (plugins.parent / "config.json").write_text(json.dumps({"auths": {}}))
        version = subprocess.run(
            ["docker", "compose", "version"], env=self.environment, capture_output=True, check=False
        )
        self.compose = 2 if version.returncode == 0 else 1
        if self.compose == 1:
            need("docker-compose")
            plugin = plugins / "docker-compose"
            plugin.write_text(PLUGIN)
            plugin.chmod(0o755)

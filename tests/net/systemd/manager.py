"""A real systemd, as the manager of a user, in a mount namespace of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

PROGRAM = Path("/lib/systemd/systemd")
BEGIN = """
mkdir -p /run/systemd && mount -t tmpfs tmpfs /run/systemd && mkdir /run/systemd/system &&
exec "$0" --user --log-target=console
"""
"""The directory says that the machine was booted with systemd, or else it does not begin."""
PATIENCE = 60.0


class Systemd:
    """Its units stand in the directory :attr:`units`."""

    def __init__(self, directory: Path) -> None:
        self._runtime = directory
        self.units = directory / "systemd" / "user"
        self.units.mkdir(parents=True)
        directory.chmod(0o700)
        self._environment = {**os.environ, "XDG_RUNTIME_DIR": str(directory)}
        self._log = directory / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", BEGIN, str(PROGRAM)],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @staticmethod
    def missing() -> str | None:
        """Why none can be begun; None: one can."""
        if os.geteuid() != 0:
            return "only root has mount namespaces everywhere"
        for program in ("unshare", "systemctl", str(PROGRAM)):
            if shutil.which(program) is None:
                return f"{program} is not installed"
        done = subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True, timeout=60)
        return done.stderr.decode() if done.returncode else None

    def answers(self) -> bool:
        """Wait for it; False: it has ended, as in a container without its control groups."""
        give_up = time.monotonic() + PATIENCE
        while self.ask("list-units").returncode:
            if self._process.poll() is not None:
                return False
            assert time.monotonic() < give_up, self.log()
            time.sleep(0.05)
        return True

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """``systemctl``."""
        return subprocess.run(
            ["systemctl", "--user", *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )

    def do(self, *arguments: str) -> None:
        """``systemctl``, which has to succeed."""
        done = self.ask(*arguments)
        assert done.returncode == 0, (arguments, done.stderr, self.log())

    def property(self, unit: str, name: str) -> str:
        return self.ask("show", "--value", f"--property={name}", unit).stdout.strip()

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def end(self) -> None:
        """With all of its services."""
        self.ask("exit")
        try:
            self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()

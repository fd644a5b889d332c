"""Certificates as operators make them, by openssl."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path


class Pki:
    """An authority and what it signs; files in a directory."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.directory = directory
        self.ca = directory / f"{name}.crt"
        self._ca_key = directory / f"{name}.key"
        directory.mkdir(parents=True, exist_ok=True)
        _openssl(
            "req",
            "-x509",
            *_new_key(self._ca_key),
            "-out",
            self.ca,
            "-days",
            "30",
            "-subj",
            f"/CN=Test {name}",
        )

    @staticmethod
    def missing() -> str | None:
        return None if shutil.which("openssl") else "openssl is not installed"

    def issue(self, name: str, alternative: str = "", days: int = 30) -> dict[str, str]:
        """A key and a certificate with the common name ``name``: their paths, as keys of a configuration.

        ``alternative`` is a subjectAltName in OpenSSL's form; negative ``days`` make it one of the past.
        """
        cert, key = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        request, extensions = self.directory / f"{name}.csr", self.directory / f"{name}.ext"
        _openssl("req", *_new_key(key), "-out", request, "-subj", f"/CN={name}")
        extensions.write_text(
            f"subjectAltName={alternative}\n" if alternative else "basicConstraints=CA:FALSE\n"
        )
        signed = ("-CA", self.ca, "-CAkey", self._ca_key, "-CAcreateserial")
        _openssl(
            *("x509", "-req", "-in", request, *signed, "-out", cert),
            *("-days", str(days), "-extfile", extensions),
        )
        return {"cert": str(cert), "key": str(key)}

    def server(self, name: str = "server") -> dict[str, str]:
        return self.issue(name, "DNS:localhost,IP:127.0.0.1")

    def node(self, node_id: str) -> dict[str, str]:
        return {**self.issue(node_id, f"URI:ildm:{node_id}"), "ca": str(self.ca)}

    def trusting(self, shown: dict[str, str] | None = None) -> ssl.SSLContext:
        """What a client needs that trusts this authority alone."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.ca)
        if shown is not None:
            context.load_cert_chain(shown["cert"], shown["key"])
        return context


def fingerprint(cert: str) -> str:
    """As openssl prints it."""
    return _openssl("x509", "-in", cert, "-noout", "-fingerprint", "-sha256").split("=", 1)[1].strip()


def _new_key(path: Path) -> tuple[str | Path, ...]:
    return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", path)


def _openssl(*arguments: str | Path) -> str:
    done = subprocess.run(
        ["openssl", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode:
        raise RuntimeError(f"openssl {arguments[0]}: {done.stderr}")
    return done.stdout

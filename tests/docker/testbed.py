"""The testbed without an engine: brokers and nodes with the files and commands of ``docker/``, on loopback.

Addresses, ports and directories of the containers are replaced by ones of this machine; all else stays.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from tests.docker.files import CLIENT_PORT, DOCKER, LINK_PORT, built_stage, relocated, services
from tests.support.brokers import ActiveMQ, Broker, Moquette, Mosquitto, RabbitMQ
from tests.support.ports import LOOPBACK, free_port

FILES = DOCKER / "brokers"


class ComposedMosquitto(Mosquitto):
    def command(self) -> Sequence[str | Path]:
        program = super().command()[0]
        config = self.directory / "mosquitto.conf"
        here(config, FILES / "mosquitto.conf", "0.0.0.0", "1883", self)
        if os.geteuid() == 0:
            # The container's user is not root, who would become another user here.
            config.write_text(config.read_text() + "user root\n")
        return [program, "-c", config]


class ComposedRabbitMQ(RabbitMQ):
    def command(self) -> Sequence[str | Path]:
        command = super().command()
        here(self.directory / "rabbitmq.conf", FILES / "rabbitmq.conf", "0.0.0.0:", "1883", self)
        (self.directory / "enabled_plugins").write_text((FILES / "enabled_plugins").read_text())
        return command


class ComposedActiveMQ(ActiveMQ):
    def command(self) -> Sequence[str | Path]:
        home, config = self.directory / "home", self.directory / "activemq.xml"
        here(config, FILES / "activemq.xml", "0.0.0.0", "1883", self)
        for name in ("home/lib", "data", "tmp"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        # Debian's package and the library that its MQTT transport lacks, as one installation.
        for part in [self._HOME / "bin", *(self._HOME / "lib").iterdir(), self._CODEC]:
            link = home / part.name if part.name == "bin" else home / "lib" / part.name
            if not link.is_symlink():
                link.symlink_to(part)
        service = services()["activemq"]
        return relocated(
            [*service["entrypoint"], *service["command"]],
            {
                "/opt/apache-activemq": home,
                "/etc/activemq/activemq.xml": config,
                "/var/lib/activemq": self.directory / "data",
                "=/tmp": f"={self.directory}/tmp",
            },
        )


class ComposedMoquette(Moquette):
    def command(self) -> Sequence[str | Path]:
        base = self.directory / "moquette"
        (base / "config").mkdir(parents=True, exist_ok=True)
        (self.directory / "data").mkdir(exist_ok=True)
        config = base / "config/moquette.conf"
        here(config, FILES / "moquette.conf", "0.0.0.0", "1883", self)
        config.write_text(config.read_text().replace("/var/lib/moquette/", f"{self.directory}/data/"))
        (base / "config/log4j.properties").write_text((FILES / "log4j.properties").read_text())
        return relocated(
            built_stage(services()["moquette"]).last("ENTRYPOINT").words,
            {"/opt/moquette/lib": self._JARS, "/opt/moquette": base},
        )


COMPOSED: dict[str, type[Broker]] = {
    "mosquitto": ComposedMosquitto,
    "activemq": ComposedActiveMQ,
    "rabbitmq": ComposedRabbitMQ,
    "moquette": ComposedMoquette,
}


def here(target: Path, source: Path, host: str, port: str, broker: Broker) -> None:
    """Copy a broker's configuration with its address, which must stand there once, replaced."""
    text = source.read_text()
    address = broker.host + (":" if host.endswith(":") else "")
    for old, new in ((host, address), (port, str(broker.port))):
        assert text.count(old) == 1, f"{source.name}: {old} stands there {text.count(old)} times"
        text = text.replace(old, new)
    target.write_text(text)


def broker_is_healthy(name: str, port: int) -> bool:
    """Carry out a broker's health check against a port of this machine."""
    service = services()[name]
    if "healthcheck" in service:
        form, *words = service["healthcheck"]["test"]
        assert form == "CMD"
    else:
        words = built_stage(service).health
    assert words.count(str(CLIENT_PORT)) == 1
    words = [str(port) if word == str(CLIENT_PORT) else word.replace("$$", "$") for word in words]
    words = relocated(words, {"/usr/local/bin/answers": FILES / "answers"})
    return subprocess.run(words, capture_output=True, timeout=300, check=False).returncode == 0


class LocalNode:
    """A node's configuration made fit for this machine; `config` is the file, `port` that of its clients."""

    def __init__(self, name: str, directory: Path, broker_port: int, secret: Path) -> None:
        self.name = name
        self.directory = directory
        self.port, self.link_port = free_port(), free_port()
        self.config = directory / "node.yaml"
        self.socket = directory / "state/admin.sock"
        self._broker_port = broker_port
        self._secret = secret

    def write(self, link_ports: dict[str, int]) -> None:
        """Write the file; `link_ports` are those of all nodes by the name of their site."""
        document = yaml.safe_load((DOCKER / "nodes" / f"{self.name}.yaml").read_text())
        document["state_dir"] = str(self.directory / "state")
        document["listen"] = f"{LOOPBACK}:{self.port}"
        document["broker"]["address"] = f"{LOOPBACK}:{self._broker_port}"
        link = document["link"]
        link["listen"] = f"{LOOPBACK}:{self.link_port}"
        link["secret_file"] = str(self._secret)
        places = {f"link-{name}:{LINK_PORT}": f"{LOOPBACK}:{port}" for name, port in link_ports.items()}
        link["neighbors"] = [places[neighbor] for neighbor in link["neighbors"]]
        self.directory.mkdir(parents=True)
        self.config.write_text(yaml.safe_dump(document))

    def health_check(self) -> subprocess.CompletedProcess[str]:
        """Carry out the image's HEALTHCHECK with the image's environment."""
        image = built_stage(services()[f"node-{self.name}"])
        program, *words = image.health
        assert program == "ildm"
        environment = {**os.environ, **image.environment, "PATH": os.environ["PATH"]}
        return subprocess.run(
            [sys.executable, "-m", "ildm", *words],
            env={**environment, "ILDM_SOCKET": str(self.socket)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

"""The makes of brokers: what each needs, how it is configured, what it can do."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from ildm.testing.live.brokers.base import Broker
from ildm.testing.live.ports import LOOPBACK, free_port
from ildm.testing.live.process import HERE, Placement

_MAX_PACKET = 4 * 1024 * 1024
# Small and quick to boot: the tests need an answer soon rather than a high rate later.
_QUICK_JVM = ("-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_TUNED_JVM = ("-Xms256m", "-Xmx1g", "-XX:+UseParallelGC", "-Xshare:auto")


class _Persistent(Broker):
    """A broker that may keep on disk what it has; each make says what."""

    def __init__(
        self,
        directory: Path,
        *,
        persistence: bool = False,
        place: Placement = HERE,
        tuned: bool = False,
    ) -> None:
        super().__init__(directory, place=place, tuned=tuned)
        self.persistence = persistence


class Mosquitto(_Persistent):
    """Eclipse Mosquitto, the reference: MQTT 3.1, 3.1.1 and 5."""

    name = "mosquitto"
    versions = frozenset({3, 4, 5})

    def __init__(
        self,
        directory: Path,
        *,
        persistence: bool = False,
        acl: str | None = None,
        extra: Sequence[str] = (),
        place: Placement = HERE,
        tuned: bool = False,
    ) -> None:
        """`persistence` keeps sessions and retained messages over a stop, and over a kill all but the latest.

        `acl` is the text of an ACL file; `extra` are lines for the end of the configuration file.
        """
        super().__init__(directory, persistence=persistence, place=place, tuned=tuned)
        self.acl = acl
        self.extra = tuple(extra)

    @classmethod
    def available(cls) -> str | None:
        return None if _mosquitto() else "mosquitto is not installed: apt-get install mosquitto"

    def command(self) -> Sequence[str | Path]:
        lines = [
            f"listener {self.port} {self.host}",
            "allow_anonymous true",
            # 0 is no limit, but with that 2.0 drops any client that publishes what its ACL denies.
            f"max_queued_messages {0 if self.tuned and self.acl is None else 1_000_000}",
            "max_inflight_messages 0",
            "set_tcp_nodelay true",
            f"persistence {str(self.persistence).lower()}",
            "log_dest stdout",
        ]
        if self.tuned:
            lines.append("log_type error")
        if os.geteuid() == 0:
            # It would give up root for a user of its own, who may not write to the test's directory.
            lines.append("user root")
        if self.persistence:
            lines += [
                f"persistence_location {self.directory}/",
                "autosave_on_changes true",
                "autosave_interval 1",
            ]
        if self.acl is not None:
            acl = self.directory / "acl"
            acl.write_text(self.acl)
            lines.append(f"acl_file {acl}")
        config = self.directory / "mosquitto.conf"
        config.write_text("\n".join([*lines, *self.extra]) + "\n")
        return [_mosquitto() or "mosquitto", "-c", config]


class RabbitMQ(Broker):
    """RabbitMQ 3 with its MQTT plug-in: 3.1 and 3.1.1, a subscription for QoS 2 is granted QoS 1.

    A filter with a wildcard gets no retained messages, overlapping ones get a message once for each QoS,
    ``#`` matches topics that begin with ``$`` (against MQTT-4.7.2-1), and in a topic ``.`` becomes ``/`` and
    ``*`` becomes ``+``.
    """

    name = "rabbitmq"
    versions = frozenset({3, 4})
    max_qos = 1
    boot_timeout = 90.0

    _SERVER: ClassVar[Path] = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")

    def __init__(
        self, directory: Path, *, place: Placement = HERE, tuned: bool = False, management: bool = False
    ) -> None:
        """`management` serves its API at `management_port` to the user guest, whose password is guest."""
        super().__init__(directory, place=place, tuned=tuned)
        self._amqp, self._epmd, self._dist = free_port(), free_port(), free_port()
        self.management_port = free_port() if management else None

    @classmethod
    def available(cls) -> str | None:
        if cls._SERVER.exists() and shutil.which("epmd"):
            return None
        return "RabbitMQ is not installed: apt-get install rabbitmq-server"

    def command(self) -> Sequence[str | Path]:
        (self.directory / "home").mkdir(exist_ok=True)
        managed = self.management_port is not None
        plugins = "rabbitmq_mqtt,rabbitmq_management" if managed else "rabbitmq_mqtt"
        (self.directory / "enabled_plugins").write_text(f"[{plugins}].\n")
        (self.directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = {self.host}:{self._amqp}\n"
            f"mqtt.listeners.tcp.1 = {self.host}:{self.port}\n"
            + (f"management.tcp.ip = {self.host}\n" if managed else "")
            + (f"management.tcp.port = {self.management_port}\n" if managed else "")
            + "mqtt.allow_anonymous = true\n"
            "mqtt.default_user = guest\n"
            "mqtt.default_pass = guest\n"
            # Else guest may come from 127.0.0.1 alone, also where the broker is in a network of its own.
            "loopback_users = none\n" + ("log.console.level = error\n" if self.tuned else "")
        )
        # The node would start epmd as a daemon that outlives it. With one here already it does not, and this
        # one stays in the process group. The trap hands a SIGTERM on; the shell then waits for a clean end.
        script = (
            'epmd & E=$!; "$0" & R=$!; trap "kill -TERM $R" TERM; '
            'while kill -0 "$R" 2>/dev/null; do wait "$R"; S=$?; done; kill "$E"; exit "$S"'
        )
        return ["/bin/sh", "-c", script, self._SERVER]

    def environment(self) -> Mapping[str, str]:
        base = self.directory
        return {
            "HOME": str(base / "home"),
            "ERL_EPMD_PORT": str(self._epmd),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "RABBITMQ_NODENAME": f"ildm{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._dist),
            "RABBITMQ_CONFIG_FILE": str(base / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(base / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(base / "mnesia"),
            "RABBITMQ_LOG_BASE": str(base / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(base / "pid"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }


class ActiveMQ(_Persistent):
    """Apache ActiveMQ 5: MQTT 3.1 and 3.1.1.

    It says "no session" in every CONNACK, also when it goes on with one (against MQTT-3.2.2-2), and a comma
    ends a topic. `persistence` keeps sessions, not retained messages.
    """

    name = "activemq"
    versions = frozenset({3, 4})

    _HOME: ClassVar[Path] = Path("/usr/share/activemq")
    # Debian's package leaves the library out that its MQTT transport needs.
    _CODEC: ClassVar[Path] = Path("/usr/share/java/mqtt-client.jar")

    @classmethod
    def available(cls) -> str | None:
        if not shutil.which("java"):
            return "ActiveMQ needs Java: apt-get install default-jre-headless"
        if (cls._HOME / "bin/activemq.jar").exists() and cls._CODEC.exists():
            return None
        return "ActiveMQ is not installed: apt-get install activemq libmqtt-client-java libhawtdispatch-java"

    def command(self) -> Sequence[str | Path]:
        for name in ("lib", "conf", "data", "tmp"):
            (self.directory / name).mkdir(exist_ok=True)
        codec = self.directory / "lib" / self._CODEC.name
        if not codec.is_symlink():
            codec.symlink_to(self._CODEC)
        stored = f"persistent={str(self.persistence).lower()}&dataDirectory={self.directory}/data"
        return [
            "java",
            *(_TUNED_JVM if self.tuned else _QUICK_JVM),
            f"-Dactivemq.home={self._HOME}",
            f"-Dactivemq.base={self.directory}",
            f"-Dactivemq.conf={self.directory}/conf",
            f"-Dactivemq.data={self.directory}/data",
            f"-Djava.io.tmpdir={self.directory}/tmp",
            "-jar",
            self._HOME / "bin/activemq.jar",
            "start",
            f"broker:(mqtt://{self.host}:{self.port})?useJmx=false&brokerName=ildm{self.port}&{stored}",
        ]


class Moquette(_Persistent):
    """Moquette 0.17: MQTT 3.1 and 3.1.1.

    Retained messages come without the RETAIN flag (against MQTT-3.3.1-8), those of QoS 0 and wills are not
    kept, ``#`` matches topics that begin with ``$`` (against MQTT-4.7.2-1), an empty client id is refused.
    `persistence` keeps retained messages over a stop, not sessions.
    """

    name = "moquette"
    versions = frozenset({3, 4})

    _JARS: ClassVar[Path] = Path(__file__).parents[4] / ".cache/moquette"
    """Where ``.ci/moquette/fetch`` puts it; the environment may name another place with ``ILDM_MOQUETTE``."""

    @classmethod
    def available(cls) -> str | None:
        if not shutil.which("java"):
            return "Moquette needs Java: apt-get install default-jre-headless"
        if any(cls._jars().glob("moquette-broker-*.jar")):
            return None
        return "Moquette is not here: .ci/moquette/fetch, or say where its JAR files are with ILDM_MOQUETTE"

    @classmethod
    def _jars(cls) -> Path:
        return Path(os.environ.get("ILDM_MOQUETTE") or cls._JARS)

    def command(self) -> Sequence[str | Path]:
        for name in ("config", "data"):
            (self.directory / name).mkdir(exist_ok=True)
        (self.directory / "config/moquette.conf").write_text(
            f"host {self.host}\n"
            f"port {self.port}\n"
            "allow_anonymous true\n"
            "telemetry_enabled false\n"
            # 8092 bytes unless told.
            f"netty.mqtt.message_size {_MAX_PACKET}\n"
            f"persistence_enabled {str(self.persistence).lower()}\n"
            f"data_path {self.directory}/data/\n"
        )
        (self.directory / "log4j.properties").write_text(
            "log4j.rootLogger=WARN, out\n"
            "log4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c{1} %m%n\n"
        )
        return [
            "java",
            *(_TUNED_JVM if self.tuned else _QUICK_JVM),
            f"-Dmoquette.path={self.directory}",
            f"-Dlog4j.configuration=file:{self.directory}/log4j.properties",
            "-cp",
            f"{self._jars()}/*",
            "io.moquette.broker.Server",
        ]


class Amqtt(Broker):
    """amqtt, pure Python: MQTT 3.1.1 alone.

    It delivers with the QoS of the subscription, also where the message's is smaller (against MQTT-3.8.4-6),
    keeps nothing for a client that is away, leaves the older of two connections with one client id open
    (against MQTT-3.1.4-2), and may repeat retained messages.
    """

    name = "amqtt"
    versions = frozenset({4})

    @classmethod
    def available(cls) -> str | None:
        return (
            None
            if importlib.util.find_spec("amqtt")
            else "amqtt is not installed: pip install 'ildm[testing]'"
        )

    def command(self) -> Sequence[str | Path]:
        return [sys.executable, "-m", "ildm.demo.broker", self.host, str(self.port)]


def _mosquitto() -> str | None:
    # Debian keeps it where only root's search path leads.
    return shutil.which("mosquitto", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")

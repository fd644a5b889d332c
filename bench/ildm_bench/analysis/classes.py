"""Spark's classes in an archive that Java maps into its memory: ``python -m ildm_bench.analysis.classes``.

Before an analysis has its first row Java reads, checks and links 12,000 classes, which takes some seconds.
From an archive (class data sharing, JEP 350), made once of what a small analysis has loaded, they are there
at once. It fits one Java and one Spark alone: others find none, and Java passes over one that does not fit
its files.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from ildm_bench.analysis.errors import NoJava

PLACE = Path(sys.prefix) / "share" / "ildm-bench" / "classes"
"""Part of the environment, and gone with it."""
ROWS = 200_000
"""Of the analysis whose classes are archived."""
PATIENCE = 300
"""Seconds that it may take."""


def archive_of(java: Path) -> Path:
    """Where the archive for a Java home is, or would be."""
    program = (java / "bin" / "java").resolve()
    stat = program.stat()
    jars = Path(pyspark.__file__).parent / "jars"
    key = f"{program} {stat.st_size} {stat.st_mtime_ns} {jars} {pyspark.__version__}"
    return PLACE / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"


def options(java: Path) -> list[str]:
    """Options for Java to use the archive; none where there is none."""
    archive = archive_of(java)
    if not archive.is_file():
        return []
    return [f'"-XX:SharedArchiveFile={archive}"', "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def make(java: Path) -> str:
    """Make the archive if it is not there; answers what has come of it, for people."""
    archive = archive_of(java)
    if archive.is_file():
        return f"{archive} is there"
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="ildm-classes-", dir=archive.parent) as place:
            fresh = Path(place) / "classes.jsa"
            command = [sys.executable, "-m", __spec__.name, "--load", place, str(java), str(fresh)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
            if done.returncode or not fresh.is_file():
                said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
                return f"no archive of classes, Spark starts as slowly as ever: {said[-1]}"
            for other in archive.parent.glob("*.jsa"):  # of another Java or Spark
                other.unlink()
            fresh.rename(archive)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no archive of classes, Spark starts as slowly as ever: {error}"
    return f"Spark's classes, for a quicker start: {archive}, {archive.stat().st_size / 1e6:.0f} MB"


def load(results: Path, java: Path, archive: Path) -> None:
    """Analyse a run that is made up, and let Java archive the classes as it ends."""
    from pyspark import SparkContext  # noqa: PLC0415

    from ildm_bench.analysis.pipeline import analyse  # noqa: PLC0415
    from ildm_bench.analysis.scale import write_run  # noqa: PLC0415
    from ildm_bench.analysis.session import spark_session  # noqa: PLC0415

    write_run(results, ROWS)
    spark = spark_session(
        java=java, quick=True, java_options=[f'"-XX:ArchiveClassesAtExit={archive}"', "-Xlog:cds=error"]
    )
    analyse(spark, results)
    spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()  # that is how Spark's Java is told to end
    gateway.proc.wait(PATIENCE)


def main(arguments: list[str]) -> int:
    """Make the archive for the Java that an analysis would use."""
    from ildm_bench.analysis.session import find_java  # noqa: PLC0415

    if arguments[:1] == ["--load"]:
        load(*map(Path, arguments[1:]))
        return 0
    try:
        print(make(find_java()))
    except NoJava as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

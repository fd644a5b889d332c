"""Compiles the node's hot modules with mypyc, from the sources as they stand (`make compiled`).

usage: compile.py [--optimize LEVEL]

Writes ``ildm/_compiled/TAG``, TAG that of this Python (``cpython-311-x86_64-linux-gnu``): one library with
all code, and stubs by which Python's loader finds each module in it (their ``PyInit_`` symbols bear the last
part of a module's name alone, so modules of like names are in different stubs). `ildm.compiled` says when
they are used.
Does nothing where they are there already and fit; says why and ends well where they cannot be made.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT), str(PROJECT / "algorithms")]

from ildm import compiled  # noqa: E402

HOT = {
    "ildm/api": "retained_view",
    "ildm/core": "counters frames node session timer_queue timing",
    "ildm/core/broker": "audit audit_session broker_choice broker_query delivery injection injection_session"
    " loop_guard older_sessions own_ids parts reach retained_order same_broker version_probe visibility",
    "ildm/core/link": "chunks compression control reading scope session slices start_gate translation",
    "ildm/core/local": "ack_gate acknowledgements actions admission aliases answers bans broker_session"
    " client_session client_state clients decisions handover leaving partial parts publishing record relay"
    " requests rules spool_room unanswered waits wills wire write_barrier",
    "ildm/core/host": "peer_session",
    "ildm/core/guests": "node outbox parts",
    "ildm/core/transfer": "allowance answer_timeout back_pressure batch budget catching_up classes conflating"
    " contention custody disk_gate gathering identity inbound message_ids pacer poison_isolation ports"
    " ack_runs queue receipt resumption router rules sender sender_state share skipped spooled_queue"
    " starvation stamps window wire",
    "ildm/net": "driver history",
    "ildm/net/transport": "arrival reactor slots stream turns",
    "ildm/state/spool": "log consumers passed records segments spool",
    "ildm/mqtt": "connect_fields covering filter_table framing members packets properties topics validate"
    " wire",
}
"""What runs for each connection, subscription or message, and what inherits from it, as it must."""
LIBRARY = compiled.LIBRARY.removesuffix("__mypyc")
TELL_EVERY = 20
"""Percent of the C code between two lines of progress."""
STUB = """
#include <Python.h>

static PyObject *start(const char *name)
{
    PyObject *library = PyImport_ImportModule("LIBRARY__mypyc");
    PyObject *capsule = library == NULL ? NULL : PyObject_GetAttrString(library, name);
    Py_XDECREF(library);
    if (capsule == NULL)
        return NULL;
    PyObject *(*init)(void) = (PyObject *(*)(void))PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
    Py_DECREF(capsule);
    return init == NULL ? NULL : init();
}

#define MODULE(LAST, INIT) PyMODINIT_FUNC PyInit_##LAST(void) { return start(INIT); }

""".replace("LIBRARY", LIBRARY)


def sources() -> Iterator[Path]:
    """What is compiled, relative to the project."""
    for package, names in HOT.items():
        for name in names.split():
            yield Path(package, f"{name}.py")


def module(source: Path) -> str:
    return ".".join(source.with_suffix("").parts)


def tools_missing() -> str | None:
    """Why nothing can be compiled on this machine, mypyc aside."""
    if sys.implementation.name != "cpython":
        return f"mypyc is for CPython, this is {sys.implementation.name}"
    if not shutil.which(compiler()[0]):
        return f"no C compiler ({compiler()[0]}; Debian: gcc)"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "no Python.h (Debian: python3-dev)"
    return None


def missing() -> str | None:
    """Why nothing can be compiled here."""
    reason = tools_missing()
    if reason is not None:
        return reason
    try:
        import mypyc.build  # noqa: F401, PLC0415
    except ImportError as error:
        return f"{error} (it is in requirements.lock)"
    return None


def compiler() -> list[str]:
    """The one that Python was built with, another by CC."""
    own = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    return own if shutil.which(own[0]) else ["cc"]


def translate(files: list[Path], into: Path) -> tuple[list[str], list[str]]:
    """The C files that mypyc makes, and the directories of what they include."""
    from mypyc.build import mypycify  # noqa: PLC0415

    settings = into / "mypy.ini"  # types are checked by `make lint`: others' are not read here
    settings.write_text(
        f"[mypy]\nmypy_path = {PROJECT / 'algorithms'}\nexplicit_package_bases = true\n"
        "[mypy-pydantic.*,yaml.*,structlog.*,dns.*]\nfollow_imports = skip\nignore_missing_imports = true\n"
    )
    names = [str(file) for file in files]
    said = io.StringIO()  # warnings, too, of what it does in another way
    try:
        with contextlib.redirect_stdout(said):
            library, *_ = mypycify(
                ["--config-file", str(settings), "--cache-dir", os.devnull, "--no-error-summary", *names],
                only_compile_paths=names,
                multi_file=True,
                target_dir=str(into),
                group_name=LIBRARY,
            )
    except SystemExit:
        sys.exit(said.getvalue())
    return library.sources, library.include_dirs


def build(files: list[Path], work: Path, out: Path, optimize: str) -> None:
    """Compile into ``out``, which is there and empty."""
    print("  translating to C", flush=True)
    c_files, include = translate(files, work)
    flags = [
        *shlex.split(sysconfig.get_config_var("CFLAGS") or ""),
        *("-fPIC", f"-O{optimize}", "-g0", "-w"),
        *(f"-I{path}" for path in (sysconfig.get_path("include"), *include)),
    ]
    suffix = compiled.SUFFIX
    stubs: list[list[Path]] = []
    for file in files:
        for stub in stubs:
            if all(other.stem != file.stem for other in stub):
                stub.append(file)
                break
        else:
            stubs.append([file])
    linked: list[tuple[Path, list[Path]]] = []
    for number, stub in enumerate(stubs):
        c_file = work / f"stub{number}.c"
        lines = (f'MODULE({f.stem}, "init_{module(f).replace(".", "___")}")\n' for f in stub)
        c_file.write_text(STUB + "".join(lines))
        c_files.append(str(c_file))
        linked.append((out / f"stub{number}{suffix}", [c_file.with_suffix(".o")]))
    own = [Path(file).with_suffix(".o") for file in c_files[: -len(stubs)]]
    linked.append((out / f"{compiled.LIBRARY}{suffix}", own))

    def compile_one(file: str) -> int:
        run([*compiler(), *flags, "-c", file, "-o", str(Path(file).with_suffix(".o"))])
        return Path(file).stat().st_size

    largest_first = sorted(c_files, key=lambda file: -Path(file).stat().st_size)
    total, done, told = sum(Path(file).stat().st_size for file in c_files), 0, 0
    with ThreadPoolExecutor(processors()) as pool:
        for made in as_completed([pool.submit(compile_one, file) for file in largest_first]):
            done += made.result()
            if 100 * done // total >= told + TELL_EVERY:
                told = 100 * done // total
                print(f"  {told} %", flush=True)
    for target, objects in linked:
        run([*compiler(), "-shared", "-Wl,-s", *map(str, objects), "-o", str(target)])
    where = {file: number for number, stub in enumerate(stubs) for file in stub}
    compiled.write_manifest(out, [(module(f), PROJECT / f, f"stub{where[f]}{suffix}") for f in files])


def processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the compiler
    if done.returncode:
        sys.exit(f"{shlex.join(command)}\n{done.stderr}")


def main() -> None:
    parser = argparse.ArgumentParser(usage="compile.py [--optimize LEVEL]")
    parser.add_argument("--optimize", default="1", choices=["0", "1", "2", "3"])
    arguments = parser.parse_args()
    os.chdir(PROJECT)
    files = list(sources())
    out = compiled.DIRECTORY
    if compiled.modules_of(out) == {module(file) for file in files} and compiled.stale(out) is None:
        return
    reason = missing()
    if reason is not None:
        print(f"not compiled, runs interpreted: {reason}")
        return
    print(
        f"compiling {len(files)} modules (half a minute to some minutes; it runs without, only slower)",
        flush=True,
    )
    began = time.monotonic()
    out.parent.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="ildm-") as work,
        tempfile.TemporaryDirectory(dir=out.parent) as new,
    ):
        made = Path(new, "made")
        made.mkdir()
        try:
            build(files, Path(work), made, arguments.optimize)
        except SystemExit as error:  # with what mypyc or the compiler says
            print(f"not compiled, runs interpreted: {error}")
            return
        if out.exists():
            out.rename(Path(new, "old"))  # running processes go on with it
        made.rename(out)
    size = sum(file.stat().st_size for file in out.iterdir())
    print(f"compiled in {time.monotonic() - began:.0f} s, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

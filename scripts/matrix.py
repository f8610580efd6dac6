"""`make matrix`: run tests with other OpenBLAS kernels, Pythons, versions, users and limits; print one table.

    python scripts/matrix.py [--only NAME] [--jobs 2] [--list]

Every row runs those tests whose result may differ there, because the whole suite in each row would take hours on two
cores:

- OpenBLAS kernels, which OpenBLAS chooses by the processor, round differently. Run: the folders that compute.
- Versions of Python and of packages accept different code. Run: mypy (with the newest versions of packages), and all
  tests without the marks slow, exhaustive, services, long and waits. The oldest Python that is found gets the lowest
  versions of pyproject.toml (uv's lowest-direct); each Python gets the newest versions.
- User, path, umask, locale and limits change what files, processes and connections do. Run: the folders that use
  these, and in most rows the demonstration.

What a row needs is made in .tools/matrix and kept there; deleting that folder is safe. Exit code 1 if a row failed; its
output is in out/matrix/NAME.log.
"""

import argparse
import os
import pwd
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT, LOGS = ROOT / ".tools/matrix", ROOT / "out/matrix"
BIN = ROOT / ".venv/bin"
NUMERIC = [
    *(f"tests/aggregator/{name}" for name in ("estimate", "threshold", "design", "campaign", "counts")),
    *("tests/studies", "tests/simulator", "tests/central"),
]
FILES = ["tests/operate", "tests/device/setup", "tests/device/tools", "tests/cli", "tests/aggregator/test_deploy.py"]
CONNECTIONS = ["tests/aggregator/base", "tests/aggregator/mqtt/endpoint", "tests/simulator/test_load.py"]
QUICK = "not slow and not exhaustive and not services and not long and not waits"
DEMO = ["demo", "--devices", "20", "--slots", "2"]


class Failed(Exception):
    """A command of a row failed; the message says which."""


@dataclass
class Row:
    """A row of the table: what ``run`` does, given the row's log; ``skip``: why it cannot run here."""

    name: str
    run: Callable[["Log"], None]
    skip: str = ""


@dataclass
class Log:
    """Runs commands and appends their output to a file. ``jobs``: workers of pytest."""

    path: Path
    jobs: int
    env: dict[str, str] = field(default_factory=dict)

    def command(
        self, words: Sequence[str | Path], cwd: Path = ROOT, before: Callable[[], object] | None = None
    ) -> None:
        """Run one command. Raises Failed."""
        # The caller's variables for OpenBLAS and pytest are left out.
        env = {name: value for name, value in os.environ.items() if not name.startswith(("OPENBLAS_", "PYTEST"))}
        with self.path.open("ab") as file:
            done = subprocess.run(
                [str(word) for word in words],
                cwd=cwd,
                env={**env, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                preexec_fn=before,
                check=False,
            )
        if done.returncode:
            shown = " ".join(str(word) for word in words[:4])
            raise Failed(f"{shown} … ended with {done.returncode}: {self.last()}")

    def tests(
        self,
        paths: Sequence[str],
        python: Path = BIN / "python",
        cwd: Path = ROOT,
        before: Callable[[], object] | None = None,
        marks: str = QUICK,
    ) -> None:
        """Run tests. Raises Failed."""
        words = ["-m", "pytest", "-q", "-n", str(self.jobs), "--dist", "worksteal", "-m", marks, *paths]
        self.command([python, *words], cwd, before)

    def last(self) -> str:
        """Return up to three failures that the log names, or its last line."""
        lines = self.path.read_text(errors="replace", encoding="utf-8").splitlines()
        failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
        return "; ".join(failed[:3]) or (lines[-1] if lines else "no output")


def rows() -> Iterator[Row]:
    """Yield all rows."""
    for kernel in ("Haswell", "Prescott"):
        yield Row(f"kernel-{kernel}", partial(_kernel, kernel=kernel), _no_kernels())
    found = pythons()
    if found:
        yield Row("lowest-versions", partial(_versions, python=found[0][1], resolution="lowest-direct"))
    for name, python in found:
        yield Row(name, partial(_versions, python=python, resolution="highest"))
    yield Row("ordinary-user", _ordinary_user, "" if os.geteuid() == 0 else "only root can change to another user")
    yield Row("path-with-space-é", _odd_path)
    yield Row("umask-077", lambda log: log.tests(FILES, before=lambda: os.umask(0o077)))
    yield Row("no-utf-8", _no_utf8)
    yield Row("256-open-files", _few_files)
    yield Row(
        "one-core", _one_core, "" if hasattr(os, "sched_setaffinity") else "this system cannot pin a process to a core"
    )


def pythons() -> list[tuple[str, Path]]:
    """Return (name, program) of each minor version of CPython from 3.11 to 3.19 that is found, oldest first."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found: dict[tuple[int, int], Path] = {}
    for minor in range(11, 20):
        candidates = [shutil.which(f"python3.{minor}"), *sorted(pyenv.glob(f"3.{minor}.*/bin/python"), reverse=True)]
        for candidate in candidates:
            test = "import sys, venv, ensurepip; print(sys.version_info[1])"
            done = candidate and subprocess.run(
                [candidate, "-c", test], capture_output=True, encoding="utf-8", check=False
            )
            if candidate and done and done.stdout.strip() == str(minor):
                found[3, minor] = Path(candidate)
                break
    return [(f"python-{major}.{minor}", path) for (major, minor), path in sorted(found.items())]


def _no_kernels() -> str:
    machine = os.uname().machine
    return "" if machine == "x86_64" else f"OpenBLAS has these kernels for x86-64 only, and this is {machine}"


def _kernel(log: Log, kernel: str) -> None:
    log.env["OPENBLAS_CORETYPE"] = kernel
    log.tests(NUMERIC)


def _versions(log: Log, python: Path, resolution: str) -> None:
    uv = _uv(log)
    venv = KEPT / f"{python.name}-{resolution}"
    log.command([uv, "venv", "--quiet", "--clear", "--seed", "--python", python, venv])
    made = venv / "bin/python"
    what = ["--editable", "./device", "--editable", ".[dev]"]
    log.command([uv, "pip", "install", "--quiet", "--resolution", resolution, "--python", made, *what])
    log.command([made, "scripts/micropython.py"])
    if resolution == "highest":
        # Types are checked with the newest versions only, because old versions have incomplete type stubs.
        log.command([made, "-m", "mypy", "--cache-dir", KEPT / f"mypy-{python.name}"])
    # Packages that are so old may call functions that this Python or another package has deprecated.
    old = [] if resolution == "highest" else ["-W", "ignore::DeprecationWarning"]
    log.tests([*old, "tests"], made)


def _uv(log: Log) -> Path:
    uv = KEPT / "uv/bin/uv"
    if not uv.exists():
        log.command([sys.executable, "-m", "venv", KEPT / "uv"])
        log.command([KEPT / "uv/bin/python", "-m", "pip", "install", "--quiet", "uv"])
    return uv


def _clone(folder: Path) -> Path:
    """Clone what is committed; return the clone."""
    clone = folder / "undertone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    return clone


def _ordinary_user(log: Log) -> None:
    """Run tests as the user `nobody`, without apt-get, node and npm, in a home of its own.

    First come the steps of a newcomer, installation and demonstration, and then the tests that use files.
    """
    user = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory(prefix="undertone-matrix-") as name:
        home = Path(name)
        clone = _clone(home)
        programs = home / "bin"
        programs.mkdir()
        for folder in ("/usr/bin", "/usr/sbin"):
            for program in Path(folder).iterdir():
                if (
                    not program.name.startswith(("apt", "npm", "node", "sudo"))
                    and not (programs / program.name).exists()
                ):
                    (programs / program.name).symlink_to(program)
        for path in [home, *home.rglob("*")]:
            os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
        log.env |= {"HOME": str(home), "PATH": str(programs), "USER": user.pw_name, "TMPDIR": str(home)}

        def become() -> None:
            os.setgroups([])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)

        log.command(["make", ".venv/.installed", "tools"], clone, become)
        log.command([clone / ".venv/bin/undertone", *DEMO], clone, become)
        log.tests(FILES, clone / ".venv/bin/python", clone, become)


def _odd_path(log: Log) -> None:
    with tempfile.TemporaryDirectory(prefix="undertone matrix é ") as name:
        clone = _clone(Path(name))
        log.command(["make", ".venv/.installed", "tools"], clone)
        log.command([clone / ".venv/bin/undertone", *DEMO], clone)
        log.tests([*FILES, "tests/test_support.py", "tests/device/core/both"], clone / ".venv/bin/python", clone)


def _no_utf8(log: Log) -> None:
    log.env |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    log.command([BIN / "undertone", *DEMO])
    log.tests(FILES)


def _few_files(log: Log) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    log.command([BIN / "undertone", "demo", "--devices", "300", "--slots", "2"], before=few)
    log.tests(CONNECTIONS, before=few, marks=QUICK.removesuffix(" and not waits"))


def _one_core(log: Log) -> None:
    def pin() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    log.command([BIN / "undertone", *DEMO], before=pin)
    log.tests(CONNECTIONS, before=pin, marks=QUICK.removesuffix(" and not waits"))


def main() -> int:
    """Run the rows and print the table; return 1 if a row failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", metavar="NAME", help="run only this row; may be repeated")
    parser.add_argument("--jobs", type=int, default=2, help="number of tests to run at a time")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    options = parser.parse_args()
    wanted = list(rows())
    if options.list:
        print("\n".join(row.name for row in wanted))
        return 0
    if unknown := set(options.only or ()) - {row.name for row in wanted}:
        parser.error(f"--only is {', '.join(sorted(unknown))}, expected {', '.join(row.name for row in wanted)}")
    KEPT.mkdir(parents=True, exist_ok=True)
    LOGS.mkdir(parents=True, exist_ok=True)
    failed = 0
    for row in wanted:
        if options.only and row.name not in options.only:
            continue
        result, seconds = row.skip and f"skipped: {row.skip}", 0.0
        if not result:
            log = Log(LOGS / f"{row.name}.log", options.jobs)
            log.path.unlink(missing_ok=True)
            began = time.monotonic()
            try:
                row.run(log)
                result = "passed"
            except (Failed, OSError, subprocess.SubprocessError) as wrong:
                result, failed = f"FAILED: {wrong}", 1
            seconds = time.monotonic() - began
        print(f"{row.name:<20} {seconds:5.0f} s  {result}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())

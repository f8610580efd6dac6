"""Collects `tests/**/both/test_*.py` for every interpreter.

The same functions run under CPython and MicroPython. Such a file contains what a board could run: simple `test_*`
functions with `assert`, without pytest or other third-party imports. Each function runs in its own empty current
directory. Each file has one process for each kind of MicroPython, however many tests the file has. A file with `RUNS_ON
= ("cpython", "micropython")` runs under these interpreters only: the 32-bit one has no socket and no event loop of its
own. `READS` names the files of this repository that the tests open. `float32` is the unix port with floats of 32 bits,
if `mp.ulab_folder()` has it. A file named `*_slow.py` or `*_exhaustive.py` gets that marker. Helpers for such files are
in the same folder, or in the folder `both` of a folder above, and are imported by name.
"""

import contextlib
import functools
import linecache
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from support import micropython as mp
from support.ci import unavailable

_RUNNER = Path(__file__).with_name("both_runner.py")
_FLAVOURS = ("cpython", "micropython", "micropython32", "float32")
_REPORT = re.compile(r"\n=== (ok|FAIL) (\w+)\n")
# How long to wait for one file's process, and for a test that waits for the process. The longest takes a minute.
_TIMEOUT = 840
_PATIENCE_SECONDS = 900


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if module_path.parent.name == "both":
        return BothModule.from_parent(parent, path=module_path)
    return None


def helper_folders(path: Path) -> list[Path]:
    """Return the folders that a test file imports helpers from by name: its own, and ``both`` of the folders above."""
    return [folder / "both" for folder in path.parents[1:] if (folder / "both").is_dir()]


class BothModule(pytest.Module):
    def collect(self) -> Iterator[pytest.Item]:
        sys.path += [str(folder) for folder in helper_folders(self.path) if str(folder) not in sys.path]
        self.add_marker(pytest.mark.timeout(_PATIENCE_SECONDS))
        for marker in ("slow", "exhaustive"):
            if self.path.stem.endswith(f"_{marker}"):
                self.add_marker(marker)
        functions = [item for item in super().collect() if isinstance(item, pytest.Function)]
        names = tuple(item.name for item in functions)
        runs_on = getattr(self.obj, "RUNS_ON", _FLAVOURS)
        reads = tuple(getattr(self.obj, "READS", ()))
        for item in functions:
            line = item.reportinfo()[1] or 0
            for flavour in runs_on:
                label = f"{item.name}[{flavour}]"
                if flavour == "cpython":
                    yield CPythonTest.from_parent(self, name=label, callobj=item.obj)
                elif _is_here(flavour, runs_on):
                    yield MicroPythonTest.from_parent(
                        self, name=label, flavour=flavour, test=item.name, names=names, line=line, reads=reads
                    )


def _is_here(flavour: str, runs_on: Sequence[str]) -> bool:
    """Return True if tests are collected for this interpreter.

    If the unix port is missing, the 32-bit one under node takes its place. A test that only the unix port could run is
    still collected, and says why it is skipped.
    """
    under_node = mp.interpreter32() is not None
    return {
        "micropython": mp.interpreter() is not None or not (under_node and "micropython32" in runs_on),
        "micropython32": under_node,
        "float32": mp.ulab_folder().is_dir(),
    }[flavour]


class CPythonTest(pytest.Function):
    def runtest(self) -> None:
        with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
            super().runtest()


class MicroPythonTest(pytest.Item):
    def __init__(
        self, *, flavour: str, test: str, names: tuple[str, ...], line: int, reads: tuple[str, ...], **rest
    ) -> None:
        super().__init__(**rest)
        self.flavour, self.test, self.names, self.line, self.reads = flavour, test, names, line, reads
        self.add_marker("micropython")
        self.add_marker(flavour)

    def runtest(self) -> None:
        if self.flavour == "micropython" and mp.interpreter() is None:
            unavailable(mp.MISSING)
        outcome, text = run_file(self.path, self.flavour, self.names, self.reads)[self.test]
        if outcome != "ok":
            raise MicroPythonFailure(text)
        if text:
            self.add_report_section("call", "stdout", text)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> str:
        if isinstance(excinfo.value, MicroPythonFailure):
            return f"under {self.flavour}:\n{_with_source_lines(str(excinfo.value))}"
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.line, self.name


class MicroPythonFailure(Exception):
    """A test failed under MicroPython. The error's text is what the test printed, with its traceback."""


@functools.cache
def run_file(
    path: Path, flavour: str, names: tuple[str, ...], reads: tuple[str, ...] = ()
) -> dict[str, tuple[str, str]]:
    """Run a file's tests in one process; return name -> ("ok" or "FAIL", what the test printed)."""
    folders = helper_folders(path)
    joined = ":".join(map(str, folders))
    if flavour != "micropython32":
        program = mp.ulab_interpreter("32") if flavour == "float32" else None
        with tempfile.TemporaryDirectory() as scratch:
            result = mp.run_micropython(
                _RUNNER, joined, path.stem, *names, cwd=scratch, timeout=_TIMEOUT, program=program
            )
    else:
        files = {str(source): source for folder in folders for source in folder.glob("*.py")}
        files |= {str(mp.REPO / name): mp.REPO / name for name in reads}
        code = _RUNNER.read_text(encoding="utf-8")
        result = mp.run_micropython32(code, joined, path.stem, *names, files=files, timeout=_TIMEOUT)
    # [what the first test printed, its outcome, its name, what the second printed, ..., what came after the last test]
    *pieces, rest = _REPORT.split(result.stdout)
    outcomes = {name: (outcome, text) for text, outcome, name in zip(*[iter(pieces)] * 3, strict=True)}
    end = f"{rest}{result.stderr}\nthe interpreter ended with exit code {result.returncode} before this test did"
    return {name: outcomes.get(name, ("FAIL", end)) for name in names}


def _with_source_lines(traceback: str) -> str:
    """Add the source lines to a traceback of MicroPython, which only has their numbers."""

    def add(match: re.Match[str]) -> str:
        source = linecache.getline(str(mp.REPO / match[1]), int(match[2])).strip()
        return f"{match[0]}\n    {source}" if source else match[0]

    return re.sub(r'  File "([^"]+)", line (\d+).*', add, traceback)

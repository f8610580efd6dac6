"""Make small changes to the core (mutants), one at a time, and list by file and line those that no test notices.

    python scripts/mutants.py [--count 300] [--seed 1,2] [--only NAME] [--jobs 2] [--json FILE]

It takes a seeded sample of all changes that the function `changes` finds in the modules of `TESTS`.
Each mutant runs the tests that are named beside its module, under CPython, in a copy of the sources. A mutant that
hangs is killed, and counts as noticed. The mutants of equivalent_mutants.toml are left out, because no test can notice
them. Exit code 1 if any mutant survives: each needs a test, or an entry in that file with its reason. Exit code 2 if
tests fail without a mutant.

A process collects a module's tests once, and forks for each mutant, with the changed function in place of the original.
A mutant that survives in its fork, or whose function cannot be replaced there, is judged in a process that imports the
changed module anew.
"""

import argparse
import ast
import contextlib
import functools
import gc
import importlib
import inspect
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import CodeType, FunctionType
from typing import TextIO

ROOT = Path(__file__).parents[1]
SOURCES = ("shared", "device", "aggregator", "simulator", "cli")
DEVICE = "tests/device/core/both"


def _both(name: str) -> str:
    return f"tests/shared/both/test_{name}.py"


_SLOT = (f"{DEVICE}/test_reporter.py", f"{DEVICE}/test_stream.py", f"{DEVICE}/test_policy_limits.py")
_DEVICE = (
    *_SLOT,
    *(
        f"{DEVICE}/test_{name}.py"
        for name in ("device_limits", "rest", "windows", "signature", "turns", "window_model")
    ),
)
_PAUSES = (
    f"{DEVICE}/test_device_limits.py",
    f"{DEVICE}/test_windows.py",
    *_SLOT,
    "tests/device/test_pause.py",
)
_CERTIFICATE = (
    "tests/aggregator/design/test_audit.py",
    "tests/aggregator/design/test_certificate.py",
    "tests/cli/test_certify.py",
)
# Module that privacy or counting depends on -> the tests of its behaviour, the quick ones first.
TESTS: dict[str, tuple[str, ...]] = {
    "shared/undertone_shared/policy_fields.py": (
        f"{DEVICE}/test_policy_limits.py",
        _both("campaign"),
        f"{DEVICE}/test_rest.py",
    ),
    "shared/undertone_shared/policy.py": (
        f"{DEVICE}/test_policy_limits.py",
        "tests/shared/test_policy_memory.py",
        _both("campaign"),
        f"{DEVICE}/test_reporter.py",
        f"{DEVICE}/test_rest.py",
        f"{DEVICE}/test_signature.py",
    ),
    "shared/undertone_shared/stream_policy.py": (
        f"{DEVICE}/test_policy_limits.py",
        _both("stream"),
        f"{DEVICE}/test_stream.py",
        f"{DEVICE}/test_windows.py",
    ),
    "device/undertone_device/core/guard.py": _DEVICE,
    "device/undertone_device/core/ledger.py": (
        f"{DEVICE}/test_ledger_file.py",
        f"{DEVICE}/test_spent.py",
        "tests/device/core/test_ledger_file.py",
        *_DEVICE,
        "tests/device/setup/test_storage.py",
    ),
    "device/undertone_device/core/spent.py": (
        f"{DEVICE}/test_spent.py",
        f"{DEVICE}/test_device_limits.py",
        f"{DEVICE}/test_windows.py",
        *_SLOT,
        "tests/device/host/test_status.py",
    ),
    "device/undertone_device/core/acceptance.py": _DEVICE,
    "device/undertone_device/core/reporter.py": (*_DEVICE, "tests/device/test_pause.py"),
    "device/undertone_device/core/pause_span.py": _PAUSES,
    "device/undertone_device/core/pauses.py": _PAUSES,
    "device/undertone_device/core/stream_state.py": tuple(
        f"{DEVICE}/test_{name}.py" for name in ("stream", "device_limits", "windows")
    ),
    "aggregator/undertone_aggregator/ingest/admission.py": (
        "tests/aggregator/ingest/test_admission.py",
        "tests/aggregator/ingest/test_fast_path.py",
    ),
    "aggregator/undertone_aggregator/ingest/fast_path.py": ("tests/aggregator/ingest/test_fast_path.py",),
    "aggregator/undertone_aggregator/ingest/tally.py": (
        "tests/aggregator/ingest/test_fast_path.py",
        "tests/aggregator/ingest/test_admission.py",
        "tests/aggregator/counts/test_sequences.py",
    ),
    "aggregator/undertone_aggregator/counts/seen.py": (
        "tests/aggregator/counts/test_seen.py",
        "tests/aggregator/ingest/test_admission.py",
        "tests/aggregator/ingest/test_fast_path.py",
        "tests/aggregator/store/test_digests.py",
    ),
    "aggregator/undertone_aggregator/counts/sequences.py": (
        "tests/aggregator/counts/test_sequences.py",
        "tests/aggregator/ingest/test_fast_path.py",
    ),
    "aggregator/undertone_aggregator/design/certificate.py": _CERTIFICATE,
    "aggregator/undertone_aggregator/design/published.py": ("tests/aggregator/design/test_published_formulas.py",),
    "aggregator/undertone_aggregator/design/audit.py": _CERTIFICATE,
    "shared/undertone_shared/mechanism.py": (
        _both("mechanism_limits"),
        _both("mechanisms"),
        _both("scalar"),
        _both("campaign"),
        _both("shipped_sizes"),
    ),
    "shared/undertone_shared/entropy.py": (_both("entropy"), _both("draw_memory"), _both("gaussian"), _both("stream")),
    "shared/undertone_shared/gaussian.py": (_both("gaussian"), _both("stream")),
    "shared/undertone_shared/stream.py": (_both("stream"), _both("campaign"), f"{DEVICE}/test_stream.py"),
    "shared/undertone_shared/scalar.py": (_both("scalar"), _both("campaign"), f"{DEVICE}/test_reporter.py"),
    "shared/undertone_shared/schedule.py": (
        _both("schedule"),
        _both("campaign"),
        f"{DEVICE}/test_turns.py",
        f"{DEVICE}/test_reporter.py",
    ),
    "shared/undertone_shared/campaign.py": (_both("campaign"), f"{DEVICE}/test_reporter.py"),
    "shared/undertone_shared/checks.py": (_both("checks"), _both("campaign")),
    "shared/undertone_shared/ed25519.py": (_both("ed25519"), "tests/shared/test_ed25519.py"),
    "shared/undertone_shared/off_board/intake.py": (_both("wire"), "tests/aggregator/ingest/test_admission.py"),
    "shared/undertone_shared/report.py": (_both("wire"), "tests/aggregator/ingest/test_admission.py"),
    "shared/undertone_shared/table.py": (
        _both("mechanism_limits"),
        _both("mechanisms"),
        _both("designed_tables"),
        _both("campaign"),
        f"{DEVICE}/test_tables.py",
    ),
    "aggregator/undertone_aggregator/store/sql_store.py": (
        "tests/aggregator/store/test_store.py",
        "tests/aggregator/store/test_sql_store.py",
    ),
    "aggregator/undertone_aggregator/store/database.py": (
        "tests/aggregator/store/test_store.py",
        "tests/aggregator/store/test_sql_store.py",
        "tests/aggregator/store/test_leases.py",
    ),
    "aggregator/undertone_aggregator/counts/partial.py": ("tests/aggregator/counts/test_partial.py",),
    "aggregator/undertone_aggregator/counts/moments.py": (
        "tests/aggregator/counts/test_moments.py",
        "tests/aggregator/counts/test_partial.py",
    ),
    "aggregator/undertone_aggregator/campaign/rounds.py": (
        "tests/aggregator/campaign/test_rounds_timing.py",
        "tests/aggregator/campaign/test_binary.py",
        "tests/aggregator/campaign/test_stream_rounds.py",
    ),
    "aggregator/undertone_aggregator/estimate/reconstruct.py": (
        "tests/aggregator/estimate/test_reconstruct_parts.py",
        "tests/aggregator/estimate/test_reconstruct.py",
        "tests/aggregator/estimate/test_stale.py",
        "tests/aggregator/estimate/test_difference.py",
    ),
    "aggregator/undertone_aggregator/estimate/publication.py": (
        "tests/aggregator/estimate/test_publication_rules.py",
        "tests/aggregator/estimate/test_publication.py",
        "tests/aggregator/estimate/test_released_columns.py",
    ),
    "aggregator/undertone_aggregator/design/window.py": ("tests/aggregator/design/test_window.py",),
    "aggregator/undertone_aggregator/estimate/stream.py": ("tests/aggregator/estimate/test_stream_formulas.py",),
}
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
NOT_HERE = "not slow and not exhaustive and not micropython and not micropython32 and not broker and not services"
_SECONDS = 240
# Exit code of a process in which no function could be replaced.
_NOT_IN_PLACE = 77
_PRELOADED = (
    "pytest",
    "hypothesis",
    "numpy",
    "scipy.optimize",
    "scipy.special",
    "scipy.stats",
    "scipy.sparse",
    "sqlalchemy",
    "sqlalchemy.dialects.sqlite",
    "typer",
    "rich.console",
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "paho.mqtt.client",
)

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True)
class Mutant:
    """A possible change of a file; ``number`` counts the changes of the file from 0.

    ``before`` and ``after``: the expression or statement without and with the change, up to 100 characters of each.
    """

    file: str
    number: int
    line: int
    before: str
    after: str
    outcome: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.number}): {self.before}  ->  {self.after}"


def changes(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield (node, its replacement) for every possible change, in the order of `ast.walk`.

    Types, code for type checkers, and the parts of raise and assert statements are left out.
    """
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            skipped |= {id(child) for child in ast.walk(node)}
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if annotation is not None:
                skipped |= {id(child) for child in ast.walk(annotation)}
        if isinstance(node, (ast.Raise, ast.Assert)):
            skipped |= {id(child) for child in ast.walk(node)} - {id(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARED:
            yield node, ast.Compare(node.left, [_COMPARED[type(node.ops[0])](), *node.ops[1:]], node.comparators)
        elif isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED and not isinstance(node.left, ast.Constant):
            yield node, ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right)
        elif isinstance(node, ast.BoolOp):
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield node, ast.BoolOp(other, node.values)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, node.operand
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield node, ast.Constant(node.value + 1)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            other_name = "max" if node.func.id == "min" else "min"
            yield node, ast.Call(ast.Name(other_name, ast.Load()), node.args, node.keywords)
        elif isinstance(node, (ast.Raise, ast.AugAssign)) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        ):
            yield node, ast.Pass()


def mutants_of(file: str) -> list[Mutant]:
    """Return all mutants of a file, with the equivalent ones."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    mutants = []
    for number, (node, replacement) in enumerate(changes(tree)):
        before, after = _text(node), _text(ast.fix_missing_locations(replacement))
        mutants.append(Mutant(file, number, getattr(node, "lineno", 0), before, after))
    return mutants


def equivalent() -> set[tuple[str, int]]:
    """Return (file, number) of each mutant in equivalent_mutants.toml.

    Raises ValueError for an entry that fits no mutant, has no reason, or stands there twice.
    """
    entries = tomllib.loads(EQUIVALENT.read_text("utf-8"))
    found = set()
    for file, of_file in entries.items():
        lines = (ROOT / file).read_text("utf-8").splitlines()
        mutants = mutants_of(file)
        for entry in of_file:
            fitting = [
                mutant.number
                for mutant in mutants
                if (lines[mutant.line - 1].strip(), f"{mutant.before} -> {mutant.after}")
                == (entry["line"], entry["change"])
            ]
            which = entry.get("which", 1)
            if len(fitting) < which:
                raise ValueError(
                    f"{EQUIVALENT.name}: {file} has {len(fitting)} mutants {entry['change']!r} in "
                    f"{entry['line']!r}, expected at least {which}: correct or delete the entry"
                )
            if not entry["reason"] or (file, fitting[which - 1]) in found:
                raise ValueError(f"{EQUIVALENT.name}: {entry!r} of {file} has no reason, or stands there twice")
            found.add((file, fitting[which - 1]))
    return found


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:100]


class _Change(ast.NodeTransformer):
    """Replaces one node of a syntax tree by another."""

    def __init__(self, target: ast.AST, replacement: ast.AST) -> None:
        self._target = target
        self._replacement = replacement

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self._target:
            return ast.copy_location(self._replacement, node)
        return self.generic_visit(node)


def _changed(source: str, number: int) -> ast.Module:
    tree = ast.parse(source)
    target, replacement = list(changes(tree))[number]
    _Change(target, replacement).visit(tree)
    return ast.fix_missing_locations(tree)


def mutated(source: str, number: int) -> str:
    """Return the source with its change ``number`` made."""
    return ast.unparse(_changed(source, number))


Replaced = dict[tuple[str, int], CodeType]


def replaced(source: str, number: int, path: str) -> Replaced | None:
    """Return a map, (qualified name, first line) -> new code, for the function that contains change ``number``.

    None if the change is outside functions: in a module's or a class's own code, in a default value or a decorator.
    """
    found: Replaced = {}
    compiled = (
        compile(tree, path, "exec", dont_inherit=True) for tree in (ast.parse(source), _changed(source, number))
    )
    waiting = [tuple(compiled)]
    while waiting:
        before, after = waiting.pop()
        inner = [_functions(code) for code in (before, after)]
        if _own(before) != _own(after) or len(inner[0]) != len(inner[1]):
            return None
        for old, new in zip(*inner, strict=True):
            if not old.co_flags & inspect.CO_OPTIMIZED:
                waiting.append((old, new))
            elif old != new:
                found[old.co_qualname, old.co_firstlineno] = new
    return found or None


def _functions(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _own(code: CodeType) -> tuple[object, ...]:
    """Return the code of a module or class without that of its functions."""
    return code.co_code, code.co_names, [repr(each) for each in code.co_consts if not isinstance(each, CodeType)]


@dataclass
class Run:
    """A process that runs tests in a copy of the sources, until `deadline` (seconds, `time.monotonic`)."""

    process: int
    deadline: float

    def end(self) -> None:
        """Kill the process and the processes that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)

    def outcome(self) -> str:
        """Return ``killed``, ``hung``, ``survived`` or ``not in place``; an empty text while the process runs."""
        if time.monotonic() > self.deadline:
            self.end()
            return "hung"
        ended, status = os.waitpid(self.process, os.WNOHANG)
        if not ended:
            return ""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)
        if os.WIFSIGNALED(status):
            return "hung" if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL) else "killed"
        # Any code except 0 counts as noticed: 1 says that a test failed, 5 that no test was collected, others that the
        # tests could not run.
        code = os.WEXITSTATUS(status)
        return "not in place" if code == _NOT_IN_PLACE else "killed" if code else "survived"


def start(copy: Path, tests: tuple[str, ...], cpu_seconds: int) -> Run:
    """Fork a process that runs these tests.

    The parent process has imported the third-party packages, so the tests start sooner.

    ``cpu_seconds``: the processor time after which the process is ended, because its mutant loops.
    """

    def work() -> int:
        _limit(cpu_seconds)
        return _tested(copy, tests, ())

    return Run(_forked(work), time.monotonic() + _SECONDS)


def _forked(work: Callable[[], int]) -> int:
    """Fork a process whose exit code is the result of ``work``, or 3 if ``work`` raises."""
    sys.stdout.flush()
    sys.stderr.flush()
    if process := os.fork():
        return process
    code = 3
    try:
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _limit(cpu_seconds: int) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))


def _tested(copy: Path, tests: tuple[str, ...], plugins: Sequence[object]) -> int:
    """Run these tests in a copy of the sources, and return pytest's exit code.

    The output goes to the copy's output.txt.
    """
    folders = [str(copy / folder) for folder in SOURCES]
    os.chdir(copy)
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    # The tests for MicroPython are left out, because the same tests run under CPython.
    os.environ["UNDERTONE_MICROPYTHON"] = os.environ["UNDERTONE_MICROPYTHON32"] = ""
    sys.path[:0] = folders
    # Bytecode is written only for the original sources; later processes use it.
    sys.dont_write_bytecode = not plugins
    output = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    import pytest

    # pytest leaves assertions as they are written, because rewriting and explaining them takes longer than most tests.
    quiet = ["-q", "--no-header", "--assert=plain", "--tb=line", "-p", "no:cacheprovider"]
    return int(pytest.main(["-x", *quiet, "-m", NOT_HERE, *tests], plugins=[*plugins]))


class InPlace:
    """A plugin of pytest that runs the collected tests once for the original, and once for each mutant of a module.

    Each run is a fork. For each run the plugin writes a line to ``told``: a number, processor seconds, and the outcome.
    The first line is for the original, with the number -1 and the processor seconds that a run may take. Each other
    line has a mutant's number, and 0 seconds.
    """

    def __init__(self, path: Path, mutants: Sequence[Mutant], jobs: int, told: TextIO) -> None:
        self._path = str(path)
        self._mutants = mutants
        self._jobs = jobs
        self._told = told
        self._functions: list[FunctionType] = []
        self._caches: list[functools._lru_cache_wrapper[object]] = []

    def pytest_runtestloop(self) -> bool | None:
        """Return True in the process that collected the tests, once all mutants are judged.

        Return None in a fork, so that pytest runs the tests there.
        """
        if not (process := os.fork()):
            os.setsid()
            return None
        run = Run(process, time.monotonic() + _SECONDS)
        while not (outcome := run.outcome()):
            time.sleep(0.01)
        spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        seconds = sum(each.ru_utime + each.ru_stime for each in spent)
        self._told.write(f"-1 {int(2 * seconds) + 5} {outcome}\n")
        if outcome != "survived":
            return True
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and each.__code__.co_filename == self._path:
                self._functions.append(each)
            elif isinstance(each, functools._lru_cache_wrapper) and each.__module__.startswith("undertone"):
                self._caches.append(each)
        gc.freeze()
        return self._judge(int(2 * seconds) + 5)

    def _judge(self, cpu_seconds: int) -> bool | None:
        source = Path(self._path).read_text("utf-8")
        waiting, running = list(reversed(self._mutants)), dict[int, Run]()
        while waiting or running:
            while waiting and len(running) < self._jobs:
                number = waiting.pop().number
                new = replaced(source, number, self._path)
                if not (process := os.fork()):
                    _limit(cpu_seconds)
                    if new is None or not self._replace(new):
                        os._exit(_NOT_IN_PLACE)
                    return None
                running[number] = Run(process, time.monotonic() + _SECONDS)
            for number, run in list(running.items()):
                if outcome := run.outcome():
                    del running[number]
                    self._told.write(f"{number} 0 {outcome}\n")
            time.sleep(0.002)
        return True

    def _replace(self, new: Replaced) -> bool:
        """Replace the code of these functions; return False if one was not found, has several codes or does not fit."""
        for (name, line), code in new.items():
            fitting = [
                each
                for each in self._functions
                if (each.__code__.co_qualname, each.__code__.co_firstlineno) == (name, line)
            ]
            if len({each.__code__ for each in fitting}) != 1 or code.co_freevars != fitting[0].__code__.co_freevars:
                return False
            for each in fitting:
                each.__code__ = code
        for cache in self._caches:
            cache.cache_clear()
        return True


def in_place(copy: Path, file: str, mutants: Sequence[Mutant], jobs: int) -> Iterator[tuple[int, int, str]]:
    """Yield (number, seconds, outcome) of the original, whose number is -1, and then of each of a module's mutants.

    ``seconds``: for the original, the processor seconds that a run may take; for a mutant, 0.
    """
    reading, writing = os.pipe()

    def work() -> int:
        os.close(reading)
        with os.fdopen(writing, "w", buffering=1, encoding="utf-8") as told:
            return _tested(copy, TESTS[file], [InPlace(copy / file, mutants, jobs, told)])

    process = _forked(work)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as told:
        for line in told:
            number, seconds, outcome = line.rstrip("\n").split(" ", 2)
            yield int(number), int(seconds), outcome
    os.waitpid(process, 0)


def preload() -> None:
    """Import the third-party packages that the tests need; they are not mutated."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in _PRELOADED:
        importlib.import_module(name)


def judged(copies: list[Path], mutants: Sequence[Mutant], limits: dict[str, int]) -> Iterator[tuple[Mutant, str]]:
    """Yield each mutant with its outcome when its tests end.

    The sources of each copy are changed for one mutant at a time.

    ``limits``: the processor seconds that a run of each module's tests may take.
    """
    waiting, running = list(reversed(mutants)), dict[Path, tuple[Run, Mutant, str]]()
    try:
        while waiting or running:
            for copy in copies:
                if copy not in running and waiting:
                    mutant = waiting.pop()
                    path = copy / mutant.file
                    source = path.read_text(encoding="utf-8")
                    # Python would use old bytecode for a source of the same second and length, so the bytecode is
                    # deleted.
                    for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
                        stale.unlink()
                    path.write_text(mutated(source, mutant.number), encoding="utf-8")
                    running[copy] = (start(copy, TESTS[mutant.file], limits[mutant.file]), mutant, source)
            for copy, (run, mutant, source) in list(running.items()):
                if outcome := run.outcome():
                    (copy / mutant.file).write_text(source, encoding="utf-8")
                    del running[copy]
                    yield mutant, outcome
            time.sleep(0.01)
    finally:
        for run, _, _ in running.values():
            run.end()


def copy_of(folder: Path) -> Path:
    """Copy the sources and tests into ``folder``, where they will be changed; return the folder."""
    for name in (*SOURCES, "tests", "docs", "scripts"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
    for name in ("pyproject.toml", "README.md", "package.json"):
        shutil.copy(ROOT / name, folder / name)
    for name in (".tools", ".venv"):
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    return folder


def tell(mutant: Mutant, outcome: str) -> Mutant:
    """Print the outcome of a mutant, and return the mutant with its outcome."""
    print(f"{outcome}: {mutant}", flush=True)
    return replace(mutant, outcome=outcome)


def main() -> int:
    """Draw the sample, run its mutants, and list the survivors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300, help="number of mutants in a sample (300)")
    parser.add_argument(
        "--seed", default="1", help="seed of the sample; several seeds, separated by commas, draw one sample each"
    )
    parser.add_argument("--jobs", type=int, default=2, help="number of mutants that are tried at a time (2)")
    parser.add_argument("--numbers", default="", help="only the mutants with these numbers, separated by commas")
    parser.add_argument(
        "--only", default="", help="only modules whose paths contain one of these texts, separated by commas"
    )
    parser.add_argument("--json", type=Path, help="write each mutant with its outcome into this file")
    given = parser.parse_args()
    files = [file for file in TESTS if any(part in file for part in given.only.split(","))]
    numbers = {int(number) for number in given.numbers.split(",") if number}
    every = [mutant for file in files for mutant in mutants_of(file)]
    if numbers:
        every = [mutant for mutant in every if mutant.number in numbers]
    else:
        left_out = equivalent()
        every = [mutant for mutant in every if (mutant.file, mutant.number) not in left_out]
    samples = {
        seed: random.Random(int(seed)).sample(every, min(given.count, len(every))) for seed in given.seed.split(",")
    }
    chosen = sorted({mutant for sample in samples.values() for mutant in sample}, key=every.index)
    print(f"trying {len(chosen)} of {len(every)} mutants of {len(files)} modules, seed {given.seed}", flush=True)
    preload()
    with tempfile.TemporaryDirectory(prefix="undertone-mutants-") as folder:
        copies = [copy_of(Path(folder) / str(number)) for number in range(given.jobs)]
        limits, results, left = dict[str, int](), list[Mutant](), list[Mutant]()
        for file in dict.fromkeys(mutant.file for mutant in chosen):
            mine = {mutant.number: mutant for mutant in chosen if mutant.file == file}
            for number, seconds, outcome in in_place(copies[0], file, [*mine.values()], given.jobs):
                if number < 0 and outcome == "survived":
                    limits[file] = seconds
                    print(f"{file}: {len(mine)} mutants, {seconds} s of processor time at most for each", flush=True)
                elif number >= 0 and outcome in ("killed", "hung"):
                    results.append(tell(mine.pop(number), outcome))
            if file not in limits:
                print(f"{' '.join(TESTS[file])}: these tests fail without a mutant; repair them first", file=sys.stderr)
                print((copies[0] / "output.txt").read_text(encoding="utf-8")[-3000:], file=sys.stderr)
                return 2
            left += mine.values()
        results += [tell(mutant, outcome) for mutant, outcome in judged(copies, left, limits)]
    survivors = [mutant for mutant in results if mutant.outcome == "survived"]
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(mutant) for mutant in results], indent=1) + "\n", encoding="utf-8")
    names = {(mutant.file, mutant.number) for mutant in survivors}
    for seed, sample in samples.items():
        surviving = sum((mutant.file, mutant.number) in names for mutant in sample)
        noticed = len(sample) - surviving
        print(f"seed {seed}: tests notice {noticed} of {len(sample)} mutants, a share of {noticed / len(sample):.3f}")
    print(f"tests notice {len(results) - len(survivors)} of {len(results)} mutants; {len(survivors)} survive:")
    for mutant in sorted(survivors, key=str):
        print(f"  {mutant}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())

"""Small changes to the core, one at a time, and whether a test notices: which mutants survive, by file and line.

    python scripts/mutants.py [--count 300] [--seed 1] [--only NAME] [--jobs 2] [--json FILE]

A seeded sample of comparisons, arithmetic, constants, conditions and guards of the modules in `TESTS`; each mutant runs
the tests that are named beside its module, under CPython, in a copy of the sources. A mutant that hangs is killed, and
counts as noticed. Those of equivalent_mutants.toml are left out: no test can notice them. Exit code 1 if any survives:
each wants a test, or an entry there with its reason.
"""

import argparse
import ast
import contextlib
import importlib
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
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("shared", "device", "aggregator", "simulator", "cli")
# What privacy and counting rest on -> the tests that hold it, the quick ones first.
DEVICE = "tests/device/core/both"


def _both(name: str) -> str:
    return f"tests/shared/both/test_{name}.py"


_SLOT = (f"{DEVICE}/test_reporter.py", f"{DEVICE}/test_stream.py", f"{DEVICE}/test_policy_limits.py")
_DEVICE = (
    *_SLOT,
    *(
        f"{DEVICE}/test_{name}.py"
        for name in ("device_limits", "rest", "windows", "signature", "turns", "window_model", "rest_model")
    ),
)
_CERTIFICATE = (
    "tests/aggregator/design/test_audit.py",
    "tests/aggregator/design/test_certificate.py",
    "tests/cli/test_certify.py",
)
TESTS: dict[str, tuple[str, ...]] = {
    "shared/undertone_shared/policy.py": (
        *_SLOT,
        _both("campaign"),
        f"{DEVICE}/test_rest.py",
        f"{DEVICE}/test_signature.py",
    ),
    "shared/undertone_shared/stream_policy.py": (
        _both("stream"),
        f"{DEVICE}/test_policy_limits.py",
        f"{DEVICE}/test_stream.py",
        f"{DEVICE}/test_windows.py",
    ),
    "device/undertone_device/core/guard.py": _DEVICE,
    "device/undertone_device/core/ledger.py": (
        f"{DEVICE}/test_spent.py",
        *_DEVICE[:-1],
        "tests/device/setup/test_storage.py",
        "tests/device/core/test_ledger_file.py",
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
    "device/undertone_device/core/pauses.py": (
        f"{DEVICE}/test_device_limits.py",
        f"{DEVICE}/test_windows.py",
        *_SLOT,
        "tests/device/test_pause.py",
    ),
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
    ),
    "aggregator/undertone_aggregator/counts/sequences.py": (
        "tests/aggregator/counts/test_sequences.py",
        "tests/aggregator/ingest/test_fast_path.py",
    ),
    "aggregator/undertone_aggregator/design/certificate.py": _CERTIFICATE,
    "aggregator/undertone_aggregator/design/published.py": (
        "tests/aggregator/design/test_published_formulas.py",
        "tests/aggregator/design/test_published.py",
    ),
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
    "shared/undertone_shared/checks.py": (_both("campaign"), _both("scalar"), _both("mechanisms"), *_SLOT),
    "shared/undertone_shared/ed25519.py": (_both("ed25519"), "tests/shared/test_ed25519.py"),
    "shared/undertone_shared/off_board/intake.py": (_both("wire"), "tests/aggregator/ingest/test_admission.py"),
    "shared/undertone_shared/report.py": (_both("wire"), "tests/aggregator/ingest/test_admission.py"),
    "shared/undertone_shared/table.py": (
        _both("mechanism_limits"),
        _both("mechanisms"),
        _both("designed_tables"),
        _both("campaign"),
    ),
    "aggregator/undertone_aggregator/store/sql_store.py": (
        "tests/aggregator/store/test_store.py",
        "tests/aggregator/store/test_sql_store.py",
    ),
    "aggregator/undertone_aggregator/store/database.py": (
        "tests/aggregator/store/test_store.py",
        "tests/aggregator/store/test_sql_store.py",
    ),
    "aggregator/undertone_aggregator/counts/partial.py": ("tests/aggregator/counts/test_partial.py",),
    "aggregator/undertone_aggregator/counts/moments.py": (
        "tests/aggregator/counts/test_moments.py",
        "tests/aggregator/counts/test_partial.py",
    ),
    "aggregator/undertone_aggregator/campaign/rounds.py": (
        "tests/aggregator/campaign/test_rounds_timing.py",
        "tests/aggregator/campaign/test_binary.py",
        "tests/aggregator/campaign/test_rounds.py",
    ),
    "aggregator/undertone_aggregator/estimate/reconstruct.py": (
        "tests/aggregator/estimate/test_reconstruct_parts.py",
        "tests/aggregator/estimate/test_reconstruct.py",
        "tests/aggregator/estimate/test_stale.py",
    ),
    "aggregator/undertone_aggregator/estimate/publication.py": (
        "tests/aggregator/estimate/test_publication_rules.py",
        "tests/aggregator/estimate/test_publication.py",
    ),
    "aggregator/undertone_aggregator/design/window.py": ("tests/aggregator/design/test_window.py",),
    "aggregator/undertone_aggregator/estimate/stream.py": (
        "tests/aggregator/estimate/test_stream_formulas.py",
        "tests/aggregator/estimate/test_stream.py",
    ),
}
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
NOT_HERE = "not slow and not exhaustive and not micropython and not micropython32 and not broker and not services"
_SECONDS = 240
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
    "alembic.command",
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
    """Change number ``number`` of a file; ``before`` and ``after`` are the changed expression or statement."""

    file: str
    number: int
    line: int
    before: str
    after: str
    outcome: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.number}): {self.before}  ->  {self.after}"


def changes(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """(node, what takes its place) of every change, in the order of the source; docstrings and types are left alone."""
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
    """All mutants of a file, the equivalent ones included."""
    tree = ast.parse((ROOT / file).read_text())
    mutants = []
    for number, (node, replacement) in enumerate(changes(tree)):
        before, after = _text(node), _text(ast.fix_missing_locations(replacement))
        mutants.append(Mutant(file, number, getattr(node, "lineno", 0), before, after))
    return mutants


def equivalent() -> set[tuple[str, int]]:
    """(file, number) of each mutant of equivalent_mutants.toml. Raises ValueError for an entry that fits no mutant."""
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
                    f"{entry['line']!r}, expected at least {which}"
                )
            if not entry["reason"] or (file, fitting[which - 1]) in found:
                raise ValueError(f"{EQUIVALENT.name}: {entry!r} of {file} has no reason, or stands there twice")
            found.add((file, fitting[which - 1]))
    return found


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:100]


def mutated(source: str, number: int) -> str:
    """The source with its change ``number`` made."""
    tree = ast.parse(source)
    target, replacement = list(changes(tree))[number]

    class Change(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            if node is target:
                return ast.copy_location(replacement, node)
            return self.generic_visit(node)

    return ast.unparse(ast.fix_missing_locations(Change().visit(tree)))


@dataclass
class Run:
    """A process that runs tests in a copy of the sources, until `deadline` (seconds, `time.monotonic`)."""

    process: int
    deadline: float

    def end(self) -> None:
        """Kill it, and what it started."""
        os.killpg(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)

    def outcome(self) -> str:
        """``killed``, ``hung`` or ``survived``; empty while it runs."""
        if time.monotonic() > self.deadline:
            self.end()
            return "hung"
        ended, status = os.waitpid(self.process, os.WNOHANG)
        if not ended:
            return ""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
            return "hung"
        # 5: no test was collected, 2 and above: the tests could not run.
        return "survived" if status == 0 else "killed"


def start(copy: Path, tests: tuple[str, ...], cpu_seconds: int | None = None) -> Run:
    """Fork a process for these tests. It has imported what is not ours already, which saves a second for each mutant.

    ``cpu_seconds``: the processor time after which it is ended: its mutant loops. Without it the code is the original,
    and the bytecode of what it imports is written, for those that come after it.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if process := os.fork():
        return Run(process, time.monotonic() + _SECONDS)
    code = 3
    try:
        os.setsid()
        if cpu_seconds is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        code = int(_child(copy, tests, cpu_seconds is None))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _child(copy: Path, tests: tuple[str, ...], compiled: bool) -> int:
    folders = [str(copy / folder) for folder in SOURCES]
    os.chdir(copy)
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    # The tests' own MicroPython runs are not asked: their CPython runs are the same tests.
    os.environ["UNDERTONE_MICROPYTHON"] = os.environ["UNDERTONE_MICROPYTHON32"] = ""
    sys.path[:0] = folders
    sys.dont_write_bytecode = not compiled
    output = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    import pytest

    quiet = ["-q", "--no-header", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return pytest.main(["-x", *quiet, "-p", "no:cacheprovider", "-m", NOT_HERE, *tests])


def preload() -> None:
    """Import what the tests need and what is not mutated."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in _PRELOADED:
        importlib.import_module(name)


def judged(copies: list[Path], mutants: list[Mutant], limits: dict[tuple[str, ...], int]) -> Iterator[Mutant]:
    """Each mutant with its outcome, as they end; as many at a time as there are copies.

    ``limits``: the processor seconds of each list of tests.
    """
    waiting, running = list(reversed(mutants)), dict[Path, tuple[Run, Mutant, str]]()
    try:
        while waiting or running:
            for copy in copies:
                if copy not in running and waiting:
                    mutant = waiting.pop()
                    path = copy / mutant.file
                    source = path.read_text()
                    # Sources of one second and length would share their bytecode.
                    for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
                        stale.unlink()
                    path.write_text(mutated(source, mutant.number))
                    running[copy] = (start(copy, tests := TESTS[mutant.file], limits[tests]), mutant, source)
            for copy, (run, mutant, source) in list(running.items()):
                if outcome := run.outcome():
                    (copy / mutant.file).write_text(source)
                    del running[copy]
                    yield Mutant(**{**asdict(mutant), "outcome": outcome})
            time.sleep(0.01)
    finally:
        for run, _, _ in running.values():
            run.end()


def copy_of(folder: Path) -> Path:
    """The sources and tests, to be changed."""
    for name in (*SOURCES, "tests", "docs", "scripts"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
    for name in ("pyproject.toml", "README.md", "package.json"):
        shutil.copy(ROOT / name, folder / name)
    for name in (".tools", ".venv"):
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    return folder


def main() -> int:
    """Sample, run, list."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--numbers", default="", help="only the mutants of these numbers, separated by commas")
    parser.add_argument("--only", default="", help="only modules whose paths hold one of these, separated by commas")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    files = [file for file in TESTS if any(part in file for part in given.only.split(","))]
    numbers = {int(number) for number in given.numbers.split(",") if number}
    every = [mutant for file in files for mutant in mutants_of(file)]
    if numbers:
        every = [mutant for mutant in every if mutant.number in numbers]
    else:
        left_out = equivalent()
        every = [mutant for mutant in every if (mutant.file, mutant.number) not in left_out]
    chosen = random.Random(given.seed).sample(every, min(given.count, len(every)))
    chosen.sort(key=lambda mutant: files.index(mutant.file))
    print(f"{len(chosen)} of {len(every)} mutants of {len(files)} modules, seed {given.seed}", flush=True)
    preload()
    with tempfile.TemporaryDirectory(prefix="undertone-mutants-") as folder:
        copies = [copy_of(Path(folder) / str(number)) for number in range(given.jobs)]
        limits = dict[tuple[str, ...], int]()
        for tests in sorted({TESTS[mutant.file] for mutant in chosen}):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            run = start(copies[0], tests)
            while not (outcome := run.outcome()):
                time.sleep(0.01)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            limits[tests] = int(2 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)) + 5
            if outcome != "survived":
                print(f"{' '.join(tests)}: these tests fail on the code as it is", file=sys.stderr)
                print((copies[0] / "output.txt").read_text()[-3000:], file=sys.stderr)
                return 2
        results = []
        for mutant in judged(copies, chosen, limits):
            print(f"{mutant.outcome}: {mutant}", flush=True)
            results.append(mutant)
    survivors = [mutant for mutant in results if mutant.outcome == "survived"]
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(mutant) for mutant in results], indent=1) + "\n")
    print(f"{len(results) - len(survivors)} of {len(results)} noticed; {len(survivors)} survive:")
    for mutant in sorted(survivors, key=str):
        print(f"  {mutant}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())

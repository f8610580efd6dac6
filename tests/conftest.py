"""Fixtures for what a test must not choose itself (ports, topics, tools, data), and the summary at the end."""

import functools
import gc
import os
import re
import subprocess
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support import micropython as mp
from support.both import pytest_pycollect_makemodule  # noqa: F401  (a hook: see there)
from support.ci import ABSENT, CI, absent, unavailable
from support.mosquitto import MISSING, find_mosquitto
from support.order import dealt
from support.ports import free_port as next_free_port
from support.postgres import MISSING as NO_POSTGRES
from support.postgres import Postgres, folder_of_binaries
from undertone_aggregator.base.open_files import raise_limit

# Hypothesis tries the same examples each time, however slow the machine is. With CI=true, it does so by itself.
settings.register_profile(
    "undertone", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("undertone")
# Workers and the processes they start share the machine's cores. If each had BLAS threads of its own, these would spend
# more time waiting for each other than computing. NumPy reads the variable when it is imported, and nothing above
# imports NumPy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Some tests run whole servers in the process of pytest. Its soft limit of files is often 256 on macOS, so it is raised
# as a server raises its own.
raise_limit()
# Objects that are made during collection live to the end. Searching them for garbage would slow the collection down, so
# the search waits until `pytest_collection_finish`.
gc.disable()
DATA = Path(os.environ.get("UNDERTONE_DATA") or mp.REPO / "../shared/data").resolve()
# A test that uses one of these fixtures gets the fixture's marker, so that `pytest -m 'not broker'` works.
MARKER_OF_FIXTURE = {"undertone_data": "data", "mosquitto_binary": "broker", "micropython": "micropython"}


@pytest.fixture(scope="session")
def undertone_data() -> Path:
    """The folder of real data sets. Without the folder, the test is skipped."""
    if not DATA.is_dir():
        absent(f"no data sets at {DATA}: set UNDERTONE_DATA to their folder")
    return DATA


@pytest.fixture(scope="session")
def mosquitto_binary() -> str:
    """The path of a mosquitto 2 executable."""
    return find_mosquitto() or unavailable(MISSING)


@pytest.fixture(scope="session")
def micropython() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`run_micropython`, for a test that starts the interpreter itself."""
    return mp.run_micropython if mp.interpreter() else unavailable(mp.MISSING)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server, in which each test gets its own database."""
    if folder_of_binaries() is None:
        unavailable(NO_POSTGRES)
    server = Postgres(next_free_port(), durable=False)
    yield server
    server.close()


@pytest.fixture
def topic_prefix() -> str:
    """An MQTT topic prefix that no other test uses."""
    return f"undertone-test/{uuid.uuid4().hex[:12]}"


@pytest.fixture
def free_port() -> Callable[[], int]:
    """A function that returns a free TCP port on 127.0.0.1, another one at each call in a test."""
    return next_free_port


def pytest_configure(config: pytest.Config) -> None:
    """Let workers, and the processes that tests start, keep the bytecode that they compile.

    Without it, each worker would compile all tests, and each process the modules that it imports. So the environment's
    PYTHONDONTWRITEBYTECODE is removed.
    """
    if getattr(config.option, "numprocesses", None):
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        # The process that only directs the workers collects no tests.
        gc.enable()


def pytest_collection_finish() -> None:
    """Search for garbage from now on, and only among the objects that tests make."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for fixture, marker in MARKER_OF_FIXTURE.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)
    _mark_slow_cases(items, whole=not any("[" in arg for arg in config.args))
    items[:] = dealt(items, int(getattr(config, "workerinput", {}).get("workercount", 1)))


def _mark_slow_cases(items: list[pytest.Item], whole: bool) -> None:
    """Mark the cases of a parametrized test as slow, but for those that its marker ``slow_but`` names.

    ``whole``: all cases were collected, so that a name of no case is a mistake. Raises pytest.UsageError.
    """
    unknown: dict[str, set[str]] = {}
    for item in items:
        if quick := item.get_closest_marker("slow_but"):
            test, case = item.nodeid.partition("[")[0], item.callspec.id
            unknown.setdefault(test, set(quick.args)).discard(case)
            if case not in quick.args:
                item.add_marker("slow")
    for test, cases in unknown.items():
        if whole and cases:
            raise pytest.UsageError(f"slow_but of {test} names {sorted(cases)}, expected ids of its cases")


# --- The summary uses the tests' reports alone, because xdist runs the tests in other processes. ---


def _reports(config: pytest.Config, *outcomes: str) -> list[pytest.TestReport]:
    stats = config.pluginmanager.get_plugin("terminalreporter").stats
    return [r for outcome in outcomes for r in stats.get(outcome, ()) if isinstance(r, pytest.TestReport)]


def _under_micropython(config: pytest.Config) -> dict[str, int]:
    ran = Counter()
    for report in _reports(config, "passed", "failed"):
        if report.when == "call" and "micropython" in report.keywords:
            ran["on 32 bits" if "micropython32" in report.keywords else "on 64 bits"] += 1
    return ran


def _reason(report: pytest.TestReport) -> str:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return re.sub(r"^Skipped: ", "", reason)


@functools.cache
def _hidden_failures(config: pytest.Config) -> list[str]:
    """Under CI: sentences about tests that were skipped although they had to run, or if none ran under MicroPython."""
    if not CI:
        return []
    complaints = [
        f"{report.nodeid} was skipped: {_reason(report)}"
        for report in _reports(config, "skipped")
        if not _reason(report).startswith(ABSENT)
    ]
    option = config.option
    full_run = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not option.keyword
    if full_run and "not services" in option.markexpr and not option.collectonly and not _under_micropython(config):
        complaints.append("no test ran under MicroPython")
    return complaints


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    is_controller = not hasattr(session.config, "workerinput")
    if is_controller and exitstatus == pytest.ExitCode.OK and _hidden_failures(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    ran = _under_micropython(config)
    split = ", ".join(f"{count} {where}" for where, count in sorted(ran.items(), reverse=True))
    terminalreporter.section("MicroPython and skips")
    terminalreporter.line(f"{sum(ran.values())} tests ran under MicroPython" + (f" ({split})" if ran else ""))
    skipped = _reports(config, "skipped")
    terminalreporter.line(f"{len(skipped)} tests were skipped")
    for reason, count in Counter(map(_reason, skipped)).most_common():
        terminalreporter.line(f"  {count}: {reason}")
        for report in skipped:
            if _reason(report) == reason:
                terminalreporter.line(f"    {report.nodeid}")
    for line in _hidden_failures(config):
        terminalreporter.line(f"CI=true: {line}", red=True)

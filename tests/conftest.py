"""Fixtures for everything that a test must not choose itself (ports, topics, tools, data), and the closing summary."""

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

# The same examples each time, however slow the machine; CI=true does so by itself.
settings.register_profile(
    "undertone", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("undertone")
# Workers and the processes they start share the machine's cores. Each with BLAS threads of its own, they would spend
# more time waiting for each other than computing. NumPy reads this when it is imported, which nothing above does.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Tests run whole servers in their own process, whose soft limit is often 256 on macOS: raised as these programs do it.
raise_limit()
# What collection makes lives to the end, so no garbage is looked for before `pytest_collection_finish`: that took two
# fifths of each worker's time of collection.
gc.disable()
DATA = Path(os.environ.get("UNDERTONE_DATA") or mp.REPO / "../shared/data").resolve()
# A test that asks for one of these fixtures carries the marker; `pytest -m 'not broker'` then works.
MARKER_OF_FIXTURE = {"undertone_data": "data", "mosquitto_binary": "broker", "micropython": "micropython"}


@pytest.fixture(scope="session")
def undertone_data() -> Path:
    """The folder of real data sets; the test skips without it."""
    if not DATA.is_dir():
        absent(f"no data sets at {DATA}: set UNDERTONE_DATA to their folder")
    return DATA


@pytest.fixture(scope="session")
def mosquitto_binary() -> str:
    """Path of a mosquitto 2 executable."""
    return find_mosquitto() or unavailable(MISSING)


@pytest.fixture(scope="session")
def micropython() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`run_micropython`, for a test that starts the interpreter itself."""
    return mp.run_micropython if mp.interpreter() else unavailable(mp.MISSING)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server; each test takes a database of its own."""
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
    """Call it for a TCP port on 127.0.0.1 that nothing listens on and that it has not given before in this test."""
    return next_free_port


def pytest_configure(config: pytest.Config) -> None:
    """Let workers, and the processes that tests start, keep the bytecode that they compile, whatever the environment.

    Without it, each worker compiles every test by itself, and each of some hundred processes the modules it imports.
    """
    if getattr(config.option, "numprocesses", None):
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        # The process that only directs workers collects nothing.
        gc.enable()


def pytest_collection_finish() -> None:
    """Look for garbage from now on, and only among what tests make."""
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


# --- the summary; it works on reports alone, because under xdist the tests ran in other processes ---


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
    """Under CI: what was not tested although it had to be."""
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

"""Spark is killed at random moments and between its two commits, and still counts what SQL and the server count."""

import contextlib
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import ClassVar

import pytest

from support import landed
from support.ci import unavailable
from support.postgres import Postgres
from support.server import FIRST
from support.waiting import wait_for
from undertone_aggregator.campaign.results import open_results
from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.store.store import open_store
from undertone_operate.examine.recount import compare, merged, recount

CHILD = Path(landed.__file__).with_name("spark_child.py")
EXECUTOR = "CoarseGrainedExecutorBackend"


@pytest.fixture(scope="module", autouse=True)
def spark() -> None:
    if importlib.util.find_spec("pyspark") is None or shutil.which("java") is None:
        unavailable("PySpark and Java are not installed: make services")


def children(pid: int) -> dict[int, str]:
    """Return this process and every process below it, with their command lines."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        except OSError:
            continue
    mine, tree = [pid], {}
    while mine:
        parent = mine.pop()
        mine += [child for child, of in parents.items() if of == parent]
        try:
            tree[parent] = Path(f"/proc/{parent}/cmdline").read_text(encoding="utf-8").replace("\0", " ")
        except OSError:
            continue
    return tree


class Driver:
    """Runs the counting job of `undertone spark run` in child processes, one after the other, on one store."""

    # All drivers that the running test has started. A fixture kills them when the test ends.
    started: ClassVar[list["Driver"]] = []

    def __init__(
        self, folder: Path, store: str, master: str, epochs: Sequence[Epoch] = landed.EPOCHS, **options: int
    ) -> None:
        self.folder, self.store = folder, store
        self.landing, self.checkpoint = folder / "landing", folder / "checkpoint"
        paths = {"folder": str(self.landing), "checkpoint": str(self.checkpoint)}
        self._job = json.dumps(
            {"store": store, "campaign": "meters", "master": master, "once": True, **paths, **options}
        )
        self.killed_executors = 0
        self._process: subprocess.Popen[bytes] | None = None
        with open_store(store, campaign="meters") as opened:
            landed.bind(opened, epochs)

    def start(self, place: str = "nowhere", passages: int = -1) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, CHILD, self._job, place, str(passages)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "TZ": "UTC"},
            )
        self.started.append(self)

    def wait(self, seconds: float = 1800) -> int:
        assert self._process is not None
        return self._process.wait(seconds)

    def stop(self) -> int:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait(60)

    def kill(self) -> None:
        """Kill the driver, its JVM and the executors."""
        assert self._process is not None
        for pid in children(self._process.pid):
            end(pid)
        self.wait(30)

    def signal_all(self, number: int) -> None:
        """Send SIGTERM to the driver and all its processes, as systemd does to a unit; or SIGKILL to the JVM alone."""
        assert self._process is not None
        for pid, command in children(self._process.pid).items():
            if number == signal.SIGTERM or (pid != self._process.pid and "java" in command):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def kill_executor(self, chance: random.Random) -> None:
        assert self._process is not None
        executors = [pid for pid, command in children(self._process.pid).items() if EXECUTOR in command]
        if executors:
            end(chance.choice(executors))
            self.killed_executors += 1

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def batches(self) -> int:
        return self.log().count(" after_commit")

    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _no_driver_outlives_its_test() -> Iterator[None]:
    yield
    for driver in Driver.started:
        if driver.running:
            driver.kill()
    Driver.started.clear()


def end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def land(folder: Path, devices: int, slots: int) -> int:
    """Land deliveries and count them in a server's store, too; return their number."""
    with open_store(folder / "server.sqlite", campaign="meters") as server:
        landed.bind(server)
        return landed.land(folder / "landing", server, devices, slots)


def check(driver: Driver, distinct: int, deliveries: int) -> None:
    """Check the store's cells, outcomes and estimates against the recount and the server.

    Each delivery has an outcome.
    """
    server = driver.folder / "server.sqlite"
    with open_store(driver.store, read_only=True) as store, open_store(server, read_only=True) as beside:
        again = recount(driver.landing, store.epochs())
        assert compare(again, store) == []
        assert again.partial.reports == distinct
        assert store.outcomes() == beside.outcomes()
        assert merged(store.outcomes()) == merged(again.outcomes)
        assert store.outcomes()["received"] == deliveries
        assert {"duplicate", "conflict", "malformed", "topic", "retained", "other_campaign"} <= set(store.outcomes())
        assert compare(again, beside) == []
    with open_results(driver.store) as results, open_results(server) as embedded:
        # The cells are equal. Their order in the two databases differs, and so do the last digits of sums of floats.
        pairs = zip(results.estimates(groups=None), embedded.estimates(groups=None), strict=True)
        for ours, theirs in pairs:
            for field in fields(ours):
                mine, its = getattr(ours, field.name), getattr(theirs, field.name)
                assert mine == (pytest.approx(its, rel=1e-9) if isinstance(its, float) else its), field.name
        assert len(results.estimates(groups=None)) > 10


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.services
def test_killed_between_the_two_commits_it_counts_once(tmp_path: Path, postgres: Postgres) -> None:
    deliveries = land(tmp_path, 5000, 10)
    driver = Driver(tmp_path, postgres.new_database(), "local[2]", files=5, partitions=2, buckets=16)
    driver.start("after_commit", 1)
    assert driver.wait() == -signal.SIGKILL, driver.log()
    driver.start()
    assert driver.wait() == 0, driver.log()
    assert "batch 0 was in the store already" in driver.log()
    check(driver, 50_000, deliveries)


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, 1)])
def test_the_jvm_ends_first(tmp_path: Path, number: int, code: int) -> None:
    """When systemd stops a unit, the JVM gets SIGTERM, too.

    SIGKILL is what the kernel sends when the memory is used up.
    """
    driver = Driver(tmp_path, str(tmp_path / "store"), "local[2]", partitions=2, once=False, seconds=0)
    with open_store(tmp_path / "server", campaign="meters") as server:
        landed.bind(server)
        landed.land_slot(driver.landing, server, landed.EPOCHS[1], landed.START, 60)
    driver.start()
    wait_for(lambda: driver.batches > 0 or not driver.running, 300, "a batch")
    assert driver.running, driver.log()
    driver.signal_all(number)
    assert driver.wait(120) == code, driver.log()
    assert ("Spark's JVM has ended" in driver.log()) == (number == signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.services
def test_an_epoch_that_begins_while_it_counts(tmp_path: Path, postgres: Postgres) -> None:
    first, second = landed.EPOCHS
    driver = Driver(tmp_path, postgres.new_database(), "local[2]", [first], partitions=2, once=False, seconds=0)
    with (
        open_store(tmp_path / "server.sqlite", campaign="meters") as server,
        open_store(driver.store, campaign="meters") as store,
    ):
        landed.bind(server, [first])
        landed.land_slot(driver.landing, server, first, FIRST + 1, 500)
        driver.start()
        wait_for(lambda: store.outcomes()["counted"] == 500 or not driver.running, 900, "the first epoch")
        for opened in (store, server):
            opened.add_epoch(second)
        landed.land_slot(driver.landing, server, second, landed.START + 1, 700)
        wait_for(lambda: store.outcomes()["counted"] == 1200 or not driver.running, 900, "the second epoch")
        assert driver.running, driver.log()
        assert driver.stop() == 0, driver.log()
        assert compare(recount(driver.landing, store.epochs()), store) == []
        assert store.partial() == server.partial()


@pytest.mark.slow
@pytest.mark.services
def test_two_million_reports_and_kills_at_random(tmp_path: Path, postgres: Postgres) -> None:
    chance = random.Random(4)
    deliveries = land(tmp_path, 200_000, 10)
    driver = Driver(tmp_path, postgres.new_database(), "local-cluster[2,1,1024]", files=4, partitions=4, buckets=64)
    driver.start("after_commit", 3)
    assert driver.wait() == -signal.SIGKILL, driver.log()

    def start_and_count() -> None:
        before = driver.batches
        driver.start()
        wait_for(lambda: driver.batches > before or not driver.running, 900, "a batch")

    for _ in range(4):
        start_and_count()
        driver.kill_executor(chance)
        time.sleep(chance.uniform(0, 10))
        driver.kill()
    start_and_count()
    driver.kill_executor(chance)
    assert driver.wait() == 0, driver.log()
    assert driver.killed_executors >= 3
    assert "was in the store already" in driver.log()
    check(driver, 2_000_000, deliveries)

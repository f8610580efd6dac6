"""Benchmark of workers that share one campaign on PostgreSQL: one, two and four processes on the same backlog.

It runs twice. With a stand-in for the broker that sends prepared packets, only workers and database are measured. With
two mosquitto brokers, the brokers' processor time is shown as well, because brokers and workers together fill four
cores before four workers run.
"""

import contextlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.ingest.shared_plan import write_plan
from undertone_aggregator.mqtt import credentials, packets
from undertone_aggregator.mqtt.addresses import brokers_as_json
from undertone_aggregator.mqtt.link import Address
from undertone_aggregator.mqtt.sessions import open_intake
from undertone_aggregator.store.leases import COORDINATOR
from undertone_aggregator.store.store import Store, open_store
from undertone_shared.errors import Invalid
from undertone_simulator.mosquitto import HOST, Mosquitto, free_port
from undertone_studies.backlog import numbered, plan_of, reports_of
from undertone_studies.bench import ingest as bench
from undertone_studies.private_postgres import MISSING, Postgres, folder_of_binaries
from undertone_studies.processor import check_proc, family_seconds, processor_seconds
from undertone_studies.registry import StudyOptions
from undertone_studies.row import Measured, rate

TITLE = "Several workers on one database"

_PARTITIONS = 8
_BROKERS = 2
_GOALS = {2: 1.6, 4: 2.2}
_PATIENCE_SECONDS = 120.0
_WINDOW = 1000


@dataclass(frozen=True)
class Shift:
    """Reports per second, and processor time per report in µs.

    The processor times are those of the workers, of the database, and of the brokers or their stand-in.
    """

    rate: float
    workers: float
    database: float
    brokers: float


def run(options: StudyOptions) -> list[Measured]:
    """Measure reports per second and processor time per report.

    Raises Invalid without PostgreSQL, mosquitto or /proc.
    """
    check_proc()
    if folder_of_binaries() is None:
        raise Invalid(MISSING)
    reports, rounds = (16_000, 1) if options.quick else (400_000, 3)
    rows: list[Measured] = []
    with contextlib.closing(Postgres(free_port())) as database:
        for name, measure, size in (("stand-in", by_stand_in, reports), ("mosquitto", by_mosquitto, reports // 2)):
            runs = [{workers: measure(database, workers, size) for workers in (1, 2, 4)} for _ in range(rounds)]
            best = {
                workers: max((drains[workers] for drains in runs), key=lambda drain: drain.rate)
                for workers in (1, 2, 4)
            }
            rows += _rows(name, best)
    return rows


def _rows(name: str, best: dict[int, Shift]) -> Iterator[Measured]:
    for workers, drain in best.items():
        what = f"{workers} worker{'s' if workers > 1 else ''}, {name}"
        goal = _GOALS.get(workers) if name == "stand-in" else None
        if workers > 1:
            yield rate(what, drain.rate, "reports/s", "1 worker", best[1].rate, goal)
        else:
            yield Measured(what, drain.rate, "reports/s")
        for who, used in (("workers", drain.workers), ("PostgreSQL", drain.database), (name, drain.brokers)):
            yield Measured(f"{what}: {who}", used, "CPU µs/report")
        cores = drain.rate * (drain.workers + drain.database + drain.brokers) / 1e6
        yield Measured(f"{what}: all of them", cores, "cores")


def by_stand_in(database: Postgres, workers: int, reports: int) -> Shift:
    command = [sys.executable, "-m", "undertone_studies.stand_in", str(_PARTITIONS), str(reports)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        address = Address(HOST, int(child.stdout.readline()), credentials.AGGREGATOR, bench.PASSWORD, keepalive=600)

        def go(store: Store) -> None:
            assert child.stdin is not None
            child.stdin.write(b"go\n")
            child.stdin.flush()

        try:
            return _measure(database, workers, reports, [address], lambda: processor_seconds([child.pid]), go, True)
        finally:
            child.stdin.close()


def by_mosquitto(database: Postgres, workers: int, reports: int) -> Shift:
    plan, campaign = plan_of(_PARTITIONS), bench.make_campaign()
    with contextlib.ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(_BROKERS)]
        brokers = [stack.enter_context(bench.broker_in(folder)) for folder in folders]
        addresses = [
            Address(broker.host, broker.port, credentials.AGGREGATOR, bench.PASSWORD, keepalive=600)
            for broker in brokers
        ]
        backlog = reports_of(campaign, _PARTITIONS, reports)
        for partition in range(_PARTITIONS):
            intake = open_intake(addresses, plan(partition), print)
            while not intake.ready:
                intake.take(0.1)
            intake.close()
        senders = [
            threading.Thread(target=_publish, args=(address, list(chain(*backlog[number::_BROKERS]))))
            for number, address in enumerate(addresses)
        ]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        used = _broker_seconds(brokers)
        return _measure(database, workers, reports, addresses, used, lambda _: None, False)


def _broker_seconds(brokers: list[Mosquitto]) -> Callable[[], float]:
    return lambda: processor_seconds(broker.pid for broker in brokers if broker.pid)


def _measure(
    database: Postgres,
    workers: int,
    reports: int,
    addresses: list[Address],
    brokers_used: Callable[[], float],
    go: Callable[[Store], None],
    waits: bool,
) -> Shift:
    """Measure one run with these workers.

    If ``waits``, the backlog is sent when ``go`` is called, after every partition has an owner. Otherwise it is sent as
    soon as the workers run and have a plan.
    """
    url = database.new_database()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack, open_store(url) as store:
        password_file = Path(folder) / "password"
        password_file.write_text(bench.PASSWORD, encoding="utf-8")
        store.set_meta({"campaign": bench.CAMPAIGN})
        store.add_epoch(Epoch(bench.make_campaign(), bench.NOW))
        plan = plan_of(_PARTITIONS)
        assert store.leases is not None
        store.leases.reset([COORDINATOR, *(plan(partition).share.name for partition in range(_PARTITIONS))])
        children = [stack.enter_context(_worker(url, password_file, _PARTITIONS // workers)) for _ in range(workers)]
        pids = [child.pid for child in children]
        for child in children:
            _wait(lambda child=child: b"no server has begun" in child.stderr.readline())  # type: ignore[misc]
        store.set_meta({"broker_secret": bench.CAMPAIGN})
        used = family_seconds(database.pid), processor_seconds(pids), brokers_used()
        write_plan(store, plan(0), brokers_as_json(addresses))
        if waits:
            _wait(store.leases.begun)
            used = family_seconds(database.pid), processor_seconds(pids), brokers_used()
            go(store)
            began = time.perf_counter()
        else:
            _wait(lambda: store.outcomes()["received"] > 0)
            began = time.perf_counter()
        _wait(lambda: store.outcomes()["received"] >= reports)
        wall = time.perf_counter() - began
        now = family_seconds(database.pid), processor_seconds(pids), brokers_used()
        counted = store.outcomes()
        if counted["counted"] != reports:
            raise RuntimeError(f"the workers counted {counted}, expected {reports} reports")
        in_database, in_workers, in_brokers = (
            (after - before) / reports * 1e6 for before, after in zip(used, now, strict=True)
        )
        return Shift(reports / wall, in_workers, in_database, in_brokers)


@contextlib.contextmanager
def _worker(url: str, password_file: Path, most: int) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "undertone_studies.joined", url, str(password_file), str(most)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        try:
            yield child
        finally:
            assert child.stdin is not None
            child.stdin.close()
            child.wait(60)


def _publish(address: Address, reports: list[tuple[bytes, bytes]]) -> None:
    """Publish at QoS 1, a window at a time; return when the broker has acknowledged all."""
    with socket.create_connection((address.host, address.port)) as connection:
        connection.sendall(packets.connect("bench-publisher", address.user, address.password, 600, clean=True))
        _receive(connection, 4)
        for first in range(0, len(reports), _WINDOW):
            window = reports[first : first + _WINDOW]
            connection.sendall(b"".join(numbered(i, *report) for i, report in enumerate(window)))
            _receive(connection, 4 * len(window))
        connection.sendall(packets.GOODBYE)


def _receive(connection: socket.socket, size: int) -> None:
    while size:
        data = connection.recv(size)
        if not data:
            raise RuntimeError("the broker closed the connection")
        size -= len(data)


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"a step of the benchmark did not end within {_PATIENCE_SECONDS:g} s")
        time.sleep(0.01)

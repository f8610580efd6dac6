"""Several servers and workers of one campaign, as child processes on one PostgreSQL database.

Tests ask which roles they have.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

from support import deliveries
from support.child_server import CAMPAIGN
from support.waiting import wait_for
from undertone_aggregator.store.leases import COORDINATOR
from undertone_aggregator.store.store import StoreError, open_store

FOLDER = Path(deliveries.__file__).parent
NOW = 1_800_000_000
PREFIX = "undertone-test/server"
PARTITIONS = 4


class Site:
    """Servers and workers, as if on several machines, with a clock that stands still.

    ``brokers``: lines of [broker].
    """

    def __init__(self, folder: Path, store: str, brokers: str, lease_seconds: int, batch: int = 20) -> None:
        self.folder = folder
        self.store = store
        self.lease_seconds = lease_seconds
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "password").write_text(deliveries.PASSWORD, encoding="utf-8")
        (folder / "c.toml").write_text(
            f"""
[broker]
mode = "external"
password_file = "password"
prefix = "{PREFIX}"
{brokers}
[store]
path = "{store}"
audit = true
{CAMPAIGN}
[server]
batch = {batch}
batch_milliseconds = 5
partitions = {PARTITIONS}
lease_seconds = {lease_seconds}
""",
            encoding="utf-8",
        )

    def server(self, name: str) -> None:
        """Start `undertone serve FILE`, which may become the coordinator and has its own worker."""
        self._start(name, "aggregate_child.py", self.folder / "c.toml", "nowhere", "-1")

    def worker(self, name: str) -> None:
        """Start `undertone worker`."""
        self._start(name, "worker_child.py", self.store, self.folder / "password", self.folder / f"{name}.stop")

    def stop_before_commit(self, name: str) -> None:
        """Let the worker stop (SIGSTOP) after it has judged its next batch and before it has committed it."""
        (self.folder / f"{name}.stop").touch()

    def _start(self, name: str, child: str, *arguments: str | Path) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            environment = {"UNDERTONE_TEST_NOW": str(NOW), "OPENBLAS_NUM_THREADS": "1"}
            self._children[name] = subprocess.Popen(
                [sys.executable, FOLDER / child, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment, "PYTHONPATH": str(FOLDER.parent)},
            )

    def send(self, name: str, how: signal.Signals) -> None:
        """Send a signal to one of the processes."""
        self._children[name].send_signal(how)
        if how == signal.SIGKILL:
            self._children.pop(name).wait(120)

    def end(self, name: str) -> None:
        """End a process in order."""
        child = self._children.pop(name)
        child.terminate()
        assert child.wait(120) == 0, self.log(name)

    def close(self) -> None:
        for child in self._children.values():
            child.kill()
            child.wait()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")

    def is_stopped(self, name: str) -> bool:
        """Whether a process is stopped by a signal, or has ended."""
        return not runs(self._children[name].pid)

    def owners(self) -> dict[str, str]:
        """Role -> the child that has it, "" if nobody has it, or "gone" if a child that has ended has it."""
        by_pid = {child.pid: name for name, child in self._children.items()}
        with open_store(self.store, read_only=True) as store:
            assert store.leases is not None
            owners = store.leases.owners()
        return {role: owner and by_pid.get(int(owner.split("-")[-2]), "gone") for role, owner in owners.items()}

    def coordinator(self) -> str:
        return self.owners().get(COORDINATOR, "")

    def wait_until_shared(self, *names: str, seconds: float = 120.0) -> None:
        """Wait until each of these processes has partitions, and no other process has any."""

        def shared() -> bool:
            owners = {owner for role, owner in self.owners().items() if role != COORDINATOR}
            return owners == set(names)

        try:
            wait_for(shared, seconds, f"partitions of {', '.join(names)}")
        except AssertionError as failed:
            failed.add_note(f"owners: {self.owners()}")
            for name in self._children:
                failed.add_note(f"the end of {name}'s log:\n{self.log(name)[-2000:]}")
            raise


def runs(pid: int) -> bool:
    """Whether the process exists, has not ended and is not stopped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "TZ"
    except FileNotFoundError:
        return False


class Watchman:
    """Asks again and again which process has which role.

    ``longest``: for each role, the longest time without an owner that runs.
    """

    def __init__(self, site: Site) -> None:
        self.longest: dict[str, float] = defaultdict(float)
        self._site = site
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        owned: dict[str, float] = {}
        while not self._stop.wait(0.1):
            try:
                with open_store(self._site.store, read_only=True) as store:
                    assert store.leases is not None
                    while not self._stop.wait(0.1):
                        owners = store.leases.owners()
                        now = time.monotonic()
                        for role, owner in owners.items():
                            self.longest[role] = max(self.longest[role], now - owned.setdefault(role, now))
                            if owner and runs(int(owner.split("-")[-2])):
                                owned[role] = now
            except StoreError:
                # The database is away, and the time without an owner goes on.
                continue

"""The server as a child process on one store. A test starts and ends it at will."""

import os
import resource
import signal
from pathlib import Path

from support import aggregate_child, deliveries
from support.forked import Child
from support.private_broker import TLS
from support.waiting import wait_for
from undertone_aggregator.store.store import LOCK_SECONDS, open_store
from undertone_shared.campaign import Campaign
from undertone_simulator.mosquitto import Mosquitto

NOW = 1_800_000_000
PREFIX = "undertone-test/server"
# With a full disk, the server cannot make a file larger than this many bytes.
FULL = 4096
CAMPAIGN = """\
[campaign]
name = "meters"
sensor = "load"
unit = "Wh"
bound = 1000
epsilon = 4
slot_seconds = 1
rounds = [40]
cells = 16
"""


class Server:
    """The server as a child process on one store, with a clock that stands still.

    ``broker``: the lines of the table [broker].
    """

    def __init__(self, folder: Path, broker: str, workers: int = 1) -> None:
        self.folder = folder
        self.store = folder / "s.sqlite"
        self._process: Child | None = None
        (folder / "password").write_text(deliveries.PASSWORD, encoding="utf-8")
        self._broker = broker
        self.configure(workers)

    def configure(self, workers: int, further: str = "") -> None:
        (self.folder / "c.toml").write_text(
            f"""
[broker]
{self._broker}
prefix = "{PREFIX}"
[store]
path = "s.sqlite"
audit = true
{CAMPAIGN}
[server]
workers = {workers}
batch = 20
batch_milliseconds = 5
{further}""",
            encoding="utf-8",
        )

    def start(self, place: str = "nowhere", passages: int = -1, *, full: bool = False) -> None:
        """Start the server. ``full``: as if the disk had no room, until `make_room` is called."""
        self._process = self._child(self.folder / "log", place, passages, FULL if full else None)

    def _child(
        self,
        log: Path,
        place: str = "nowhere",
        passages: int = -1,
        largest_file: int | None = None,
        lock_seconds: float = LOCK_SECONDS,
    ) -> Child:
        return Child(
            aggregate_child.main,
            self.folder / "c.toml",
            place,
            passages,
            lock_seconds,
            log=log,
            environment={**os.environ, "UNDERTONE_TEST_NOW": str(NOW), "OPENBLAS_NUM_THREADS": "1"},
            largest_file=largest_file,
        )

    def second(self) -> tuple[int, str]:
        """Start another server on this configuration, which soon ends by itself. Return its exit code and its log."""
        log = self.folder / "second.log"
        code = self._child(log, lock_seconds=0.2).wait(240)
        return code, log.read_text(encoding="utf-8")

    def make_room(self) -> None:
        """Let the files of the server and its workers grow from now on."""
        assert self._process is not None
        tasks = Path(f"/proc/{self._process.pid}/task").glob("*/children")
        children = [int(word) for task in tasks for word in task.read_text(encoding="utf-8").split()]
        for pid in (*children, self._process.pid):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self._process is not None
        self._process.send_signal(how)
        code = self._process.wait(120)
        self._process = None
        return code

    def begin_campaign(self) -> Campaign:
        """Run until the campaign is issued, so that the broker keeps reports from then on."""
        self.start()
        wait_for(lambda: not self.running or (self.store.exists() and self._epochs() > 0), what="the first epoch")
        assert self.end() == 0, self.log()
        with open_store(self.store, read_only=True) as store:
            return store.epochs()[0].campaign

    def _epochs(self) -> int:
        try:
            with open_store(self.store, read_only=True) as store:
                return store.epoch_count()
        except Exception:
            return 0

    def deliveries(self) -> int:
        with open_store(self.store, read_only=True) as store:
            return store.outcomes()["received"]

    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8")


def external(broker: Mosquitto) -> str:
    """The lines of the table [broker] for a broker that a test runs."""
    lines = f'mode = "external"\nport = {broker.port}\npassword_file = "password"'
    tls = isinstance(broker, deliveries.TlsBroker)
    return lines + (f'\nhost = "localhost"\nca_file = "{TLS}/ca.pem"' if tls else "")

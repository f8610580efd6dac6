"""Reports from a folder: another program writes each report as a file there, and the server deletes what it has stored.

A report's file is ``CAMPAIGN/anything.report``: the topic, a line feed, the payload. The program writes the file under
another name and renames it. The server writes campaigns and estimates into files of the same folder, whose names are
their topics with + for /.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from undertone_aggregator.base.log import Journal
from undertone_aggregator.ingest.ingest import IngestPlan, Say
from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.mqtt.link import always
from undertone_aggregator.mqtt.sessions import take_over_direct
from undertone_aggregator.mqtt.source import Source
from undertone_aggregator.settings.config import Config
from undertone_aggregator.store.store import Store


class FolderIntake:
    """Delivers the files of one campaign's folder, and deletes them when they are acknowledged."""

    ready = True

    def __init__(self, folder: Path, batch: int) -> None:
        self._folder = folder
        self._batch = batch
        self._delivered: set[Path] = set()

    def take(self, seconds: float) -> list[Delivery]:
        files = sorted(set(self._folder.glob("*.report")) - self._delivered)[: self._batch]
        if not files:
            time.sleep(seconds)
        self._delivered.update(files)
        parts = ((file, *file.read_bytes().partition(b"\n")) for file in files)
        return [Delivery(topic.decode(errors="replace"), payload, False, file) for file, topic, _, payload in parts]

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            file = Path(str(delivery.receipt))
            file.unlink()
            self._delivered.discard(file)

    def close(self) -> None:
        pass


class FolderOutlet:
    """Writes campaigns and estimates into the folder."""

    dropped: int | None = None
    stored: int | None = None
    connected = settled = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.heard: dict[str, bytes] = {}

    def retained(self, topic: str, stop: threading.Event) -> bytes | None:
        return None

    def start(self) -> None:
        pass

    def publish(
        self, topic: str, payload: bytes, *, again: bool = False, permitted: Callable[[], bool] = always
    ) -> None:
        (self._folder / topic.replace("/", "+")).write_bytes(payload)

    def stop(self) -> None:
        pass


class FolderSource:
    """The source: a folder with a folder for each campaign."""

    files: Sequence[Path] = ()
    outlives = False

    def __init__(self, folder: Path, batch: int) -> None:
        self._folder = folder
        self._batch = batch

    def serve(self, campaigns: Collection[str]) -> None:
        for name in campaigns:
            (self._folder / name).mkdir(parents=True, exist_ok=True)

    def open_intake(self, plan: IngestPlan, say: Say) -> FolderIntake:
        return FolderIntake(self._folder / plan.campaign, self._batch)

    def take_over(
        self,
        store: Store,
        plan: IngestPlan,
        say: Say,
        clock: Callable[[], float],
        stop: threading.Event,
        taken: Collection[int] = (),
    ) -> IngestPlan:
        return take_over_direct(store, plan, say)

    def outlet(self, prefix: str, say: Say) -> FolderOutlet:
        return FolderOutlet(self._folder)

    def reload(self) -> None:
        pass

    def facts(self) -> Mapping[str, int]:
        return {"waiting": sum(1 for _ in self._folder.glob("*/*.report"))}


@contextlib.contextmanager
def report_folder(config: Config, journal: Journal) -> Iterator[Source]:
    """Open the source: the folder that [broker] directory names."""
    folder = config.path(config.broker.directory)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    yield FolderSource(folder, config.server.batch)

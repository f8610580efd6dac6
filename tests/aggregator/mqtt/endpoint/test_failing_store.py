"""A disk fails for a while.

Only reports that are stored are acknowledged. The others are stored and acknowledged once the disk works again.
"""

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.direct import CAMPAIGN, Device, password
from support.memory_store import MemoryStore
from support.server import FIRST, PREFIX, delivery, two_epochs
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.ingest import ingest as module
from undertone_aggregator.ingest.ingest import Ingest, IngestPlan
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.endpoint.endpoint import Endpoint
from undertone_aggregator.mqtt.endpoint.gate import Gate
from undertone_aggregator.mqtt.endpoint.limits import Limits
from undertone_aggregator.mqtt.endpoint.listener import Listener
from undertone_aggregator.store.store import Batch, StoreError

OLD, _ = two_epochs()
REPORTS = 60


class Flaky(MemoryStore):
    """A store whose disk is full while ``full`` is set. Otherwise, every third commit fails."""

    def __init__(self) -> None:
        super().__init__()
        self.full = threading.Event()
        self._commits = 0

    def commit(self, worker: str, batch: Batch, snapshots: Mapping[str, bytes] | None = None) -> None:
        self._commits += 1
        if self.full.is_set() or self._commits % 3 == 0:
            raise StoreError("database or disk is full")
        super().commit(worker, batch, snapshots)


def test_nothing_is_acknowledged_that_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.02)
    users = [f"d{number}" for number in range(5)]
    credentials.write_passwords(tmp_path / "passwords", {user: password(user) for user in users})
    store = Flaky()
    store.set_meta({"campaign": CAMPAIGN})
    store.add_epoch(OLD)
    plan = IngestPlan(PREFIX, CAMPAIGN, 1, cells_of)
    limits = Limits(burst=10_000)
    with Endpoint(Listener(port=0), Gate(tmp_path / "passwords"), limits, PREFIX, batch=20) as endpoint:
        endpoint.listen()
        stop = threading.Event()
        ingest = Ingest(plan, store, endpoint.open(CAMPAIGN, 1), clock=lambda: FIRST + 200.5)
        thread = threading.Thread(target=ingest.run, args=(stop, lambda ready: None))
        thread.start()
        devices = [Device(endpoint.port, user) for user in users]
        for device in devices:
            device.wait("connected")

        def send(first: int, count: int) -> None:
            for slot in range(first, first + count):
                for device in devices:
                    topic, payload = delivery(OLD.campaign, device.user, FIRST + slot, 1, slot + 1)
                    device.publish([payload], to=topic)

        send(0, REPORTS // 2)
        for device in devices:
            device.wait("acked", count=REPORTS // 2)
        kept = store.outcomes()["counted"]
        assert kept == REPORTS // 2 * len(devices)
        store.full.set()
        send(REPORTS // 2, REPORTS // 2)
        for device in devices:
            with pytest.raises(AssertionError, match="no acked"):
                device.wait("acked", 0.3)
        assert store.outcomes()["counted"] == kept
        store.full.clear()
        for device in devices:
            device.wait("acked", count=REPORTS // 2)
        stop.set()
        thread.join()
        for device in devices:
            device.close()
    assert store.outcomes() == {"counted": REPORTS * len(devices), "received": REPORTS * len(devices)}

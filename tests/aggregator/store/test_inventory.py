"""The inventory in the store, and how admission refuses a revoked device, report by report and in the fast path."""

from collections import Counter

import pytest

from support.list_intake import ListIntake
from support.memory_store import MemoryStore
from support.server import FIRST, PREFIX, delivery, two_epochs
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.counts.seen import device_key
from undertone_aggregator.ingest.fast_path import LEAST
from undertone_aggregator.ingest.ingest import Ingest, IngestPlan
from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.store.inventory import ACTIVE, FORGOTTEN, REVOKED, Device, key_text, tombstone

OLD, _ = two_epochs()
DEVICES = 2 * LEAST


def ingest(store: MemoryStore) -> Ingest:
    store.set_meta({"campaign": "meters"})
    if not store.epoch_count():
        store.add_epoch(OLD)
    plan = IngestPlan(PREFIX, "meters", 1, cells_of, audit=True)
    return Ingest(plan, store, ListIntake([]), clock=lambda: FIRST + 90)


def reports(slot: int, sequence: int) -> list[Delivery]:
    made = [delivery(OLD.campaign, f"d{number}", slot, 0, sequence) for number in range(DEVICES)]
    return [Delivery(topic, payload, False, None) for topic, payload in made]


@pytest.mark.parametrize("together", [True, False])
def test_a_revoked_device_is_refused_from_then_on_and_its_past_stays(together: bool) -> None:
    store = MemoryStore()
    running = ingest(store)

    def take(slot: int, sequence: int) -> Counter[str]:
        before = store.outcomes()
        for some in [reports(slot, sequence)] if together else [[single] for single in reports(slot, sequence)]:
            assert running.commit(some)
        return store.outcomes() - before

    assert take(FIRST + 50, 1)["counted"] == DEVICES
    store.set_devices([Device("d3", "all", REVOKED, 0), Device("d4", "all", ACTIVE, 0)])
    assert take(FIRST + 51, 2) == {"counted": DEVICES - 1, "revoked": 1, "received": DEVICES}
    assert store.partial(FIRST + 50, FIRST + 50).reports == DEVICES
    assert {device for device, _, outcome in store.audit() if outcome == "revoked"} == {"d3"}
    # The device is still revoked after a restart.
    running = ingest(store)
    assert take(FIRST + 52, 3)["revoked"] == 1


def test_who_is_forgotten_stays_refused_and_hides_no_other_revocation() -> None:
    """To forget a device's name does not let the device in. Its reports that still wait at the broker are refused."""
    store = MemoryStore()
    running = ingest(store)
    store.set_devices([Device("d3", "all", REVOKED, 0)])
    assert running.commit(reports(FIRST + 50, 1))
    assert store.outcomes()["revoked"] == 1
    # Forgetting d3 leaves the number of revoked devices as it is.
    store.set_devices([tombstone(Device("d3", "all", REVOKED, 0), 1)], without=["d3"])
    store.set_devices([Device("d4", "all", REVOKED, 1)])
    assert running.commit(reports(FIRST + 51, 2))
    assert store.outcomes()["revoked"] == 3
    assert ingest(store).commit(reports(FIRST + 52, 3))
    assert store.outcomes()["revoked"] == 5


def test_a_tombstone_names_nobody() -> None:
    left = tombstone(Device("meter-17", "north", REVOKED, 5), 9)
    assert left == Device(f"{device_key('meter-17')[1]:016x}", "", FORGOTTEN, 9)
    assert left.name == key_text("meter-17")
    assert "meter" not in left.name

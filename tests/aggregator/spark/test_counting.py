"""What Spark's executors run, tested without Spark: divided into any batches and buckets, it counts as the server."""

import random
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from support.hostile import EPOCHS, GROUPS, stream_of
from support.list_intake import ListIntake
from support.memory_store import MemoryStore
from support.server import FIRST, PREFIX
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.ingest import ledger
from undertone_aggregator.ingest.admission import REASONS
from undertone_aggregator.ingest.ingest import Ingest, IngestPlan
from undertone_aggregator.ingest.landing import files_of
from undertone_aggregator.settings.landing_plan import SERVER, LandingPlan
from undertone_aggregator.spark.counting import UNKNOWN, Counting, batch_of
from undertone_shared.errors import Invalid


class State:
    """The state of a group, with the methods of Spark's own."""

    def __init__(self) -> None:
        self.exists = False
        self.get: Any = None

    def update(self, values: tuple[Any, ...]) -> None:
        self.exists, self.get = True, values


def land(kind: str, chance: random.Random, folder: Path) -> tuple[MemoryStore, pd.DataFrame]:
    """Land a mix of valid and invalid deliveries; return (a server's store, the landed rows)."""
    store = MemoryStore()
    store.set_meta({"campaign": "meters"})
    for epoch in EPOCHS[kind]:
        store.add_epoch(epoch)
    devices, steps = chance.choice([(30, 3), (200, 65), (1000, 120)])
    intake = ListIntake(stream_of(EPOCHS[kind], chance, devices, 5000, 0.1, steps), batch=500)
    plan = IngestPlan(PREFIX, "meters", 1, cells_of, groups=GROUPS, landing=LandingPlan(str(folder), 9, 9, SERVER))
    ingest = Ingest(plan, store, intake, clock=lambda: FIRST + 900)
    while intake.waiting:
        ingest.step()
    rows = pd.concat([pq.read_table(file).to_pandas() for file in files_of(folder)])
    return store, rows.sort_values("place").drop(columns="device")


@pytest.mark.slow_but("1-scalar", "0-turns")
@pytest.mark.parametrize("kind", EPOCHS)
@pytest.mark.parametrize("seed", range(2))
def test_divided_anyhow_it_counts_what_the_server_counts(kind: str, seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    server, rows = land(kind, chance, tmp_path)
    store, buckets = MemoryStore(), chance.choice([1, 3, 16])
    store.set_meta({"campaign": "meters"})
    epochs = server.epochs()
    counting = Counting("meters", [bytes(epoch.campaign.body) for epoch in epochs])
    states: dict[int, State] = {}
    first = number = 0
    while first < len(rows):
        size = chance.choice([1, 30, 700, 2000])
        part, first = rows.iloc[first : first + size], first + size
        given: list[tuple[Any, ...]] = []
        for bucket, frame in part.groupby(part.key % buckets):
            # Spark keeps no order within a bucket, so the rows are shuffled.
            shuffled = frame.sample(frac=1, random_state=chance.randrange(1 << 30))
            frames = iter([shuffled.iloc[: size // 2], shuffled.iloc[size // 2 :]])
            for out in counting((bucket,), frames, states.setdefault(bucket, State())):
                given += out.itertuples(index=False, name=None)
        assert ledger.apply(store, ledger.BatchLedger("q", "c", buckets, number), batch_of("meters", given))
        number += 1
    same = store.partial() == server.partial()
    assert same
    assert store.outcomes() == server.outcomes()
    assert store.conflicts() == server.conflicts()
    assert store.refusals() == server.refusals()
    assert sum(store.refusals().values()) == sum(store.outcomes()[reason] for reason in REASONS) > 0
    assert store.partial().reports > 500
    # If several gaps of a group are open, the order among devices decides which one a late report closes.
    lost, there = sum(store.losses().values()), sum(server.losses().values())
    assert abs(lost - there) <= server.outcomes()["counted"] // 20
    assert lost > 0


def test_an_epoch_that_began_after_the_query_is_named(tmp_path: Path) -> None:
    server, rows = land("scalar", random.Random(5), tmp_path)
    old = server.epochs()[0]
    counting = Counting("meters", [bytes(old.campaign.body)])
    with pytest.raises(Invalid, match=UNKNOWN):
        list(counting((0,), iter([rows]), State()))

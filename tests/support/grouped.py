"""A simulated store that also has reports of groups."""

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from undertone_aggregator.counts.partial import EVERYBODY, Partial
from undertone_aggregator.estimate.publication import SETTLED, settle, tell_groups
from undertone_aggregator.store.inventory import ACTIVE, Device
from undertone_aggregator.store.store import Batch, open_store

# Registered devices of each group.
DEVICES = 450
# How many reports of the first group are lost. The reports of one slot have shown the loss.
LOST = 3


def grouped(made: Path, folder: Path, groups: Sequence[str]) -> Path:
    """Return a copy of a store, in ``folder``.

    Each group has the same reports as all devices, and the first group has lost some.
    """
    store = Path(shutil.copy(made, folder / "groups.sqlite"))
    names = [EVERYBODY, *groups]
    with open_store(store) as opened:
        newest = opened.newest_slot()
        assert newest is not None
        counts = Partial()
        for key, symbols in opened.partial(0, newest).items():
            for group in groups:
                counts.add_counts(key._replace(group=group), symbols)
        opened.set_meta({SETTLED: "0"})
        opened.commit("0of1", Batch(counts, lost=Counter({(groups[0], newest - 10): LOST})))
        opened.set_devices(Device(f"{group}-{n}", group, ACTIVE, 0) for group in names for n in range(DEVICES))
        settle(opened, newest, 10)
        assert tell_groups(opened, 10) == set(names)
    return store

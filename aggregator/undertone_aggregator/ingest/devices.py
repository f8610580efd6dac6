"""A cache of each topic's device: its deduplication key, its group, and its place in a schedule."""

import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.partial import EVERYBODY
from undertone_shared.schedule import Schedule

# The cache is emptied when it holds more than this number of devices; each takes about 200 bytes.
MOST = 1 << 20
UNGROUPED = "other"
_NO_PHASES = np.full((2, 0), -1, dtype=np.int64)

# A function that returns (device, key) of a topic; the key is None if no report is admitted under the topic.
Parse = Callable[[str], tuple[str, int | None]]


class Devices:
    """The devices of topics, one row each. Row -1 stands for every topic under which no report is admitted."""

    def __init__(self, parse: Parse, groups: Mapping[str, str] | None) -> None:
        self._parse = parse
        self._of_device = groups
        self._group_names = [EVERYBODY] if groups is None else sorted({UNGROUPED, *groups.values()})
        self._group_number = {name: number for number, name in enumerate(self._group_names)}
        # Arrays by row: the device's key for deduplication, and the number of the device's group.
        self.keys: NDArray[np.uint64]
        self.groups: NDArray[np.int64]
        self._forget()

    def rows(self, topics: Sequence[str]) -> NDArray[np.int64]:
        """Return the row of each topic, adding rows for new devices."""
        if len(self._known) > MOST:
            self._forget()
        rows = list(map(self._row.get, topics))
        if None in rows:
            rows = [self._learn(topic) if row is None else row for topic, row in zip(topics, rows, strict=True)]
        if self._new_keys:
            self._grow()
        return np.array(rows, dtype=np.int64)

    def known(self, topic: str) -> tuple[str, int | None] | None:
        """Return (device, key) of a topic, adding a row for a new device; None if no report is admitted there."""
        row = self._row.get(topic)
        if row is None:
            if len(self._known) > MOST:
                self._forget()
            row = self._learn(topic)
        return None if row < 0 else self._known[row]

    def name(self, row: int) -> str:
        """Return the device's name."""
        return self._known[row][0]

    def group_name(self, number: int) -> str:
        """Return the name of the group with this number, see ``groups``."""
        return self._group_names[number]

    def places(self, schedule: Schedule, rows: NDArray[np.int64], wanted: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return each device's place [n] in a schedule (`undertone_shared.schedule`), valid where ``wanted``."""
        phases = self._phases.get(schedule.seed, _NO_PHASES)
        if phases.shape[1] < len(self._known):
            more = np.full((2, len(self.keys) - phases.shape[1]), -1, dtype=np.int64)
            phases = self._phases[schedule.seed] = np.concatenate([phases, more], axis=1)
        missing = rows[wanted & (phases[0, rows] < 0)]
        for row in set(missing.tolist()):
            head = hashlib.sha256(schedule.seed + self._known[row][0].encode()).digest()
            phases[:, row] = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:8], "big")
        places: NDArray[np.int64] = np.asarray(schedule.place_of(phases[0, rows], phases[1, rows]))
        return places

    def _learn(self, topic: str) -> int:
        row = self._row.get(topic)
        if row is not None:
            return row
        name, key = self._parse(topic)
        if key is None:
            # A topic without a valid device is not cached, because there may be any number of such topics.
            return -1
        self._row[topic] = row = len(self._known)
        self._known.append((name, key))
        self._new_keys.append(key)
        group = EVERYBODY if self._of_device is None else self._of_device.get(name, UNGROUPED)
        self._new_groups.append(self._group_number[group])
        return row

    def _grow(self) -> None:
        used = len(self._known) - len(self._new_keys)
        if len(self.keys) < len(self._known) + 1:
            # The arrays are doubled, with one more row at the end for index -1.
            more = len(self._known) + 1
            self.keys = np.concatenate([self.keys, np.zeros(more, dtype=np.uint64)])
            self.groups = np.concatenate([self.groups, np.zeros(more, dtype=np.int64)])
        self.keys[used : len(self._known)] = self._new_keys
        self.groups[used : len(self._known)] = self._new_groups
        self._new_keys.clear()
        self._new_groups.clear()

    def _forget(self) -> None:
        self._row: dict[str, int] = {}
        self._known: list[tuple[str, int]] = []
        self._new_keys: list[int] = []
        self._new_groups: list[int] = []
        self._phases: dict[bytes, NDArray[np.int64]] = {}
        self.keys, self.groups = np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=np.int64)

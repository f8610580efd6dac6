"""The half of admission that has a memory: it counts each report once, and adds it to a batch.

`Tally.count` is the definition, one report at a time. `Tally.count_newer` counts many reports at once, as arrays. It
takes reports for a slot that is newer than all slots of the same device. Nearly all reports are of this kind.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.chains import Chains
from undertone_aggregator.counts.columns import Columns
from undertone_aggregator.counts.device_states import DeviceStates
from undertone_aggregator.counts.epochs import Epoch, Timeline
from undertone_aggregator.counts.partial import Key
from undertone_aggregator.counts.seen import (
    CONFLICT,
    COUNTED,
    NEWER,
    Seen,
    newer,
    newest_slots,
    record,
    records,
    unseen,
)
from undertone_aggregator.counts.sequences import MissingReports, Sequences
from undertone_aggregator.ingest.cells import Cells
from undertone_aggregator.store.store import Batch
from undertone_shared.off_board.intake import Report

Mask = NDArray[np.bool_]
Integers = NDArray[np.int64]
Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Admitted:
    """Deliveries [n], as arrays, and which of them are admitted reports with one value each."""

    # [n]: True for the deliveries that every rule without memory admits.
    good: Mask
    # Fields [n] of the reports, with the keys of their devices.
    columns: Columns
    # Digests [n] of the payloads, see `undertone_aggregator.counts.seen.digest`.
    codes: Words
    epochs: Sequence[Epoch]
    # [n]: the index of each report's epoch in ``epochs``.
    epoch: Integers
    # [n]: the number of each report's group, and the function that gives its name.
    groups: Integers
    group_name: Callable[[int], str]


@dataclass(frozen=True)
class Newer:
    """Reports for a slot after the newest slot of their device.

    ``fast`` [n]: True for these reports. ``order``: their indices, sorted by device, and by arrival within a device.
    ``column``: the columns of `Seen` that these reports change, -1 for a new device. ``words``: the new content of
    these columns.
    """

    fast: Mask
    order: Integers
    column: Integers
    words: Words


class Tally:
    """One campaign's memory of some of its shards, or of all.

    ``cells``: a function that returns, for a kind of rule, the object that adds a counted report. ``seen``, ``chains``,
    ``sequences``: the state of deduplication, of streams' chains, of sequence numbers. ``losses``: missing reports of
    all shards.
    """

    def __init__(
        self,
        campaign: str,
        seen: Seen,
        *,
        cells: Callable[[str], Cells],
        chains: Chains | None = None,
        sequences: Sequences | None = None,
        losses: MissingReports | None = None,
    ) -> None:
        self.campaign = campaign
        self.timeline = Timeline(())
        self.cells = cells
        self.seen = seen
        self.chains = Chains() if chains is None else chains
        self.sequences = Sequences() if sequences is None else sequences
        self.losses = MissingReports() if losses is None else losses

    @property
    def states(self) -> DeviceStates:
        """The states of devices, which a store keeps."""
        return DeviceStates(self.seen, self.chains, self.sequences)

    def count(self, rule: Any, received: Report, key: int, group: str, code: int, batch: Batch) -> str:
        """Count a report into ``batch`` if it is the first of its device and slot.

        Returns ``counted``, or the reason why it is not counted, see `Seen.judge`.
        """
        outcome = self.seen.judge(key, received.slot, code)
        if outcome == COUNTED:
            batch.seen += record(key, received.slot, code)
            at = Key(self.campaign, received.fingerprint, received.kind, group, received.slot)
            self.cells(rule.kind).add(rule, received, key, at, self.chains, batch)
            self._note_sequence(key, received.slot, received.sequence, group, batch)
        elif outcome == CONFLICT:
            batch.conflicts[group] += 1
        return outcome

    def newer(self, admitted: Admitted) -> Newer:
        """Return the reports that `count_newer` may take, and count none of them."""
        self.seen.settle()
        columns = admitted.columns
        return _advance(self.seen, admitted.good, columns.device, columns.slot, admitted.codes)

    def count_newer(self, admitted: Admitted, chosen: Newer, batch: Batch) -> None:
        """Count the ``fast`` reports as `count` would. The caller must count the devices' other reports afterwards."""
        at = chosen.order
        if not len(at):
            return
        columns, groups = admitted.columns, admitted.groups
        self.seen.write(chosen.column, chosen.words)
        batch.seen += records(columns.device[at], columns.slot[at], admitted.codes[at])
        batch.outcomes[COUNTED] += len(at)
        # The sort is stable, so that reports with equal keys stay in their order of arrival.
        order = at[np.lexsort((groups[at], columns.kind[at], columns.slot[at], admitted.epoch[at]))]
        differs = np.zeros(len(order) - 1, dtype=bool)
        for field in (admitted.epoch, columns.slot, columns.kind, groups):
            ordered = field[order]
            differs |= ordered[1:] != ordered[:-1]
        ends = [*(np.flatnonzero(differs) + 1).tolist(), len(order)]
        for start, end in itertools.pairwise([0, *ends]):
            part = order[start:end]
            number, slot, kind, group = (int(x[part[0]]) for x in (admitted.epoch, columns.slot, columns.kind, groups))
            campaign = admitted.epochs[number].campaign
            key = Key(self.campaign, campaign.fingerprint, kind, admitted.group_name(group), slot)
            cells = self.cells(campaign.rule.kind)
            cells.add_all(campaign.rule, columns, part, key, self.chains, batch)
        first_slot = self.timeline.epochs[0].campaign.first_slot
        plain, sequences = self.sequences.observe_all(
            columns.device[at], columns.slot[at], columns.sequence[at], first_slot
        )
        batch.sequences += sequences
        for i in np.sort(at[~plain]).tolist():
            device, slot, sequence = (int(field[i]) for field in (columns.device, columns.slot, columns.sequence))
            self._note_sequence(device, slot, sequence, admitted.group_name(int(groups[i])), batch)

    def _note_sequence(self, key: int, slot: int, sequence: int, group: str, batch: Batch) -> None:
        """Add to ``batch`` what the number of a counted report shows about missing reports."""
        first_slot = self.timeline.epochs[0].campaign.first_slot
        missing = self.sequences.observe(key, first_slot, slot, sequence)
        batch.sequences += self.sequences.record(key)
        if missing:
            batch.lost.update(dict(self.losses.note(missing, group, slot)))


def _advance(seen: Seen, good: Mask, devices: Words, slots: Integers, codes: Words) -> Newer:
    """Find reports for slots newer than all earlier ones of their device, and what they change in ``seen``.

    Each device's reports are examined in order of arrival. If a report is not newer, or newer by more than `NEWER`
    slots, or refused by another rule, this report and all later ones of the device are left to `Tally.count`.
    """
    order = np.argsort(devices, kind="stable")
    key, slot = devices[order], slots[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = key[1:] != key[:-1]
    starts = np.flatnonzero(first)
    device = np.cumsum(first) - 1
    keys, begun = key[starts], slot[starts]
    column, words = seen.look_up(keys)
    # A new device gets the words of a device whose newest report was one slot before its first report.
    new = np.flatnonzero((column < 0) & (begun >= 1))
    new = new[~seen.waits(keys[new])]
    if len(new):
        words[:, new] = unseen(keys[new], begun[new])
    is_known = column >= 0
    is_known[new] = True
    newest = newest_slots(words)
    before = np.empty_like(slot)
    before[1:] = slot[:-1]
    before[starts] = newest
    plain = good[order] & is_known[device] & (slot > before) & (slot - newest[device] <= NEWER)
    if not plain.all():
        # If a report is not plain, all later ones of its device are left out as well.
        refused = np.cumsum(~plain)
        plain = refused == (refused - ~plain)[starts][device]
        order, slot, device = order[plain], slot[plain], device[plain]
        first = np.ones(len(order), dtype=bool)
        first[1:] = device[1:] != device[:-1]
        starts = np.flatnonzero(first)
        changed = device[starts]
        column, words = column[changed], words[:, changed]
    fast = np.zeros(len(devices), dtype=bool)
    fast[order] = True
    if len(order):
        words = newer(words, slot, codes[order], starts)
    return Newer(fast, order, column, words)

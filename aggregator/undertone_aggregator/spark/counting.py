"""Code that runs on Spark's executors. It counts one bucket of devices in a batch and updates the bucket's memory."""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.counts.chains import Chains
from undertone_aggregator.counts.columns import Columns
from undertone_aggregator.counts.epochs import Epoch, Timeline
from undertone_aggregator.counts.partial import Key, pack_counts, unpack_counts
from undertone_aggregator.counts.seen import CONFLICT, Seen
from undertone_aggregator.counts.sequences import MissingReports, Sequences
from undertone_aggregator.ingest.landing import RAW
from undertone_aggregator.ingest.tally import Admitted, Tally
from undertone_aggregator.store.store import Batch
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid
from undertone_shared.off_board.intake import Report

# Spark's schemas of a bucket's memory (STATE), and of the rows that counting a bucket returns (ROWS). The column `what`
# says what a row holds. `cells`: a packed histogram. `outcome`: n deliveries have the outcome in `grp`. `missing`: in
# this slot, n more reports are known to be missing (below 0: fewer). `conflicts`: n reports contradict a counted one.
# `refused`: n deliveries that arrived in this slot were refused for the reason in `grp`.
STATE = "seen binary, sequences binary, chains binary, missing string"
ROWS = "what string, grp string, fingerprint long, kind int, slot long, n long, counts binary"
CELLS, OUTCOME, MISSING, CONFLICTS, REFUSED = "cells", "outcome", "missing", "conflicts", "refused"
# Outcome of a report for an epoch that is not in the store.
OTHER_CAMPAIGN = "other_campaign"
UNKNOWN = "a landed report is of the unknown epoch"
_NAMES = [column.split()[0] for column in ROWS.split(", ")]


class Counting:
    """Counts a campaign's reports. ``bodies``: the messages of its epochs. This object is sent to the executors.

    ``refused``: fingerprints of epochs that the store does not know; their reports are refused as `OTHER_CAMPAIGN`.
    """

    def __init__(self, campaign: str, bodies: Sequence[bytes], refused: frozenset[bytes] = frozenset()) -> None:
        self._campaign = campaign
        self._bodies = tuple(bodies)
        self._refused = [int.from_bytes(fingerprint, "big", signed=True) for fingerprint in refused]

    def __call__(self, bucket: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        """Count a bucket's part of a batch: return the counts as rows, and update the bucket's memory."""
        tally = self._recall(state)
        batch = Batch()
        frame = pd.concat(frames).sort_values("place", kind="stable")
        if self._refused:
            unknown = (frame.outcome == RAW) & frame.fingerprint.isin(self._refused)
            frame.loc[unknown, "outcome"] = OTHER_CAMPAIGN
        raw = frame.outcome == RAW
        # Before the first epoch, it is unknown how long a slot is.
        seconds = tally.timeline.epochs[0].campaign.slot_seconds if self._bodies else 0
        arrived = frame.second // max(seconds, 1)
        if seconds:
            together = frame[~raw].groupby(["outcome", arrived[~raw]]).size()
            batch.refused.update({(str(word), int(slot)): int(n) for (word, slot), n in together.items()})
        batch.outcomes.update({str(word): int(n) for word, n in frame.outcome[~raw].value_counts().items()})
        if raw.any():
            count(tally, frame[raw].assign(arrived=arrived[raw]), batch)
        missing = [[group, slot, n] for (group, slot), n in tally.losses.open().items()]
        state.update((tally.seen.snapshot(), tally.sequences.snapshot(), tally.chains.snapshot(), json.dumps(missing)))
        yield pd.DataFrame(rows_of(batch), columns=_NAMES)

    def _recall(self, state: Any) -> Tally:
        seen, sequences, chains = Seen(), Sequences(), Chains()
        losses = MissingReports()
        if state.exists:
            words, numbers, records, missing = state.get
            seen.load([(True, bytes(words))])
            sequences.load([(True, bytes(numbers))])
            chains.load([(True, bytes(records))])
            losses = MissingReports({(group, slot): n for group, slot, n in json.loads(missing)})
        tally = Tally(self._campaign, seen, cells=cells_of, chains=chains, sequences=sequences, losses=losses)
        tally.timeline = _timeline(self._bodies)
        return tally


@lru_cache(maxsize=4)
def _timeline(bodies: tuple[bytes, ...]) -> Timeline:
    return Timeline([Epoch(Campaign(body), 0) for body in bodies])


def count(tally: Tally, raw: pd.DataFrame, batch: Batch) -> None:
    """Count the reports in rows ``raw``, which have passed all checks that need no memory, and add them to ``batch``.

    Column ``arrived``: the slot in which the report arrived. Raises Invalid for a report of an unknown epoch.
    """
    fields = {name: raw[name].to_numpy(np.int64) for name in ("kind", "slot", "chain", "sequence", "value")}
    values = fields.pop("value")
    prints = raw.fingerprint.to_numpy(np.int64).view(np.uint64)
    devices = raw.key.to_numpy(np.int64).view(np.uint64)
    columns = Columns(fingerprint=prints, symbol=values, released=values, device=devices, **fields)
    codes = raw.code.to_numpy(np.int64).astype(np.uint64)
    groups, group_names = pd.factorize(raw.grp)
    names = group_names.tolist()
    kinds, epoch = np.unique(prints, return_inverse=True)
    epochs = [_epoch(tally.timeline, int(number).to_bytes(8, "big")) for number in kinds]
    further, arrived = raw.further.tolist(), raw.arrived.tolist()
    alone = np.fromiter(map(len, further), np.int64, len(further)) == 0
    admitted = Admitted(alone, columns, codes, epochs, epoch, groups.astype(np.int64), names.__getitem__)
    newer = tally.newer(admitted)
    tally.count_newer(admitted, newer, batch)
    for i in np.flatnonzero(~newer.fast).tolist():
        rule = epochs[epoch[i]].campaign.rule
        report = Report(
            int(columns.kind[i]),
            int(prints[i]).to_bytes(8, "big"),
            int(columns.slot[i]),
            (int(values[i]), *map(int, further[i])),
            int(columns.sequence[i]),
            int(columns.chain[i]),
        )
        outcome = tally.count(rule, report, int(devices[i]), names[groups[i]], int(codes[i]), batch)
        batch.outcomes[outcome] += 1
        if outcome == CONFLICT:
            batch.refused[outcome, arrived[i]] += 1


def _epoch(timeline: Timeline, fingerprint: bytes) -> Epoch:
    epoch = timeline.of(fingerprint)
    if epoch is None:
        raise Invalid(f"{UNKNOWN} {fingerprint.hex()}")
    return epoch


def rows_of(batch: Batch) -> list[tuple[Any, ...]]:
    """Convert a bucket's counts to rows that Spark can send."""
    rows: list[tuple[Any, ...]] = [
        (
            CELLS,
            key.group,
            int.from_bytes(key.fingerprint, "big", signed=True),
            key.kind,
            key.slot,
            0,
            pack_counts(counts),
        )
        for key, counts in batch.partial.items()
    ]
    rows += [(OUTCOME, outcome, 0, 0, 0, n, b"") for outcome, n in batch.outcomes.items()]
    rows += [(CONFLICTS, group, 0, 0, 0, n, b"") for group, n in batch.conflicts.items()]
    rows += [(REFUSED, reason, 0, 0, slot, n, b"") for (reason, slot), n in batch.refused.items()]
    return rows + [(MISSING, group, 0, 0, slot, n, b"") for (group, slot), n in batch.lost.items() if n]


def batch_of(campaign: str, rows: Iterable[Sequence[Any]]) -> Batch:
    """Combine the rows of all buckets to a batch, in the driver."""
    batch = Batch()
    for what, group, number, kind, slot, n, counts in rows:
        if what == OUTCOME:
            batch.outcomes[group] += n
        elif what == CONFLICTS:
            batch.conflicts[group] += n
        elif what == MISSING:
            batch.lost[group, slot] += n
        elif what == REFUSED:
            batch.refused[group, slot] += n
        else:
            key = Key(campaign, number.to_bytes(8, "big", signed=True), kind, group, slot)
            batch.partial.add_counts(key, unpack_counts(bytes(counts)))
    return batch

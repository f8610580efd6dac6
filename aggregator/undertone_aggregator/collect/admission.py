"""Admission: every delivery is counted exactly once, or refused for a reason that is counted. Pure; never raises."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.collect.cells import Cells
from undertone_aggregator.collect.chains import Chains
from undertone_aggregator.collect.devices import UNGROUPED, Devices
from undertone_aggregator.collect.epochs import Timeline
from undertone_aggregator.collect.inventory import REVOKED
from undertone_aggregator.collect.partial import EVERYBODY, Key
from undertone_aggregator.collect.seen import CONFLICT, COUNTED, DUPLICATE, UNVERIFIED, Seen, device_key, digest, record
from undertone_aggregator.collect.sequences import MissingReports, Sequences
from undertone_aggregator.collect.store import Batch
from undertone_shared import intake
from undertone_shared.errors import Invalid
from undertone_shared.topics import SHARDS

RETAINED = "retained"
TOPIC = "topic"
SHARD = "shard"
MALFORMED = "malformed"
OTHER_CAMPAIGN = "other_campaign"
TURN = "turn"
WRONG_KIND = "wrong_kind"
SYMBOL = "symbol"
FUTURE = "future"
LATE = "late"

REASONS = {
    RETAINED: "a stored copy, not a fresh report",
    TOPIC: "published where no report belongs",
    SHARD: "the shard in the topic is not the device's",
    MALFORMED: "not a report: length, version, kind or chain",
    OTHER_CAMPAIGN: "made for another campaign, or for a slot outside its epoch",
    REVOKED: "from a device whose operator has revoked it",
    TURN: "not the device's turn in this slot",
    WRONG_KIND: "cohort and report kind mixed up for this device and slot",
    SYMBOL: "a symbol that the mechanism never draws, or a release out of its range",
    FUTURE: "for a slot that is not over yet",
    LATE: "for a slot that ended too long ago",
    CONFLICT: "another report for an interval that was already counted (alarm)",
}
DUPLICATES = {
    DUPLICATE: "the same bytes again",
    UNVERIFIED: "for an interval beyond memory, or too old to compare",
}

LATE_SLOTS = 96
LATE_SECONDS = 2 * 86400
# How far a device's clock may be ahead of ours.
TOLERANCE_SECONDS = 60


class Admission:
    """The rules for one campaign. ``groups``: device -> group; without it everybody is in group ``all``.

    ``cells``: what a counted report of a rule's kind adds. ``seen``, ``chains`` and ``sequences`` are the state of
    deduplication, of streams' chains and of what is missing, for this admission's shards; ``losses``: of all.
    """

    def __init__(
        self,
        prefix: str,
        campaign: str,
        slot_seconds: int,
        seen: Seen,
        *,
        cells: Callable[[str], Cells],
        groups: Mapping[str, str] | None = None,
        audit: bool = False,
        tolerance_seconds: int = TOLERANCE_SECONDS,
        chains: Chains | None = None,
        sequences: Sequences | None = None,
        losses: MissingReports | None = None,
    ) -> None:
        self.seen = seen
        self.sequences = Sequences() if sequences is None else sequences
        self._losses = MissingReports() if losses is None else losses
        self.chains = Chains() if chains is None else chains
        self.timeline = Timeline(())
        self.cells = cells
        self.revoked: frozenset[str] = frozenset()
        self.audit = audit
        self.devices = Devices(self._laned, groups)
        self._campaign = campaign
        self._slot_seconds = slot_seconds
        self._groups = groups
        self._tolerance = tolerance_seconds
        self._late = max(LATE_SLOTS * slot_seconds, LATE_SECONDS)
        # What `report_topic` writes, and nothing else.
        self._topic = re.compile(
            re.escape(f"{prefix}/{campaign}/") + r"(0|[1-9][0-9]?)/([a-z0-9-]{1,32})/report", re.ASCII
        ).fullmatch

    def judge(self, topic: str, payload: bytes, retained: bool, now: int, batch: Batch) -> str:
        """The outcome of one delivery at Unix second ``now``, added to ``batch``: a word of `REASONS`, `DUPLICATES`

        or ``counted``.
        """
        device, key = self.devices.known(topic) or self._device_of(topic)
        outcome = self._judge(device, key, payload, retained, now, batch) if device else TOPIC
        batch.outcomes[outcome] += 1
        if outcome == CONFLICT:
            batch.conflicting.add(device)
        if self.audit:
            batch.audit.append((device, hashlib.sha256(payload).digest()[:8], outcome))
        return outcome

    def in_time(self, slots: NDArray[np.int64], now: int) -> NDArray[np.bool_]:
        """Which slots [n] are neither `FUTURE` nor `LATE`."""
        ends = (slots + 1) * self._slot_seconds
        return (ends <= now + self._tolerance) & (ends >= now - self._late)

    def _device_of(self, topic: str) -> tuple[str, int | None]:
        """(device, key) of a report's topic; no key under another shard than its own, no device for other topics."""
        match = self._topic(topic)
        if match is None:
            return "", None
        home, key = device_key(match[2])
        return match[2], key if int(match[1]) == home else None

    def _laned(self, topic: str) -> tuple[str, int | None]:
        """The same; no key for a revoked device, whose reports are refused one by one."""
        device, key = self._device_of(topic)
        return device, None if device in self.revoked else key

    def revoke(self, names: Iterable[str]) -> None:
        """From now on reports of these devices are refused; what was counted of them stays in its sums."""
        self.revoked = frozenset(names)
        self.devices = Devices(self._laned, self._groups)

    def _judge(self, device: str, key: int | None, payload: bytes, retained: bool, now: int, batch: Batch) -> str:
        if retained:
            return RETAINED
        if key is None:
            return SHARD
        if device in self.revoked:
            return REVOKED
        try:
            came = intake.unpack(payload)
        except Invalid:
            return MALFORMED
        slot, kind = came.slot, came.kind
        span = self.timeline.span(came.fingerprint)
        if span is None or not span[1] <= slot < span[2]:
            return OTHER_CAMPAIGN
        campaign = span[0].campaign
        rule = campaign.rule
        schedule = campaign.schedule
        place = schedule.place_of(*_phases(schedule.seed, device))
        if not schedule.is_turn(place, slot):
            return TURN
        refused = rule.admits(kind, came.values, came.chain, schedule.is_member(place, slot))
        if refused is not None:
            return refused
        outcome = self._first(key, slot, payload, now, batch)
        if outcome == COUNTED:
            at = self._key(came, device, slot)
            self.cells(rule.kind).add(rule, came, key, at, self.chains, batch)
            self.note_sequence(key, slot, came.sequence, at.group, batch)
        return outcome

    def note_sequences(
        self,
        keys: NDArray[np.uint64],
        slots: NDArray[np.int64],
        numbers: NDArray[np.int64],
        groups: Sequence[str],
        batch: Batch,
    ) -> None:
        """The same of many reports [n], in the order of each device."""
        plain = self.sequences.expected(keys, slots, numbers)
        batch.sequences += self.sequences.advance(keys[plain], slots[plain], numbers[plain])
        for i in np.flatnonzero(~plain).tolist():
            self.note_sequence(int(keys[i]), int(slots[i]), int(numbers[i]), groups[i], batch)

    def note_sequence(self, key: int, slot: int, sequence: int, group: str, batch: Batch) -> None:
        """What the number in a counted report says of those that never came."""
        first_slot = self.timeline.epochs[0].campaign.first_slot
        missing = self.sequences.observe(key, first_slot, slot, sequence)
        batch.sequences += self.sequences.record(key)
        if missing:
            batch.lost.update(dict(self._losses.note(missing, group, slot)))

    def _first(self, key: int, slot: int, payload: bytes, now: int, batch: Batch) -> str:
        """``counted`` for a report in time that is the first one of its device and slot; else why it is not."""
        end = (slot + 1) * self._slot_seconds
        if end > now + self._tolerance:
            return FUTURE
        if end < now - self._late:
            return LATE
        code = digest(payload)
        outcome = self.seen.judge(key, slot, code)
        if outcome == COUNTED:
            batch.seen += record(key, slot, code)
        return outcome

    def _key(self, came: intake.Report, device: str, slot: int) -> Key:
        group = EVERYBODY if self._groups is None else self._groups.get(device, UNGROUPED)
        return Key(self._campaign, came.fingerprint, came.kind, group, slot)


@lru_cache(maxsize=1 << 16)
def _phases(seed: bytes, device: str) -> tuple[int, int]:
    """h and h' of `undertone_shared.schedule`: one hash per device and campaign, as long as they fit."""
    head = hashlib.sha256(seed + device.encode()).digest()
    return int.from_bytes(head[:4], "big"), int.from_bytes(head[4:8], "big")


def topic_filters(prefix: str, campaign: str, worker: int, workers: int) -> list[str]:
    """The subscriptions of one of several workers: every ``workers``-th shard; a lone worker takes whatever comes."""
    if workers == 1:
        return [f"{prefix}/{campaign}/+/+/report"]
    return [f"{prefix}/{campaign}/{shard}/+/report" for shard in worker_shards(worker, workers)]


def worker_shards(worker: int, workers: int) -> range:
    """The shards of one of several workers: disjoint, all of them together."""
    return range(worker, SHARDS, workers)

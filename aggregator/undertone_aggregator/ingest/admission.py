"""Admission: decides whether a delivery is counted, refused for a reason, or a duplicate. It raises no error."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.epochs import late_seconds
from undertone_aggregator.counts.partial import EVERYBODY
from undertone_aggregator.counts.seen import CONFLICT, COUNTED, DUPLICATE, UNVERIFIED, Seen, device_key, digest
from undertone_aggregator.ingest.devices import UNGROUPED, Devices
from undertone_aggregator.ingest.tally import Tally
from undertone_aggregator.store.inventory import REVOKED
from undertone_aggregator.store.store import Batch
from undertone_shared.errors import Invalid
from undertone_shared.off_board import intake
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
    RETAINED: "the report is a stored copy, not a fresh one",
    TOPIC: "the message was published where no report belongs",
    SHARD: "the shard in the topic is not the device's",
    MALFORMED: "the message is not a report: its length, version, kind or chain is wrong",
    OTHER_CAMPAIGN: "the report is for an unknown campaign or epoch, or for a slot outside its epoch",
    REVOKED: "the operator has revoked the device",
    TURN: "it was not the device's turn in this slot",
    WRONG_KIND: "the device should send the other kind of report in this slot (for the threshold, or for the mean)",
    SYMBOL: "no honest device sends this symbol, or this number of a stream",
    FUTURE: "the report is for a slot that is not over yet",
    LATE: "the report is for a slot that ended too long ago",
    CONFLICT: "the device had already sent a different report for this slot (alarm)",
}
DUPLICATES = {
    DUPLICATE: "the same bytes came again",
    UNVERIFIED: "the report is for a slot older than all that the server remembers of this device",
}
# All outcomes that a delivery can have.
OUTCOMES = (COUNTED, *REASONS, *DUPLICATES)

# Largest time in seconds by which a device's clock may be ahead of the server's.
TOLERANCE_SECONDS = 60


class Admission(Tally):
    """The rules of one campaign for its reports, with the memory of those that were counted.

    ``groups``: device -> group; None: every device is in the group ``all``.
    """

    def __init__(
        self,
        prefix: str,
        campaign: str,
        slot_seconds: int,
        seen: Seen,
        *,
        groups: Mapping[str, str] | None = None,
        audit: bool = False,
        tolerance_seconds: int = TOLERANCE_SECONDS,
        **memory: Any,
    ) -> None:
        super().__init__(campaign, seen, **memory)
        # Keys of the devices whose reports are refused.
        self.revoked: frozenset[int] = frozenset()
        self.audit = audit
        self.devices = Devices(self._unrevoked, groups)
        self._slot_seconds = slot_seconds
        self._groups = groups
        self._tolerance = tolerance_seconds
        self._late = late_seconds(slot_seconds)
        # Matches the topics that `report_topic` writes, with any shard below 100; `examine` checks the shard.
        self._topic = re.compile(
            re.escape(f"{prefix}/{campaign}/") + r"(0|[1-9][0-9]?)/([a-z0-9-]{1,32})/report", re.ASCII
        ).fullmatch

    def judge(self, topic: str, payload: bytes, retained: bool, now: int, batch: Batch) -> str:
        """Judge one delivery at Unix second ``now``, add it to ``batch``, and return its outcome, one of `OUTCOMES`."""
        outcome, device, key, report, rule = self.examine(topic, payload, retained, now)
        if not outcome and report is not None:
            outcome = self.count(rule, report, key, self.group_of(device), digest(payload), batch)
        batch.outcomes[outcome] += 1
        if outcome in REASONS:
            batch.refused[outcome, now // self._slot_seconds] += 1
        if outcome == CONFLICT:
            batch.conflicting.add(device)
        if self.audit:
            batch.audit.append((device, hashlib.sha256(payload).digest()[:8], outcome))
        return outcome

    def examine(self, topic: str, payload: bytes, retained: bool, now: int) -> "Examined":
        """Apply to one delivery all rules that need no memory of earlier reports."""
        device, key = self.devices.known(topic) or self._device_of(topic)
        if not device:
            return Examined(TOPIC)
        if retained:
            return Examined(RETAINED, device)
        if key is None:
            return Examined(SHARD, device)
        if key in self.revoked:
            return Examined(REVOKED, device, key)
        try:
            report = intake.unpack(payload)
        except Invalid:
            return Examined(MALFORMED, device, key)
        span = self.timeline.span(report.fingerprint)
        if span is None or not span[1] <= report.slot < span[2]:
            return Examined(OTHER_CAMPAIGN, device, key)
        rule, schedule = span[0].campaign.rule, span[0].campaign.schedule
        place = schedule.place_of(*_phases(schedule.seed, device))
        if not schedule.is_turn(place, report.slot):
            return Examined(TURN, device, key)
        refused = rule.admits(report.kind, report.values, report.chain, schedule.is_member(place, report.slot))
        return Examined(refused or self._untimely(report.slot, now), device, key, report, rule)

    def group_of(self, device: str) -> str:
        """Return the group to which a device belongs, in which its reports are counted."""
        return EVERYBODY if self._groups is None else self._groups.get(device, UNGROUPED)

    def in_time(self, slots: NDArray[np.int64], now: int) -> NDArray[np.bool_]:
        """Return which slots [n] end neither too far in the future (`FUTURE`) nor too long ago (`LATE`)."""
        ends = (slots + 1) * self._slot_seconds
        return (ends <= now + self._tolerance) & (ends >= now - self._late)

    def regroup(self, groups: Mapping[str, str]) -> None:
        """Replace the groups, device -> group. Reports already counted stay in their old groups."""
        self._groups = groups
        self.devices = Devices(self._unrevoked, groups)

    def revoke(self, keys: Iterable[int]) -> None:
        """Refuse reports of the devices with these keys. Reports that were counted stay in the sums."""
        self.revoked = frozenset(keys)
        self.devices = Devices(self._unrevoked, self._groups)

    def _untimely(self, slot: int, now: int) -> str:
        end = (slot + 1) * self._slot_seconds
        if end > now + self._tolerance:
            return FUTURE
        return LATE if end < now - self._late else ""

    def _device_of(self, topic: str) -> tuple[str, int | None]:
        """Return (device, key) of a topic; ("", None) if it is no report's topic.

        The key is None if the topic's shard is not that of the device.
        """
        match = self._topic(topic)
        if match is None:
            return "", None
        home, key = device_key(match[2])
        return match[2], key if int(match[1]) == home else None

    def _unrevoked(self, topic: str) -> tuple[str, int | None]:
        """Return `_device_of` a topic, but without the key of a revoked device, so that `judge` refuses its reports."""
        device, key = self._device_of(topic)
        return device, None if key in self.revoked else key


class Examined(NamedTuple):
    """What the checks that need no memory say about one delivery.

    ``refused``: the reason for refusal, empty for a report that may be counted. ``device``: empty if the topic names no
    device. ``key``: the device's key for deduplication. ``report``, ``rule``: the report and its epoch's rule; None if
    an earlier check refused it.
    """

    refused: str
    device: str = ""
    key: int = 0
    report: intake.Report | None = None
    rule: Any = None


@lru_cache(maxsize=1 << 16)
def _phases(seed: bytes, device: str) -> tuple[int, int]:
    """Return h and h' of `undertone_shared.schedule`, cached because they need a hash for each device and campaign."""
    head = hashlib.sha256(seed + device.encode()).digest()
    return int.from_bytes(head[:4], "big"), int.from_bytes(head[4:8], "big")


def topic_filters(prefix: str, campaign: str, worker: int, workers: int) -> list[str]:
    """Return a worker's subscriptions: every ``workers``-th shard, or all topics for a lone worker."""
    if workers == 1:
        return [f"{prefix}/{campaign}/+/+/report"]
    return [f"{prefix}/{campaign}/{shard}/+/report" for shard in worker_shards(worker, workers)]


def worker_shards(worker: int, workers: int) -> range:
    """Return a worker's shards. The shards of different workers are disjoint, and together cover all shards."""
    return range(worker, SHARDS, workers)

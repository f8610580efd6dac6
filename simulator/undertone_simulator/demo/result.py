"""What a demonstration shows at its end: estimates beside the truth that only a simulation knows, costs, accounts."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from undertone_aggregator.collect.epochs import Timeline
from undertone_aggregator.collect.facts import MechanismFacts, mechanism_facts
from undertone_aggregator.collect.store import Store
from undertone_aggregator.estimate.guarantee import certificate, guarantee
from undertone_aggregator.estimate.reconstruct import MEASURED, Reconstruction, Z
from undertone_aggregator.threshold import Threshold
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid
from undertone_shared.intake import unpack
from undertone_shared.report import REPORT
from undertone_simulator.demo.plan import Plan
from undertone_simulator.ledger import Sent
from undertone_simulator.verify import Accounts, counted_reports, outcomes, reconcile

SLOT_KEYS = (
    *("slot", "reports", "estimate", "standard_error", "low", "high", "low_raw", "high_raw"),
    *("truth_truncated", "truth_raw"),
)


@dataclass(frozen=True)
class SlotResult:
    """One report slot. [low, high] is for the mean of the truncated readings of the devices that reported,

    [low_raw, high_raw] for the mean of the readings themselves; the truths are those devices' own. `column` is the
    column of the readings that the slot played.
    """

    slot: int
    column: int
    reports: int
    estimate: float
    standard_error: float
    low: float
    high: float
    low_raw: float
    high_raw: float
    truth_truncated: float
    truth_raw: float


@dataclass(frozen=True)
class Result:
    """Everything that the table, the picture and the JSON show."""

    unit: str
    devices: int
    per_day: int
    start: str
    theta: int
    threshold: Threshold
    epsilon: float
    certificate: Fraction
    guarantee: str
    slots: list[SlotResult]
    accounts: Accounts
    readings_spent: int
    bound: int
    round_readings: list[int]
    mechanism: MechanismFacts | None = None

    @property
    def standardised(self) -> float:
        """Root mean square of (estimate - truth_truncated) / standard_error: near 1 where the prediction is right."""
        errors = [(one.estimate - one.truth_truncated) / one.standard_error for one in self.slots]
        return math.sqrt(float(np.mean(np.square(errors))))

    @property
    def predicted_error(self) -> float:
        """The standard error of the middle slot: one that few devices reported would drown a mean."""
        return float(np.median([one.standard_error for one in self.slots]))

    @property
    def measured_error(self) -> float:
        """What it turned out to be: `standardised` times as large."""
        return self.standardised * self.predicted_error

    @property
    def tolerance(self) -> float:
        """Half the 95 % interval of `standardised` when the prediction is right."""
        return Z / math.sqrt(2 * len(self.slots))

    @property
    def agrees(self) -> bool:
        """Whether `standardised` is within `tolerance` of 1."""
        return abs(self.standardised - 1) <= self.tolerance

    @property
    def worst(self) -> float:
        """The largest |estimate - truth_truncated| in standard errors."""
        return max(abs(one.estimate - one.truth_truncated) / one.standard_error for one in self.slots)

    @property
    def covered(self) -> int:
        """Slots whose interval holds the truncated truth."""
        return sum(one.low <= one.truth_truncated <= one.high for one in self.slots)

    @property
    def covered_raw(self) -> int:
        """Slots whose wider interval holds the raw truth."""
        return sum(one.low_raw <= one.truth_raw <= one.high_raw for one in self.slots)

    def played(self, column: int) -> str:
        """The half-hour of the data that a column is, as day and time of day."""
        day, index = divmod(column, self.per_day)
        minute = index * 1440 // self.per_day
        return f"day {day + 1} {minute // 60:02d}:{minute % 60:02d}"

    def as_json(self) -> dict[str, Any]:
        """The demo's JSON."""
        return {
            "theta": self.theta,
            "epsilon": self.epsilon,
            "certificate": float(self.certificate),
            "guarantee": self.guarantee,
            "slots": [{name: getattr(one, name) for name in SLOT_KEYS} for one in self.slots],
            "accounting": self.accounts.summary(),
        }


def collect(plan: Plan, store: Store, sent: Sent) -> Result:
    """The result of a demonstration that has ended. Raises Invalid if there is nothing to show."""
    timeline = Timeline(store.epochs())
    reporting = [epoch for epoch in timeline.epochs if epoch.campaign.report is not None]
    if not reporting or reporting[0].threshold is None:
        raise Invalid("no report epoch began: the threshold rounds got no reports")
    accounts = reconcile(sent, store)
    truths = _truths(plan, sent, store, {one.campaign.fingerprint: one.campaign for one in reporting})
    first = reporting[0].campaign.first_slot
    estimates = Reconstruction(timeline).estimates(store.partial(first, first + plan.options.slots - 1), ["all"])
    slots = []
    for one in estimates:
        truth = truths.get(one.slot)
        if one.kind != MEASURED or truth is None:
            continue
        slots.append(
            SlotResult(
                one.slot,
                plan.first_column + one.slot - first,
                one.reports,
                one.estimate,
                _there(one.standard_error),
                _there(one.low),
                _there(one.high),
                _there(one.low_raw),
                _there(one.high_raw),
                *truth,
            )
        )
    if not slots:
        raise Invalid("no slot of the report phase has a report")
    theta = reporting[-1].campaign.report
    assert theta is not None
    drawn = Counter(device for device, _ in sent.sent)
    return Result(
        plan.readings.unit or "units",
        len(plan.names),
        plan.readings.per_day,
        plan.readings.start,
        theta.theta,
        reporting[0].threshold,
        float(plan.config.campaign.epsilon),
        max(certificate(epoch.campaign) for epoch in timeline.epochs),
        guarantee(plan.config.campaign.epsilon, plan.config.campaign.cycle),
        slots,
        accounts,
        max(drawn.values(), default=0),
        plan.config.campaign.bound,
        _round_readings(plan),
        mechanism_facts(reporting[-1], plan.config.campaign.epsilon),
    )


def _there(value: float | None) -> float:
    """A number that every measured slot has once a threshold round came before."""
    assert value is not None
    return value


def _truths(plan: Plan, sent: Sent, store: Store, campaigns: dict[bytes, Campaign]) -> dict[int, tuple[float, float]]:
    """(mean of the truncated, mean of the raw readings) of the devices whose reports a slot counts."""
    row = {name: number for number, name in enumerate(plan.names)}
    default = plan.config.campaign.default
    values: dict[int, list[tuple[int, int]]] = {}
    for device, data in counted_reports(sent, outcomes(store)):
        report = unpack(data)
        campaign = campaigns.get(report.fingerprint)
        if report.kind != REPORT or campaign is None or campaign.report is None:
            continue
        first = next(iter(campaigns.values())).first_slot
        reading = plan.readings.at(row[device], plan.first_column + report.slot - first)
        x = default if reading is None else reading
        values.setdefault(report.slot, []).append((min(x, campaign.report.theta), x))
    return {slot: _means(pairs) for slot, pairs in values.items()}


def _means(pairs: Sequence[tuple[int, int]]) -> tuple[float, float]:
    return sum(a for a, _ in pairs) / len(pairs), sum(b for _, b in pairs) / len(pairs)


def _round_readings(plan: Plan) -> list[int]:
    """What the devices measured in the slots of the threshold rounds, for the picture."""
    stride, rounds = plan.stride, plan.config.campaign.rounds
    columns = [number * plan.readings.per_day + i * stride for number, n in enumerate(rounds) for i in range(n)]
    found = (plan.readings.at(device, column) for device in range(len(plan.names)) for column in columns)
    return [value for value in found if value is not None]

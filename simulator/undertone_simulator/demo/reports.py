"""A demonstration of one report per slot: threshold rounds, then the report phase under θ."""

import hashlib
import math
from collections import Counter
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from typing import Any, cast

import numpy as np

from undertone_aggregator.base.plural import many
from undertone_aggregator.campaign.collection import guarantee_of
from undertone_aggregator.campaign.results import open_results
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.counts.facts import MechanismFacts, mechanism_facts
from undertone_aggregator.design.budget import shown
from undertone_aggregator.estimate.estimates import MEASURED, Estimate, Z
from undertone_aggregator.store.store import Store
from undertone_aggregator.threshold import Threshold
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid
from undertone_shared.off_board.intake import unpack
from undertone_shared.report import REPORT
from undertone_shared.schedule import SEED_BYTES
from undertone_simulator.demo.cost import TurnsCost, cost, published_apart, reported_apart
from undertone_simulator.demo.plan import ROUND_DAYS, DemoOptions, PreparedDemo
from undertone_simulator.demo.ways import Way, simulated_ways, ways_of, ways_table
from undertone_simulator.fast.simulated import Compared
from undertone_simulator.wire.ledger import Sent
from undertone_simulator.wire.verify import Accounts, counted_reports, outcomes, reconcile

COHORT_SHARE = 0.05
OWN_EM = (
    "EM: from these reports the server estimated how the readings are distributed, and a posterior of the distribution"
    " gave θ"
)
PAPERS_EM = (
    "EM: from these reports the server estimated how the readings are distributed; the papers' rule (the white box)"
    " said when to stop, and their Eq. 8 gave θ"
)


@dataclass(frozen=True)
class SlotResult:
    """One report slot: the mean of the readings with its 95 % interval, and the true means.

    ``truncated_mean``, ``truncated_se``: the mean of the truncated readings, and its standard error. ``column``: column
    of the readings that devices measured in this slot. ``filtered``: the filter's estimate of the mean from all slots.
    ``truth_truncated``, ``truth_raw``: means of the devices that reported; of all devices if they take turns.
    """

    slot: int
    column: int
    reports: int
    estimate: float
    standard_error: float
    low: float
    high: float
    truncated_mean: float
    truncated_se: float
    truth_truncated: float
    truth_raw: float
    filtered: float
    filtered_error: float


SLOT_KEYS = tuple(field.name for field in fields(SlotResult) if field.name != "column")


@dataclass(frozen=True)
class ReportsResult:
    """Result of a demonstration of reports, for the table, the picture and the JSON."""

    unit: str
    devices: int
    per_day: int
    theta: int
    threshold: Threshold
    epsilon: Fraction
    certificate: Fraction
    guarantee: str
    slots: list[SlotResult]
    accounts: Accounts
    readings_spent: int
    round_readings: list[int]
    round_reports: int
    first_column: int
    ways: list[Way]
    mechanism: MechanismFacts | None = None
    turns: "TurnsCost | None" = None
    as_papers: bool = False

    @property
    def standardised(self) -> float:
        """Root mean square of (truncated_mean - truth_truncated) / truncated_se: 1 if the stated errors are right."""
        errors = [(slot.truncated_mean - slot.truth_truncated) / slot.truncated_se for slot in self.slots]
        return math.sqrt(float(np.mean(np.square(errors))))

    @property
    def predicted_error(self) -> float:
        """Median of the slots' ``truncated_se``, which a single slot with few reports does not dominate."""
        return float(np.median([slot.truncated_se for slot in self.slots]))

    @property
    def measured_error(self) -> float:
        """The measured error of a slot's truncated mean: `standardised` times `predicted_error`."""
        return self.standardised * self.predicted_error

    @property
    def tolerance(self) -> float:
        """About half the 95 % interval of `standardised` if the prediction is right."""
        return Z / math.sqrt(2 * len(self.slots))

    @property
    def agrees(self) -> bool:
        """True if `standardised` is within `tolerance` of 1."""
        return abs(self.standardised - 1) <= self.tolerance

    @property
    def worst(self) -> float:
        """The largest |truncated_mean - truth_truncated| in standard errors."""
        return max(abs(slot.truncated_mean - slot.truth_truncated) / slot.truncated_se for slot in self.slots)

    @property
    def covered(self) -> int:
        """Number of slots whose interval contains the mean of the readings."""
        return sum(slot.low <= slot.truth_raw <= slot.high for slot in self.slots)

    def played(self, column: int) -> str:
        """Return the half-hour of the data that a column represents, as day and time of day."""
        day, index = divmod(column, self.per_day)
        minute = index * 1440 // self.per_day
        return f"day {day + 1} {minute // 60:02d}:{minute % 60:02d}"

    def as_json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return {
            "theta": self.theta,
            "epsilon": float(self.epsilon),
            "certificate": float(self.certificate),
            "guarantee": self.guarantee,
            "slots": [{name: getattr(slot, name) for name in SLOT_KEYS} for slot in self.slots],
            "ways": [way.as_json() for way in self.ways],
            "accounting": self.accounts.summary(),
            **({} if self.turns is None else {"turns": asdict(self.turns)}),
        }

    def table(self) -> tuple[str, list[str], list[list[str]]]:
        """Return a table of the estimates and the truth, a row for each slot."""
        title = f"Mean of the readings of the n devices that reported, in {self.unit}, with its 95 % interval"
        rows = [
            [
                str(slot.slot),
                self.played(slot.column),
                str(slot.reports),
                f"{_number(slot.estimate)} ± {_number(Z * slot.standard_error)}",
                _number(slot.truth_raw),
                f"{_number(slot.truncated_mean)} ± {_number(Z * slot.truncated_se)}",
                _number(slot.truth_truncated),
            ]
            for slot in self.slots
        ]
        return title, ["slot", "plays", "n", "mean ± 95 %", "truth", "min(x, θ)", "truth"], rows

    def sentences(self) -> list[str]:
        """Return sentences: θ, certificate, privacy cost, measured against predicted error, the accounts."""
        unit, epsilon, exact = self.unit, self.epsilon, self.certificate
        bound = f"e^{shown(epsilon)} = {math.exp(epsilon):.9g}"
        level = sum(slot.estimate for slot in self.slots) / len(self.slots)
        verdict = "they agree" if self.agrees else "they disagree"
        weak = "warning: the standard error is above half the mean: take more devices or a larger ε"
        return [
            f"Square Wave: the devices sent {many(self.round_reports, 'report')} for the threshold, each under"
            f" ε = {shown(epsilon)}",
            PAPERS_EM if self.as_papers else OWN_EM,
            f"[bold]θ = {self.theta} {unit}[/]{self._likely()}, signed and broadcast to all devices, which truncate"
            " their readings to θ",
            *([] if self.mechanism is None else [f"reports: {self.mechanism.sentence()}"]),
            f"certificate: the odds shift by at most {exact.numerator}/{exact.denominator} = {float(exact):.9g} ≤"
            f" {bound}, proven in integers",
            *cost(epsilon, self.per_day, self.readings_spent, self.turns),
            f"reconstruction: the noise of a slot is {self.measured_error:.1f} {unit} as measured, and"
            f" {self.predicted_error:.1f} {unit} as predicted: {verdict}"
            f" (their ratio is {self.standardised:.2f}, and in about 95 % of runs it is 1 ± {self.tolerance:.2f});"
            f" the worst slot is off by {self.worst:.1f} standard errors;"
            f" {self.covered} of {len(self.slots)} intervals contain the mean of the readings",
            *([weak] if self.predicted_error > abs(level) / 2 else []),
            self.accounts.sentence(),
        ]

    def _likely(self) -> str:
        return (
            ""
            if self.as_papers
            else f" (the best θ is from {self.threshold.low} to {self.threshold.high} with a probability of 90 %)"
        )

    def side_by_side(self) -> tuple[str, list[str], list[list[str]]]:
        """Return a table of the papers' way and this project's default."""
        return ways_table(self.ways, self.unit)


class Reports:
    """Demonstration of one report per slot; see `undertone_simulator.demo.plan.DemoCollection`."""

    def story(self, options: DemoOptions) -> str:
        """Return the steps from Square Wave reports to the reconstructed means."""
        rounds = "one Square Wave round" if options.as_papers else f"{ROUND_DAYS} Square Wave rounds"
        choice = "EM with the white box and Eq. 8" if options.as_papers else "EM and a posterior"
        reports = "Hybrid reports" if options.as_papers else "reports by the Hybrid or a designed table"
        return f"{rounds} → {choice} → θ, broadcast → {reports} of readings truncated to θ → reconstruction"

    def rounds(self, options: DemoOptions, per_day: int) -> tuple[int, ...]:
        """Return the slots of each threshold round.

        There are three short rounds; the papers' way has one round that is as long as these three together.
        """
        slots = min(options.round_slots, per_day)
        return (slots * ROUND_DAYS,) if options.as_papers else (slots,) * ROUND_DAYS

    def table(self, options: DemoOptions, rounds: tuple[int, ...], bound: int) -> str:
        """Return lines for the campaign's configuration file that make the demo play a single report epoch."""
        seed = hashlib.sha256(f"undertone demo cohort {options.seed}".encode()).digest()[:SEED_BYTES]
        # A round plays a day in fewer slots than the report phase, so its slots do not stand for times of day.
        # Therefore all times of day have one θ (blocks = 1).
        way = "as_papers = true\n" if options.as_papers else f"blocks = 1\ncohort_share = {COHORT_SHARE}\n"
        return f"""\
{way}rounds = {list(rounds)}
epoch_slots = {options.slots}
cohort_seed = "{seed.hex()}"
""" + ("" if options.window is None else f'window = "{options.window}"\n')

    def result(self, plan: PreparedDemo, store: Store, sent: Sent) -> ReportsResult:
        """Compute estimates by the server's code, and truths from the ledgers."""
        timeline = Timeline(store.epochs())
        reporting = [epoch for epoch in timeline.epochs if epoch.campaign.report is not None]
        if not reporting or reporting[0].threshold is None:
            raise Invalid("no report epoch began: the threshold rounds got no reports, or too few")
        campaign = plan.config.campaign
        campaigns = [epoch.campaign for epoch in reporting]
        first = campaigns[0].first_slot
        raw, filtered = _compared(plan, first, _truths(plan, sent, store, campaigns))
        if not raw:
            raise Invalid("no slot of the report phase has a report")
        rule = reporting[-1].campaign.report
        assert rule is not None
        drawn = Counter(device for device, _ in sent.sent)
        accounts, turns = reconcile(sent, store), None
        if campaign.window is not None:
            closest = published_apart(plan.folder / "mosquitto" / "mosquitto.log")
            turns = TurnsCost(campaign.window, campaign.stride, min(closest.values(), default=None))
            for device, slots_apart in reported_apart(sent.sent).items():
                if slots_apart < campaign.stride:
                    accounts.wonder("reported twice within the window", f"{device}, {slots_apart} slots apart")
        papers = campaign.as_papers
        played = ways_of(reporting[-1], raw, filtered, as_papers=papers, played=True)
        simulated = simulated_ways(plan, self)
        cost = guarantee_of(timeline, campaign.budget)
        assert cost.certificate is not None
        return ReportsResult(
            unit=plan.readings.unit or "units",
            devices=len(plan.names),
            per_day=plan.readings.per_day,
            theta=rule.theta,
            threshold=reporting[0].threshold,
            epsilon=campaign.budget.epsilon,
            certificate=cost.certificate,
            guarantee=cost.sentence,
            slots=_slots(plan, first, raw, filtered),
            accounts=accounts,
            readings_spent=max(drawn.values(), default=0),
            round_readings=_round_readings(plan),
            round_reports=_round_reports(timeline, sent),
            first_column=plan.first_column,
            ways=[*played, *simulated] if papers else [*simulated, *played],
            as_papers=papers,
            mechanism=mechanism_facts(reporting[-1], campaign.epsilon),
            turns=turns,
        )


def _compared(
    plan: PreparedDemo, first: int, truths: dict[int, tuple[float, float]]
) -> tuple[list[Compared], list[Compared]]:
    """Return the report slots with their raw estimates, their filtered estimates, and the truth."""
    with open_results(plan.config.store_url) as results:
        estimates = results.estimates(first, first + plan.options.slots - 1, filtered=True)
    raw, filtered = (
        [
            Compared(estimate, *truths[estimate.slot])
            for estimate in estimates
            if estimate.kind == MEASURED and estimate.slot in truths and estimate.series.filtered is wanted
        ]
        for wanted in (False, True)
    )
    return raw, filtered


def _slots(plan: PreparedDemo, first: int, raw: list[Compared], filtered: list[Compared]) -> list[SlotResult]:
    return [
        SlotResult(
            slot.estimate.slot,
            plan.first_column + slot.estimate.slot - first,
            slot.estimate.reports,
            slot.estimate.estimate,
            *_known(slot.estimate),
            slot.truth_truncated,
            slot.truth_raw,
            after.estimate.estimate,
            _known(after.estimate)[0],
        )
        for slot, after in zip(raw, filtered, strict=True)
    ]


def _known(estimate: Estimate) -> tuple[float, float, float, float, float]:
    """Return (standard error, low, high, truncated mean, its standard error) of a slot with reports."""
    values = (estimate.standard_error, estimate.low, estimate.high, estimate.truncated_mean, estimate.truncated_se)
    assert None not in values
    return cast(tuple[float, float, float, float, float], values)


def _truths(plan: PreparedDemo, sent: Sent, store: Store, reporting: list[Campaign]) -> dict[int, tuple[float, float]]:
    """Return a map: slot -> (mean truncated reading, mean raw reading), for slots with a counted report.

    The means are those of the devices whose reports were counted; of all devices if they take turns.
    """
    campaigns = {campaign.fingerprint: campaign for campaign in reporting}
    row = {name: number for number, name in enumerate(plan.names)}
    values: dict[int, list[tuple[int, int]]] = {}
    # If devices take turns, those that reported represent all devices.
    everybody = list(row) if plan.config.campaign.stride > 1 else None
    for device, data in counted_reports(sent, outcomes(store)):
        report = unpack(data)
        campaign = campaigns.get(report.fingerprint)
        if report.kind != REPORT or campaign is None or campaign.report is None:
            continue
        if everybody is not None and report.slot in values:
            continue
        for name in everybody or [device]:
            x = plan.measured(row[name], plan.first_column + report.slot - reporting[0].first_slot)
            assert isinstance(x, int)
            values.setdefault(report.slot, []).append((min(x, campaign.report.theta), x))
    means = {slot: np.mean(pairs, axis=0).tolist() for slot, pairs in values.items()}
    return {slot: (truncated, raw) for slot, (truncated, raw) in means.items()}


def round_columns(plan: PreparedDemo) -> list[int]:
    """Return the columns of the readings that devices measure in the planned slots of the threshold rounds."""
    playback, days = plan.playback, plan.playback.days * plan.readings.per_day
    return [number * days + i * playback.stride for number, slots in enumerate(plan.rounds) for i in range(slots)]


def _round_readings(plan: PreparedDemo) -> list[int]:
    """Return the devices' readings in the slots of the threshold rounds."""
    columns = round_columns(plan)
    readings = (plan.readings.at(device, column) for device in range(len(plan.names)) for column in columns)
    return [value for value in readings if value is not None]


def _round_reports(timeline: Timeline, sent: Sent) -> int:
    """Return the number of reports that devices sent in the threshold rounds."""
    rounds = {epoch.campaign.fingerprint for epoch in timeline.epochs if epoch.campaign.report is None}
    return sum(unpack(data).fingerprint in rounds for _, data in sent.sent)


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"

"""A demonstration of streams: one epoch, chains under one budget, estimates raw and smoothed."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.campaign.results import open_results
from undertone_aggregator.design import Budget
from undertone_aggregator.estimate.estimates import Estimate, Series, Z
from undertone_aggregator.settings.plan_checks import coprime_near
from undertone_aggregator.settings.toml import toml
from undertone_aggregator.store.store import Store
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid
from undertone_shared.off_board.intake import unpack
from undertone_shared.report import STREAM
from undertone_shared.stream import StreamRule
from undertone_simulator.demo.plan import DemoOptions, PreparedDemo
from undertone_simulator.demo.stream_ways import StreamWay, stream_ways, stream_ways_table, way_name
from undertone_simulator.demo.ways import full
from undertone_simulator.wire.ledger import Sent
from undertone_simulator.wire.verify import Accounts, reconcile

Vector = NDArray[np.float64]

# θ in Wh for readings of several coordinates, for which a threshold round cannot find θ. Few households use more in
# half an hour.
THETA = 1000
# The share of ε that a device's report for the threshold costs, and the least ε for such a report.
ROUND_SHARE = Fraction(1, 10)
LEAST_PART = Fraction(1, 20)
# Number of chains that a device may begin: two, because a device that is killed loses its first chain.
_CHAINS = 2


@dataclass(frozen=True)
class StreamSlot:
    """One slot of a coordinate: raw and smoothed means of clipped readings, and the truth about the same devices."""

    slot: int
    coordinate: int
    reports: int
    estimate: float
    standard_error: float
    smoothed: float
    smoothed_error: float
    truth_clipped: float
    truth_raw: float


@dataclass(frozen=True)
class StreamResult:
    """Result of a demonstration of streams, for the table, the picture and the JSON.

    ``found``: a threshold round found θ, which was not in the plan. ``micropython``: number of slots that the
    MicroPython device reported. ``first_slot``: the stream's first slot.
    """

    unit: str
    guarantee: str
    mechanism: str
    theta: int
    found: bool
    rho: float
    micropython: int
    first_slot: int
    slots: list[StreamSlot]
    ways: list[StreamWay]
    accounts: Accounts

    @property
    def measured_error(self) -> float:
        """Root mean square of estimate - truth_clipped."""
        return _rms([slot.estimate - slot.truth_clipped for slot in self.slots])

    @property
    def predicted_error(self) -> float:
        """Root mean square of the standard errors."""
        return _rms([slot.standard_error for slot in self.slots])

    @property
    def smoothed_error(self) -> float:
        """Root mean square of smoothed - truth_clipped."""
        return _rms([slot.smoothed - slot.truth_clipped for slot in self.slots])

    @property
    def worst(self) -> float:
        """The largest |estimate - truth_clipped| in standard errors."""
        return max(abs(slot.estimate - slot.truth_clipped) / slot.standard_error for slot in self.slots)

    def as_json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return {
            "mechanism": self.mechanism,
            "theta": self.theta,
            "guarantee": self.guarantee,
            "rho": self.rho,
            "unit": self.unit,
            "micropython_reports": self.micropython,
            "measured_error": self.measured_error,
            "predicted_error": self.predicted_error,
            "smoothed_error": self.smoothed_error,
            "slots": [asdict(slot) for slot in self.slots],
            "ways": [way.as_json() for way in self.ways],
            "accounting": self.accounts.summary(),
        }

    def table(self) -> tuple[str, list[str], list[list[str]]]:
        """Return a table of estimates and truths."""
        title = (
            f"Mean of the readings of the n devices that reported, in {self.unit}, with its 95 % interval; true means"
            " of the clipped and of the raw readings"
        )
        rows = [
            [
                str(slot.slot) + (f" ({slot.coordinate})" if slot.coordinate > 1 else ""),
                str(slot.reports),
                f"{slot.estimate:.1f} ± {Z * slot.standard_error:.1f}",
                f"{slot.smoothed:.1f} ± {Z * slot.smoothed_error:.1f}",
                f"{slot.truth_clipped:.1f}",
                f"{slot.truth_raw:.1f}",
            ]
            for slot in self.slots
        ]
        return title, ["slot", "n", "estimate", "smoothed", "clipped", "raw"], rows

    def sentences(self) -> list[str]:
        """Return sentences about θ, the guarantee, the errors, the MicroPython device's part, and the accounts."""
        level = sum(slot.truth_raw for slot in self.slots) / len(self.slots)
        weak = "warning: the standard error is above half the mean: take more devices, a larger ε or the smoothed means"
        shared = " (slots share noise, so all slots may be off in the same direction)"
        if self.mechanism == "direct":
            shared = ""
        source = "found by a Square Wave report of each device" if self.found else "a public number from the plan"
        return [
            f"[bold]θ = {self.theta} {self.unit}[/], {source}, signed and broadcast to all devices",
            self.guarantee,
            f"the error of a slot is {self.measured_error:.1f} {self.unit} as measured, and {self.predicted_error:.1f}"
            f" {self.unit} as stated{shared}; the worst slot is off by {self.worst:.1f} standard errors; after"
            f" smoothing, the error is {self.smoothed_error:.1f} {self.unit}",
            *([weak] if self.predicted_error > level / 2 else []),
            f"reports that real MicroPython drew: {self.micropython}",
            self.accounts.sentence(),
        ]

    def side_by_side(self) -> tuple[str, list[str], list[list[str]]]:
        """Return a table of independent noise, the paper's Algorithm 3, and the method that this project uses."""
        return stream_ways_table(self.ways, self.unit)


_CORRELATED = (
    "readings truncated to θ, steps clipped (CGM) → reports, each with a share of the noise of the report before"
)
# Mechanism of [stream] -> what a device does to its readings.
_REPORTS = {
    "gaussian": _CORRELATED,
    "one-bit": _CORRELATED,
    "direct": "readings truncated to θ → reports, each with noise of its own",
}


class DemoStream:
    """Demonstration of streams; see `undertone_simulator.demo.plan.DemoCollection`."""

    def story(self, options: DemoOptions) -> str:
        """Return the steps from a public range to the reconstructed means."""
        choice = "Square Wave round → EM and a posterior → θ" if self.rounds(options, 48) else "θ from the plan"
        reports = _REPORTS["gaussian" if options.mechanism is None else options.mechanism]
        return f"{choice}, broadcast → {reports} → reconstruction, smoothed"

    def rounds(self, options: DemoOptions, per_day: int) -> tuple[int, ...]:
        """Return the slots of the threshold round; empty if θ is given, or if readings have several coordinates."""
        if options.theta is not None or (options.dimension or 1) > 1:
            return ()
        return (coprime_near(min(options.round_slots, per_day), 1, per_day),)

    def table(self, options: DemoOptions, rounds: tuple[int, ...], bound: int) -> str:
        """Return options for one stream over all slots, with its threshold round if there is one."""
        if rounds:
            part = max(Budget.parse(options.epsilon).epsilon * ROUND_SHARE, LEAST_PART)
            choice = f"round_slots = {rounds[0]}\nround_epsilon = {float(part):g}"
        else:
            theta = options.theta if options.theta is not None else THETA if options.data is None else bound
            choice = f"theta = {theta}"
        names = ("mechanism", "delta", "slew", "dimension")
        given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
        lines = "".join(f"{name} = {toml(value)}\n" for name, value in given.items())
        return f"""\
collect = "stream"

[stream]
{lines}{choice}
reports = {options.slots}
chains = {_CHAINS}
"""

    def result(self, plan: PreparedDemo, store: Store, sent: Sent) -> StreamResult:
        """Compute estimates by the server's code, and truths from the ledgers."""
        assert plan.config.stream is not None
        streams = [epoch.campaign for epoch in store.epochs() if isinstance(epoch.campaign.rule, StreamRule)]
        if not streams:
            raise Invalid("no stream began: the threshold round got no report")
        rule = streams[0].rule
        assert isinstance(rule, StreamRule)
        reports: dict[int, dict[str, int]] = {}
        for device, payload in sent.sent:
            report = unpack(payload)
            if report.kind == STREAM:
                reports.setdefault(report.slot, {})[device] = report.chain
        if not reports:
            raise Invalid("no stream report was sent")
        truths = _truths(plan, streams[0], rule, reports)
        with open_results(plan.config.store_url) as results:
            guarantee = results.guarantee
            slots: list[StreamSlot] = []
            estimates = results.estimates(filtered=True)
            for k in range(rule.dimension):
                kinds = (Series(coordinate=k + 1), Series(coordinate=k + 1, filtered=True))
                raw, smoothed = ([e for e in estimates if e.series == kind] for kind in kinds)
                slots += _slots(k, raw, smoothed, truths)
        num, den = rule.rho()
        by_micropython = sum(plan.names[-1] in devices for devices in reports.values()) if _had_micropython(plan) else 0
        return StreamResult(
            plan.readings.unit or "units",
            guarantee,
            plan.config.stream.mechanism,
            rule.theta,
            bool(plan.rounds),
            num / den,
            by_micropython,
            streams[0].first_slot,
            slots,
            stream_ways(plan, rule, _played(plan.config.stream.mechanism, slots)),
            reconcile(sent, store),
        )


def _played(mechanism: str, slots: list[StreamSlot]) -> StreamWay:
    """Return the raw means of the first coordinate, in the form that `stream_ways` compares with other methods."""
    names = ("estimate", "standard_error", "truth_clipped", "truth_raw")
    first = [slot for slot in slots if slot.coordinate == 1]
    first = [slot for slot, whole in zip(first, full([slot.reports for slot in first]), strict=True) if whole]
    return StreamWay(way_name(mechanism), True, *(np.array([getattr(slot, name) for slot in first]) for name in names))


def _had_micropython(plan: PreparedDemo) -> bool:
    return (plan.folder / "micropython.log").exists()


def _slots(
    coordinate: int, raw: Sequence[Estimate], smoothed: Sequence[Estimate], truths: dict[int, tuple[Vector, Vector]]
) -> Iterator[StreamSlot]:
    for estimate, smooth in zip(raw, smoothed, strict=True):
        if estimate.truncated_se is None or smooth.truncated_se is None:
            raise Invalid(f"slot {estimate.slot} has no standard error")
        measured, clipped = truths[estimate.slot]
        yield StreamSlot(
            estimate.slot,
            coordinate + 1,
            estimate.reports,
            estimate.truncated_mean,
            estimate.truncated_se,
            smooth.truncated_mean,
            smooth.truncated_se,
            float(clipped[coordinate]),
            float(measured[coordinate]),
        )


def _truths(
    plan: PreparedDemo, campaign: Campaign, rule: StreamRule, reports: dict[int, dict[str, int]]
) -> dict[int, tuple[Vector, Vector]]:
    """Return a map: slot -> (mean reading, mean clipped reading) of the devices that reported.

    Both have shape [coordinates]. Readings are clipped as in a device. It scales its range to a width of 1 around 0; a
    clipped point lies within a ball of diameter 1, and moves by at most the slew from one report to the next.
    """
    rows = {name: row for row, name in enumerate(plan.names)}
    last: dict[str, Vector] = {}
    truths = {}
    for slot in sorted(reports):
        readings, paths = [], []
        column = plan.first_column + slot - campaign.first_slot
        for device, index in reports[slot].items():
            reading = np.atleast_1d(np.asarray(plan.measured(rows[device], column), dtype=np.float64))
            point = _shortened((np.clip(reading, rule.low, rule.theta) - rule.low) / rule.width - 0.5, 0.5)
            if index > 1 and device in last:
                point = last[device] + _shortened(point - last[device], rule.slew / rule.levels)
            last[device] = point
            readings.append(reading)
            paths.append(rule.low + rule.width * (point + 0.5))
        truths[slot] = np.mean(readings, axis=0), np.mean(paths, axis=0)
    return truths


def _shortened(vector: Vector, most: float) -> Vector:
    """Return the vector, shortened to length ``most`` if it is longer."""
    length = float(np.linalg.norm(vector))
    return vector if length <= most else vector * (most / length)


def _rms(values: list[float]) -> float:
    return math.sqrt(float(np.mean(np.square(values))))

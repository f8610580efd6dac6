"""The papers' way and this project's default beside each other, from the same readings of one demonstration.

One of them is played over MQTT. The other one is simulated: the same readings in the same slots, the same ε, and noise
from the demonstration's seed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from undertone_aggregator.counts.epochs import REPORT_PHASE, Epoch
from undertone_aggregator.design.mechanisms import traits_of
from undertone_aggregator.settings.config import parse_config
from undertone_simulator.demo.plan import DemoCollection, PreparedDemo, campaign_text, playback_of
from undertone_simulator.fast.simulated import Compared
from undertone_simulator.fast.simulation import Simulation

PAPERS = "papers' way"
DEFAULT = "default"


@dataclass(frozen=True)
class Way:
    """One way from the same readings to a mean for each slot.

    ``mechanism``: the mechanism of the reports. ``filtered``: True for the filtered means, False for the means that the
    reports gave. ``played``: True if the way was played over MQTT, False if it was simulated. ``first``: slot of the
    first report. ``slots``: the means beside their truths, of the slots that are `full`.
    """

    name: str
    mechanism: str
    filtered: bool
    played: bool
    theta: int
    first: int
    slots: list[Compared]

    @property
    def label(self) -> str:
        """The way in a few words, for a picture."""
        return f"{self.name}, {'filtered' if self.filtered else 'raw'}"

    @property
    def predicted_error(self) -> float:
        """Root mean square of the slots' standard errors."""
        return _rms([_standard_error(slot) for slot in self.slots])

    @property
    def measured_error(self) -> float:
        """Root mean square of estimate - mean of the readings."""
        return _rms([slot.error for slot in self.slots])

    @property
    def held(self) -> int:
        """Number of slots whose 95 % interval contains the mean of the readings."""
        return sum(slot.covers()[0] for slot in self.slots)

    def as_json(self) -> dict[str, Any]:
        """Return the way as a JSON object."""
        return {
            "way": self.name,
            "mechanism": self.mechanism,
            "filtered": self.filtered,
            "played": self.played,
            "theta": self.theta,
            "predicted_error": self.predicted_error,
            "measured_error": self.measured_error,
            "held": self.held,
            "slots": len(self.slots),
        }


def ways_of(epoch: Epoch, raw: list[Compared], filtered: list[Compared], *, as_papers: bool, played: bool) -> list[Way]:
    """Return the papers' way, or both series of the default, from the means of a report epoch."""
    rule = epoch.campaign.report
    assert rule is not None
    name, kind = PAPERS if as_papers else DEFAULT, traits_of(rule.mechanism).kind
    way = Way(name, kind, False, played, rule.theta, epoch.campaign.first_slot, _full(raw))
    return [way] if as_papers else [way, replace(way, filtered=True, slots=_full(filtered))]


def simulated_ways(plan: PreparedDemo, collection: DemoCollection) -> list[Way]:
    """Simulate the way that is not played, on the demonstration's readings. Return [] if no slot got a report."""
    options = replace(plan.options, as_papers=not plan.options.as_papers)
    readings, bound = plan.readings, plan.config.campaign.bound
    text = campaign_text(options, readings, bound, collection)
    campaign = replace(parse_config(text, plan.folder).campaign, start=None)
    playback = playback_of(collection.rounds(options, readings.per_day), readings.per_day)
    simulated = Simulation(campaign, readings, len(plan.names), options.seed, playback=playback).run()
    epoch = next((epoch for epoch in simulated.timeline.epochs if epoch.phase == REPORT_PHASE), None)
    raw = simulated.compared()
    if epoch is None or not raw:
        return []
    filtered = simulated.compared(filtered=True)
    return ways_of(epoch, raw, filtered, as_papers=options.as_papers, played=False)


def full(reports: Sequence[int]) -> list[bool]:
    """Return for each slot whether at least half as many devices reported in it as in the fullest slot.

    On a machine that is too slow for slots of a second, most devices miss some slots. Such slots would say nothing
    about a way.
    """
    most = max(reports, default=0)
    return [2 * n >= most for n in reports]


def _full(slots: list[Compared]) -> list[Compared]:
    kept = full([slot.estimate.reports for slot in slots])
    return [slot for slot, whole in zip(slots, kept, strict=True) if whole]


def _rms(values: list[float]) -> float:
    return math.sqrt(float(np.mean(np.square(values))))


def _standard_error(slot: Compared) -> float:
    error = slot.estimate.standard_error
    assert error is not None
    return error


def ways_table(ways: list[Way], unit: str) -> tuple[str, list[str], list[list[str]]]:
    """Return (title, columns, a row for each way)."""
    title = f"From the same readings: error of a slot's mean in {unit}, and 95 % intervals that hold the true mean"
    rows = [
        [
            way.name,
            way.mechanism,
            "filtered" if way.filtered else "raw",
            "MQTT" if way.played else "simulated",
            str(way.theta),
            f"{way.predicted_error:.1f}",
            f"{way.measured_error:.1f}",
            f"{way.held} of {len(way.slots)}",
        ]
        for way in ways
    ]
    return title, ["way", "reports", "means", "run", "θ", "predicted", "measured", "hold"], rows

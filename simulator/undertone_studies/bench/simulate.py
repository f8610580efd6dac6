"""Benchmark of a simulated campaign against the mechanisms alone, which draw as many reports from the same words."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design.mechanisms import Mechanism
from undertone_aggregator.settings.config import CampaignPlan
from undertone_aggregator.settings.options import parse
from undertone_simulator.fast.simulated import Simulated
from undertone_simulator.fast.simulation import Simulation
from undertone_simulator.fast.vectorised import histogram
from undertone_simulator.readings.populations import population
from undertone_simulator.readings.readings import Readings
from undertone_simulator.seeded import Seeded
from undertone_simulator.wire.memory import peak_megabytes
from undertone_studies.registry import StudyOptions
from undertone_studies.row import Measured, best_seconds, rate

TITLE = "A simulated campaign end to end"

SEED = 1


@dataclass(frozen=True)
class Draw:
    """Arguments from which the draws of all devices in one slot can be repeated."""

    slot: int
    mechanism: Mechanism
    truncated: NDArray[np.int64]
    theta: int


def run(options: StudyOptions) -> list[Measured]:
    """Measure millions of reports per second of processor time, with the cohort's rule and without.

    The last row is this process's peak memory in MB.
    """
    devices, rounds = (1 << 14, 1) if options.quick else (1 << 18, 2)
    readings = population("households", SEED).readings(devices, 1)
    rows = []
    for share, what in ((0.05, "a cohort of 5 %"), (0.0, "no cohort")):
        campaign = _Campaign(readings, devices, share)
        ours, mechanisms = best_seconds([campaign.simulate, campaign.draw], rounds)
        value, baseline = (campaign.reports / seconds / 1e6 for seconds in (ours, mechanisms))
        name = f"simulate, {what}"
        rows.append(rate(name, value, "million reports/s", "the draws alone", baseline, goal=0.5))
    replayed, synthetic = best_seconds([campaign.simulate, campaign.simulate_synthetic], rounds)
    value, baseline = (campaign.reports / seconds / 1e6 for seconds in (synthetic, replayed))
    rows.append(rate("simulate, synthetic households", value, "million device-slots/s", "replayed readings", baseline))
    return [*rows, Measured(f"simulate, {devices} devices, peak memory", peak_megabytes(), "MB")]


class _Campaign:
    """A campaign of two threshold rounds and a report phase, simulated once to record its draws."""

    def __init__(self, readings: Readings, devices: int, share: float) -> None:
        self._readings = readings
        self._devices = devices
        table = {"name": "bench", "sensor": "load", "unit": "Wh", "bound": 10_000, "epsilon": 1}
        table |= {"rounds": [2, 2], "report_slots": 36, "cohort_share": share, "mechanism": "hybrid"}
        self._plan = parse(CampaignPlan, "campaign", table)
        simulated = self.simulate()
        self.reports = simulated.partial.reports
        self._draws = [self._prepared(simulated, slot) for slot in sorted({key.slot for key in simulated.partial})]

    def simulate(self) -> Simulated:
        return Simulation(self._plan, self._readings, self._devices, SEED).run()

    def simulate_synthetic(self) -> Simulated:
        """Simulate the campaign with readings that are generated when they are needed."""
        return Simulation(self._plan, population("households", SEED), self._devices, SEED).run()

    def _prepared(self, simulated: Simulated, slot: int) -> Draw:
        epoch = simulated.timeline.at(slot)
        assert epoch is not None
        first = simulated.timeline.epochs[0].campaign.first_slot
        values, _ = self._readings.part(0, self._devices, [slot - first])
        rule = epoch.campaign.report
        if rule is None:
            assert epoch.campaign.cohort is not None
            return Draw(slot, epoch.campaign.cohort.mechanism, values[0], epoch.campaign.bound)
        return Draw(slot, rule.mechanism, np.minimum(values[0], rule.theta), rule.theta)

    def draw(self) -> None:
        """Repeat only the draws, by the same mechanisms.

        In report epochs every device draws by the report mechanism, also those of the cohort.
        """
        devices, seeded = np.arange(self._devices), Seeded(SEED)
        for draw in self._draws:
            histogram(draw.mechanism, draw.truncated, draw.theta, seeded.words(draw.slot, devices))

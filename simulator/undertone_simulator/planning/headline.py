"""The error of the numbers that `undertone query` shows, from simulated campaigns.

The published series is filtered, and includes a model of what truncation removed. How well the model is known depends
on the reports of the threshold rounds, and so does θ. So no formula gives this error: whole campaigns are simulated, in
which the server's own code holds the rounds, chooses θ, estimates and filters. Each campaign has noise of its own, and
readings of its own if they are synthetic. The error is the root mean square difference between the published series and
the mean of the readings, over all slots of all campaigns.

Means over several slots are shown without the filter.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from undertone_simulator.fast.options import SimulateOptions
from undertone_simulator.fast.parallel import Tick, workers
from undertone_simulator.fast.simulate import simulate_readings
from undertone_simulator.fast.simulated import Simulated
from undertone_simulator.readings.begin import cycle_of
from undertone_simulator.readings.chosen import open_source
from undertone_simulator.readings.day_slots import Joined

# Length of a simulated campaign after its threshold rounds, in days; if the slots are days, in weeks.
DAYS = 14
# A fleet of more devices is simulated as a crowd with the readings of this many devices.
MOST_DEVICES = 20_000
# The first campaign's seed. `undertone simulate` has other ones unless they are given.
_SEED = 1001


@dataclass(frozen=True)
class Campaign:
    """A campaign to simulate: its options with its seed as ``options.seed``.

    ``devices``: the devices of the fleet; if ``options.devices`` are fewer, they are the sample of a crowd. ``days``:
    length after the threshold rounds, as `DAYS`. ``span``: number of slots of the data that are one slot of the
    campaign. ``over``: for each number of slots, the error of a mean over as many slots is computed; 1 stands for a
    slot of the filtered series.
    """

    options: SimulateOptions
    devices: int
    days: int
    span: int
    over: tuple[int, ...]

    def __len__(self) -> int:
        """The work of a campaign, for progress: 1."""
        return 1

    def squares(self) -> list[float]:
        """Return the mean square error of each mean in ``over``. Raises Invalid, OSError."""
        options = self.options
        readings = open_source(options, options.devices, options.seed)
        if self.span > 1:
            source = Joined(readings.source, readings.bound, self.span)
            readings = readings._replace(source=source, bound=readings.bound * self.span)
        options = replace(options, slots=self.days * cycle_of(readings.source))
        crowd = None if self.devices == options.devices else self.devices
        campaign = simulate_readings(options, readings, crowd=crowd)
        return [_square(campaign, slots) for slots in self.over]


@dataclass(frozen=True)
class Headline:
    """Simulates ``campaigns`` campaigns of a fleet, in ``processes`` processes; ``options``: those of
    each campaign, apart from seed, slots and window; of a fleet that is too large, a crowd is simulated.

    ``progress(done)`` is called after each campaign with the number of campaigns that are done.
    """

    options: SimulateOptions
    campaigns: int
    processes: int = 1
    progress: Callable[[int], None] = lambda done: None

    def errors(
        self, over: Sequence[int] = (1,), *, days: int = DAYS, span: int = 1, window: str | None = None
    ) -> tuple[float, ...]:
        """Return the root mean square error of a slot of the filtered series, and of unfiltered means over more slots.

        ``over``, ``days``, ``span``: as for `Campaign`. ``window``: for turns, the campaign's option of this name.
        Raises Invalid, or OSError for a file.
        """
        devices = self.options.devices
        options = replace(self.options, devices=min(devices, MOST_DEVICES), window=window)
        tasks = [
            Campaign(replace(options, seed=_SEED + i), devices, days, span, tuple(over)) for i in range(self.campaigns)
        ]
        done = 0

        def tick(campaigns: int) -> None:
            nonlocal done
            done += campaigns
            self.progress(done)

        with workers(min(self.processes, self.campaigns)) as hands:
            squares = list(hands.bind(_squares, None)(tasks, tick))
        return tuple(np.sqrt(np.mean(squares, axis=0)).tolist())


def _squares(_: None, campaign: Campaign, tick: Tick) -> list[float]:
    squares = campaign.squares()
    tick(len(campaign))
    return squares


def _square(campaign: Simulated, slots: int) -> float:
    """Return the mean square error of the campaign's published means over ``slots`` slots."""
    if slots == 1:
        errors = [of.estimate.estimate - of.truth_raw for of in campaign.compared(filtered=True)]
    else:
        errors = [mean.estimate - truth for mean, truth in campaign.ranges(slots)]
    return float(np.mean(np.square(errors)))

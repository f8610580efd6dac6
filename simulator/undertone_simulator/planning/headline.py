"""The predicted error of the numbers that `undertone query` shows.

The published series is filtered, and includes a model of what truncation removed. So its error has two parts: the
filter's error, and the part of the bias b that the model does not remove. For the first part, the server's own filter
runs over the slots of a campaign: the population's true means plus noise of the predicted variance. The second part is
taken to be `LEFT` b, because no plan can know how well the reports of the rounds will show the largest readings.
For streams the whole bias is taken to be left, because their model of what clipping removes is mostly an assumption.

Means over several slots are shown without the filter.
"""

import math

import numpy as np

from undertone_aggregator.estimate.calendar import DAY, Days, calendar
from undertone_aggregator.estimate.filter import filtered
from undertone_aggregator.estimate.state_space import Noise
from undertone_simulator.planning.prediction import Prediction, Vector

# The share of the truncation bias that is assumed to remain after the model's correction. It was chosen so that
# predicted and simulated errors in `undertone experiment load` are about equal at ε = 1.
LEFT = 0.5
# Length of the predicted campaign, in days; if the readings are daily, in weeks.
DAYS = 14
_SEED = 1


def of_slot(
    means: Vector,
    start: int,
    prediction: Prediction,
    left: float = LEFT,
    carried: float = 0.0,
    cycle: int | None = None,
) -> float:
    """Return the root mean square error of a slot in the filtered series.

    ``means``: the true means of the campaign's slots, whose first one begins at ``start`` (Unix second). ``left``:
    share of the bias that is left. ``carried``: share of a slot's noise that a stream carries over to the next slot;
    nothing is carried over from one day to the next. ``cycle``: the number of slots after which the means repeat, by
    default a day.
    """
    per_day = len(prediction.bias)
    phase = np.arange(len(means)) % per_day
    variance = np.maximum(prediction.variance[phase], 1e-12)
    noise = np.random.default_rng(_SEED).standard_normal(len(means)) * np.sqrt(variance)
    regression = np.where(phase == 0, 0.0, carried)
    if carried:
        for i in range(1, len(noise)):
            noise[i] = regression[i] * noise[i - 1] + math.sqrt(1 - regression[i] ** 2) * noise[i]
    number = start * per_day // DAY + np.arange(len(means))
    days = calendar(number, DAY // per_day, cycle or per_day, Days())
    result = filtered(number, means + noise, Noise(variance, regression if carried else None), days)
    bias = left * prediction.bias
    return float(np.sqrt(np.mean(np.square(result.mean - means)) + np.mean(np.square(bias))))


def of_mean(prediction: Prediction, slots: int, left: float = LEFT) -> float:
    """Return the root mean square error of the mean over ``slots`` slots; ``left`` as for `of_slot`."""
    noise, whole = prediction.over(slots)
    return math.sqrt(noise**2 + left**2 * (whole**2 - noise**2))

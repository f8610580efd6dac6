"""Three stream methods on the same readings: independent noise, the CGM paper's Algorithm 3, and this project's method.

One of them, or reports of one bit, is played over MQTT. The means of the others are simulated with the same readings,
range, ε and δ, and with noise from the demonstration's seed.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design.stream.methods import LONGEST, Method, main_methods
from undertone_aggregator.estimate.estimates import Z
from undertone_shared.stream import StreamRule
from undertone_simulator.demo.plan import PreparedDemo

Vector = NDArray[np.float64]

# Names for people of the methods in `design.stream.methods.main_methods`.
_NAMES = {
    "direct": "independent noise (Alg. 1)",
    "paper": "the paper's Algorithm 3",
    "closed-form": "constant r: what devices use",
}
ONE_BIT = "one bit a report"


@dataclass(frozen=True)
class StreamWay:
    """One way from the same readings to a mean for each slot; each array has a number for each slot.

    ``played``: True if the way was played over MQTT, False if it was simulated. ``clipped``, ``raw``: means of the
    clipped readings and of the readings.
    """

    name: str
    played: bool
    estimates: Vector
    standard_errors: Vector
    clipped: Vector
    raw: Vector

    @property
    def predicted_noise(self) -> float:
        """Root mean square of the standard errors."""
        return _rms(self.standard_errors)

    @property
    def measured_noise(self) -> float:
        """Root mean square of estimate - mean of the clipped readings."""
        return _rms(self.estimates - self.clipped)

    @property
    def measured_error(self) -> float:
        """Root mean square of estimate - mean of the readings."""
        return _rms(self.estimates - self.raw)

    @property
    def held(self) -> int:
        """Number of slots whose 95 % interval contains the mean of the readings.

        The interval does not allow for clipping.
        """
        return int(np.sum(np.abs(self.estimates - self.raw) <= Z * self.standard_errors))

    def as_json(self) -> dict[str, Any]:
        """Return the way as a JSON object."""
        return {
            "way": self.name,
            "played": self.played,
            "predicted_noise": self.predicted_noise,
            "measured_noise": self.measured_noise,
            "measured_error": self.measured_error,
            "held": self.held,
            "slots": len(self.estimates),
        }


def stream_ways(plan: PreparedDemo, rule: StreamRule, played: StreamWay) -> list[StreamWay]:
    """Return the way that was played, together with the other methods of this module.

    They are added for streams of one coordinate and 2 to `LONGEST` slots; otherwise only the played way is returned.
    """
    stream, slots = plan.config.stream, plan.options.slots
    assert stream is not None
    if rule.dimension > 1 or not 2 <= slots <= LONGEST:
        return [played]
    columns = range(plan.first_column, plan.first_column + slots)
    readings = np.array([[plan.measured(row, column) for column in columns] for row in range(len(plan.names))])
    epsilon = float(stream.budget(plan.config.campaign.epsilon).epsilon)
    methods = main_methods(stream.slew, slots, epsilon, stream.delta, chains=stream.chains)
    rng = np.random.default_rng(plan.options.seed)
    drawn = [_drawn(method, rule, readings, rng) for method in methods]
    ways = [played if way.name == played.name else way for way in drawn]
    return ways if played in ways else [*ways, played]


def way_name(mechanism: str) -> str:
    """Return the name of the way that belongs to a mechanism of [stream]."""
    return {"gaussian": _NAMES["closed-form"], "direct": _NAMES["direct"], "one-bit": ONE_BIT}[mechanism]


def _drawn(method: Method, rule: StreamRule, readings: Vector, rng: np.random.Generator) -> StreamWay:
    """Draw the means of all devices' reports; the noise of their mean is normal with the method's covariance / n."""
    clipped = rule.low + rule.width * method.clipped((readings - rule.low) / rule.width).mean(axis=0)
    covariance = method.covariance * rule.width**2 / len(readings)
    noise = np.linalg.cholesky(covariance) @ rng.standard_normal(len(covariance))
    errors = np.sqrt(np.diag(covariance))
    return StreamWay(_NAMES[method.name], False, clipped + noise, errors, clipped, readings.mean(axis=0))


def stream_ways_table(ways: list[StreamWay], unit: str) -> tuple[str, list[str], list[list[str]]]:
    """Return (title, columns, a row for each way)."""
    title = (
        f"From the same readings, in {unit}: a slot's noise, its error with clipping, 95 % intervals that hold the mean"
    )
    rows = [
        [
            way.name,
            "MQTT" if way.played else "drawn",
            f"{way.predicted_noise:.1f}",
            f"{way.measured_noise:.1f}",
            f"{way.measured_error:.1f}",
            f"{way.held} of {len(way.estimates)}",
        ]
        for way in ways
    ]
    return title, ["way", "run", "predicted", "noise", "error", "hold"], rows


def _rms(values: Vector) -> float:
    return float(np.sqrt(np.mean(np.square(values))))

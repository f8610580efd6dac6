"""Facts about an epoch's report mechanism: its kind, and its predicted gain over the Hybrid."""

import math
from dataclasses import dataclass
from fractions import Fraction

from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.design.fitted import gain
from undertone_aggregator.design.mechanisms import traits_of


@dataclass(frozen=True)
class MechanismFacts:
    """Facts about a mechanism.

    ``kind``, ``what``: the ``kind`` and the ``sentence`` of `undertone_aggregator.design.mechanisms.Traits`.
    ``levels``: a reading is rounded to one of ``levels`` + 1 values. ``variance_ratio``: the variance of a report,
    divided by the Hybrid's at the same θ and ε; both are means over the readings' distribution when θ was chosen.
    """

    kind: str
    what: str
    levels: int
    symbols: int
    variance_ratio: float

    @property
    def error_ratio(self) -> float:
        """Standard error divided by the Hybrid's: the square root of ``variance_ratio``."""
        return math.sqrt(self.variance_ratio)

    def sentence(self) -> str:
        """Return the facts as a sentence for people."""
        if self.kind == "hybrid":
            return "devices add noise by the Hybrid mechanism"
        change = f"{abs(1 - self.error_ratio):.1%} {'smaller' if self.error_ratio <= 1 else 'larger'}"
        return (
            f"devices add noise by {self.what} of {self.levels + 1} levels and {self.symbols} symbols: the threshold"
            f" rounds predict standard errors {change} than the Hybrid's (variance × {self.variance_ratio:.3f})"
        )


def mechanism_facts(epoch: Epoch, epsilon: Fraction) -> MechanismFacts | None:
    """Return the facts of an epoch; None without a report rule, or without an estimated density to predict from."""
    rule, chosen = epoch.report, epoch.threshold
    if rule is None or chosen is None:
        return None
    mechanism = rule.mechanism
    traits = traits_of(mechanism)
    saved = gain(mechanism, epsilon, chosen.width, chosen.readings)
    return MechanismFacts(traits.kind, traits.sentence, mechanism.levels, mechanism.symbols, 1.0 - saved)

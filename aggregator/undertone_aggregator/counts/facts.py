"""Facts about an epoch's report mechanism, in words and numbers: its kind and its predicted gain over the Hybrid."""

import math
from dataclasses import dataclass
from fractions import Fraction

from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.design.fitted import gain
from undertone_aggregator.design.mechanisms import traits_of


@dataclass(frozen=True)
class MechanismFacts:
    """``kind``, ``what``: see `design.mechanisms.Traits`. A reading is rounded to one of ``levels`` + 1 levels.

    ``variance_ratio``: mean variance of a report over the Hybrid's at the same θ and ε, for the readings as the
    threshold phase estimated them; ``error_ratio``: its square root, the ratio of standard errors.
    """

    kind: str
    what: str
    levels: int
    symbols: int
    variance_ratio: float

    @property
    def error_ratio(self) -> float:
        """The standard error over the Hybrid's."""
        return math.sqrt(self.variance_ratio)

    def sentence(self) -> str:
        """Return the facts as a sentence."""
        if self.kind == "hybrid":
            return "the Hybrid reports"
        change = f"{abs(1 - self.error_ratio):.1%} {'smaller' if self.error_ratio <= 1 else 'larger'}"
        return (
            f"{self.what} of {self.levels + 1} levels and {self.symbols} symbols reports: standard errors {change} than"
            f" the Hybrid's (variance × {self.variance_ratio:.3f}, predicted from the threshold rounds)"
        )


def mechanism_facts(epoch: Epoch, epsilon: Fraction) -> MechanismFacts | None:
    """Return the facts of a report epoch; None without a report rule, or without a density for the prediction."""
    rule, chosen = epoch.report, epoch.threshold
    if rule is None or chosen is None:
        return None
    mechanism = rule.mechanism
    known = traits_of(mechanism)
    saved = gain(mechanism, epsilon, chosen.width, chosen.readings)
    return MechanismFacts(known.kind, known.sentence, mechanism.levels, mechanism.symbols, 1.0 - saved)

"""The privacy blanket of a mechanism: what n reports without names and order reveal about one of them (day-privacy,
5.1).

With ω_y = min_k P(y | k) and γ = Σ_y ω_y, each report is, with probability γ, drawn from ω/γ whatever its reading
(Balle, Bell, Gascón, Nissim, CRYPTO 2019). Assume that the observer knows all other reports; then only T = 1 + Bin(n -
1, γ) blankets hide the report in question. G_k(y) = P(y | k)/ω_y lies in [1, p], p the certificate, and has mean 1/γ
over the blanket; the loss is ln(Σ G_k / Σ G_k') over the T reports. A hockey-stick divergence is convex in the G, so it
is largest where they are 1 or p, and where no report has p for both: with t = (1/γ - 1)/(p - 1),

    (A, B, R) | T ~ Multinomial(T; t, t, 1 - 2t),    loss = ln[(T + (p - 1) A) / (T + (p - 1) B)],

where A reports have G_k = p, B reports have G_k' = p, and the other R reports have neither. The loss is taken under the
reading k: its distribution P is this multinomial one times γ (T + (p - 1) A)/T. It dominates the loss of any mechanism
with these p and γ; for stochastic rounding, piecewise and the Hybrid it is exact.
"""

from dataclasses import dataclass
from fractions import Fraction

from undertone_aggregator.design.mechanisms import Mechanism
from undertone_shared.errors import Invalid


@dataclass(frozen=True)
class Blanket:
    """Blanket with ``gamma`` = γ and ``ratio`` = p, the certificate.

    Raises Invalid if t exceeds 1/2: no pair is known then.
    """

    gamma: Fraction
    ratio: Fraction

    def __post_init__(self) -> None:
        if not 0 < self.gamma < 1 < self.ratio or self.extreme > Fraction(1, 2):
            raise Invalid(
                f"the mechanism's blanket is {float(self.gamma):.6g} at the ratio {float(self.ratio):.6g}, expected at"
                f" least {float(2 / (self.ratio + 1)):.6g}, stochastic rounding's"
            )

    @property
    def extreme(self) -> Fraction:
        """The probability t that a blanket draw looks p times as likely under the one reading as under the other."""
        return (1 / self.gamma - 1) / (self.ratio - 1)

    @staticmethod
    def of(mechanism: Mechanism) -> "Blanket":
        """Compute the blanket exactly from the mechanism's weights. Raises Invalid."""
        rows = [mechanism.weights(level) for level in range(mechanism.levels + 1)]
        least = sum(min(column) for column in zip(*rows, strict=True))
        return Blanket(Fraction(least, mechanism.row_total()), Fraction(*mechanism.certificate()))

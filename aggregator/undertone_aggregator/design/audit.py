"""Audit of a mechanism: recompute its certificate and moments from its weights, and compare them with what it states.

Moments are in the papers' units, in which the range [0, theta] of readings becomes [-1, 1].
"""

from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from undertone_aggregator.design.mechanisms import Mechanism


class NotCertified(Exception):
    """A mechanism differs from what it states about itself or exceeds its cap, or a campaign has a wrong signature."""


@dataclass(frozen=True)
class AuditedLevel:
    """One level: the reading that it represents, and the exact mean and variance of the estimate, by summation."""

    level: int
    reading: Fraction
    mean: Fraction
    variance: Fraction


def checked_ratio(mechanism: Mechanism, cap: tuple[int, int]) -> Fraction:
    """Recompute the certificate (the largest ratio of probabilities) from the weights and return it in lowest terms.

    Raises NotCertified if the mechanism states another certificate, or if the certificate exceeds the cap p/q.
    """
    worst = Fraction(1)
    for part in mechanism.parts:
        first = part.first
        rows = [part.weights(level)[first:] for level in range(part.levels + 1)]
        for column, weights in enumerate(zip(*rows, strict=True)):
            largest, smallest = max(weights), min(weights)
            if largest * cap[1] > cap[0] * smallest:
                raise NotCertified(
                    f"column {first + column} has weights from {smallest} to {largest}: "
                    f"{largest}/{smallest} = {largest / smallest:.9g} exceeds the cap {cap[0] / cap[1]:.9g}"
                )
            worst = max(worst, Fraction(largest, smallest))
    if worst != Fraction(*mechanism.certificate()):
        stated = Fraction(*mechanism.certificate())
        raise NotCertified(f"the weights give the certificate {worst}, but the mechanism states {stated}")
    return worst


def check_rows(mechanism: Mechanism) -> None:
    """Check that each row of weights sums to the stated total. Raises NotCertified."""
    for level in range(mechanism.levels + 1):
        total = sum(mechanism.weights(level))
        if total != mechanism.row_total():
            raise NotCertified(f"the weights of level {level} sum to {total}, expected {mechanism.row_total()}")


def exact_levels(mechanism: Mechanism, theta: int) -> list[AuditedLevel]:
    """Compute mean and variance at each level from the weights.

    ``theta``: the readings' range is [0, theta]. The results are in the papers' units, so they do not depend on
    ``theta``. Raises NotCertified if the mechanism's own formulas, its ``value`` and ``variance``, give other numbers.
    Raises Invalid for a mechanism with edges and for a table without decoded values.
    """
    decoded = [_centred(mechanism.decode(symbol, theta), theta) for symbol in _symbols(mechanism)]
    scale = lcm(*(y.denominator for y in decoded))
    ys = [int(y * scale) for y in decoded]
    squares = [y * y for y in ys]
    total = mechanism.row_total()
    audited = []
    for level in range(mechanism.levels + 1):
        weights = mechanism.weights(level)
        row = [weights[symbol] for symbol in _symbols(mechanism)]
        mean = Fraction(sum(map(int.__mul__, row, ys)), total * scale)
        second = Fraction(sum(map(int.__mul__, row, squares)), total * scale * scale)
        variance = second - mean * mean
        reading = _centred(mechanism.value(level, theta), theta)
        if mean != reading:
            raise NotCertified(f"level {level} stands for {reading}, but the weights give the mean {mean}")
        stated = Fraction(*mechanism.variance(level, theta)) * Fraction(4, theta * theta)
        if variance != stated:
            raise NotCertified(
                f"at level {level} the weights give the variance {variance}, but the closed form says {stated}"
            )
        audited.append(AuditedLevel(level, reading, mean, variance))
    return audited


def _symbols(mechanism: Mechanism) -> range:
    return range(mechanism.first, mechanism.symbols)


def _centred(value: tuple[int, int], theta: int) -> Fraction:
    return Fraction(*value) * Fraction(2, theta) - 1

"""Reference formulas of streams: schedules of coefficients, and the squared norm of one path with a schedule."""

from collections.abc import Sequence
from fractions import Fraction

from undertone_aggregator.design.stream.schedule import Recurrence, Recurrences


def squared_norm(schedule: Recurrences, differences: "list[Fraction]") -> Fraction:
    """Σ ξ_i² for one path D."""
    total = Fraction(0)
    for i, row in enumerate(schedule):
        gap = differences[i] - sum((tap * differences[i - k] for k, tap in enumerate(row.taps, 1)), Fraction(0))
        total += row.weight * gap * gap
    return total


def triangular(alpha: Sequence[Sequence[Fraction]], variances: Sequence[Fraction]) -> Recurrences:
    """The general form of a schedule (Lemma 4.1), with α_ij below the diagonal and σ_i²."""
    rows = []
    for i, (line, variance) in enumerate(zip(alpha, variances, strict=True)):
        taps = [Fraction(line[i - k]) for k in range(1, i + 1)]
        while taps and taps[-1] == 0:
            taps.pop()
        rows.append(Recurrence(tuple(taps), 1 / Fraction(variance)))
    return tuple(rows)

"""What somebody who holds all reports of one device can learn at most, starting from an even guess.

Somebody thinks that two values of a reading are equally likely, and then sees the device's report. If the report's
probabilities under the two values differ by a factor of at most c, they then believe in one of the values with a
probability of at most c / (1 + c) (Bayes). For n readings that are protected one by one, for example two possible
courses of a whole day, the factor is at most cⁿ.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from undertone_aggregator.design.budget import exponential_below
from undertone_aggregator.estimate.guarantee import EVENT, USER, WINDOW, Guarantee
from undertone_shared.errors import Invalid

_DAY_SECONDS = 86400
# If c exceeds this, `surest` returns 1 without computing c / (1 + c), which would be rounded up to 1.
_PRACTICALLY_SURE = 10**6
_STEPS = 10_000
# An upper bound of e^ε minus `exponential_below`.
_REMAINDER = Fraction(1, 10**29)


@dataclass(frozen=True)
class Odds:
    """What somebody can learn at most from some reports.

    ``of``: these reports, in words. ``reports``: their number; None for all reports of a stream.

    ``at_most``: the largest probability, after seeing them, of the likelier of two guesses that were equally likely;
    rounded up to four digits, so that 1.0 means practically sure. ``delta``: the probability that the bound does not
    hold, 0 if it always does.
    """

    of: str
    reports: int | None
    at_most: float
    delta: float


def surest(ratio: Fraction, reports: int = 1) -> float:
    """Return c / (1 + c) for c = ``ratio`` ** ``reports``, rounded up to four digits. ``ratio`` >= 1."""
    if reports * math.log(ratio) > math.log(_PRACTICALLY_SURE):
        return 1.0
    factor: Fraction = ratio**reports
    return math.ceil(factor / (1 + factor) * _STEPS) / _STEPS


def odds(guarantee: Guarantee, slot_seconds: int, reports: int = 0) -> list[Odds]:
    """Return the odds of one report, and of all reports that the guarantee covers together.

    If it covers single readings, the second are the odds of a day's reports. Slots last ``slot_seconds``. ``reports``:
    the most reports of one device in the whole campaign, 0 if unknown. Their odds come last, if they are larger than
    the others and the guarantee is not for a user. Raises Invalid for an unknown level of protection.
    """
    found = []
    if guarantee.certificate is not None:
        found.append(Odds("one report", 1, surest(guarantee.certificate), 0.0))
    if guarantee.level == EVENT:
        readings = _DAY_SECONDS // slot_seconds
        if readings > 1 and guarantee.certificate is not None:
            found.append(Odds("all reports of a day", readings, surest(guarantee.certificate, readings), 0.0))
    elif guarantee.level == WINDOW:
        if guarantee.certificate is not None:
            found.append(Odds(f"all reports of {guarantee.span}", 1, surest(guarantee.certificate), 0.0))
    elif guarantee.level == USER:
        ratio = exponential_below(guarantee.budget.epsilon) + _REMAINDER
        delta = guarantee.budget.approximate[1]
        found.append(Odds(f"all reports in {guarantee.span}", None, surest(ratio), delta))
    else:
        raise Invalid(f"the level of protection is {guarantee.level!r}, expected {EVENT}, {WINDOW} or {USER}")
    if guarantee.level != USER and guarantee.certificate is not None and reports > 1:
        together = surest(guarantee.certificate, reports)
        if together > max(each.at_most for each in found):
            found.append(Odds("all reports of the whole campaign", reports, together, 0.0))
    return found

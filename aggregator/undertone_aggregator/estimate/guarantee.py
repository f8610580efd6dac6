"""The privacy guarantee of a campaign, in numbers and in words that are shown with its estimates."""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import exp

from undertone_aggregator.base.plural import many
from undertone_aggregator.design import Budget
from undertone_aggregator.design.budget import shown
from undertone_shared.campaign import Campaign
from undertone_shared.scalar import ScalarRule
from undertone_shared.stream import ONE_BIT, RHO_UNIT, StreamRule

EVENT = "event"
WINDOW = "window"
USER = "user"
_HABIT_DAYS = 30
_UNITS = (("hour", "h", 3600), ("minute", "min", 60), ("second", "s", 1))


@dataclass(frozen=True)
class Guarantee:
    """What a campaign guarantees to a household or to a single reading, in numbers and in a sentence.

    ``level``: what it protects: ``event`` (one reading), ``window`` (all readings in any ``span``), or ``user`` (all
    reports in ``span``). ``certificate``: the largest exact ratio of the probabilities of a single report; None if
    there is none.
    """

    level: str
    span: str
    budget: Budget
    rho: Fraction | None
    certificate: Fraction | None
    sentence: str


def scalar_guarantee(campaign: Campaign, rule: ScalarRule, budget: Budget) -> Guarantee:
    """Return the guarantee of an epoch in which each reading is used only once, by one of the rule's mechanisms."""
    ratio = max(Fraction(*mechanism.certificate()) for _, mechanism in rule.mechanisms)
    level, span, sentence = EVENT, "one reading", _every_slot(budget, campaign.cycle)
    rest = rest_of(campaign)
    if rule.report is None and campaign.last_slot - campaign.first_slot < campaign.schedule.stride:
        sentence = f"event-level local differential privacy, {budget.text} for the one report of a device in this round"
    elif rest:
        period = campaign.schedule.stride * campaign.slot_seconds
        level, span, sentence = WINDOW, f"any {lasting(rest)}", _turns(budget, rest, period)
    return Guarantee(level, span, budget, None, ratio, sentence)


def _every_slot(budget: Budget, cycle: int) -> str:
    together = shown(budget.epsilon * cycle)
    return (
        f"event-level local differential privacy, {budget.text} per reading; "
        f"a device that reports {cycle} readings per cycle spends up to ε = {together} on them together"
    )


def rest_of(campaign: Campaign) -> int:
    """Return the seconds between the measuring intervals of two reports. A counter's interval begins one slot
    earlier.
    """
    slots = 2 if campaign.measure == "counter" else 1
    return max(campaign.schedule.stride - slots, 0) * campaign.slot_seconds


def _turns(budget: Budget, rest: int, period: int) -> str:
    window, odds = lasting(rest), f"{exp(budget.epsilon):.3g}"
    # Largest number of readings in `_HABIT_DAYS` days. The first and the last of them may lie only partly within these
    # days.
    readings = (_HABIT_DAYS * 86400 + period - rest) // period + 1
    return (
        f"{budget.text} for any {window}, because a device rests for {window} between two readings: all that it ever "
        f"sends changes the odds of what happened in any {window} by a factor of at most {odds}, whatever else is "
        f"known; a habit repeated over {_HABIT_DAYS} days costs at most ε = {shown(budget.epsilon * readings)}"
    )


def lasting(seconds: int, *, short: bool = False) -> str:
    """Format a duration in whole hours, minutes or seconds: "24 hours", or ``short`` "24 h"."""
    word, symbol, size = next(unit for unit in _UNITS if seconds % unit[2] == 0)
    return f"{seconds // size} {symbol}" if short else f"{seconds // size} {word}" + "s" * (seconds != size)


def stream_guarantee(rule: StreamRule, budget: Budget) -> Guarantee:
    """Return the guarantee of all reports of a device in one window. ρ is the quantity that adds up over windows."""
    span = f"one window of {rule.renewal} slots" if rule.renewal else "the whole campaign"
    rho = Fraction(rule.charge(), RHO_UNIT)
    sentence = (
        f"user-level local differential privacy, {budget.text} for all reports of a device "
        f"in {span}: up to {many(rule.reports, 'report')} in {many(rule.chains, 'chain')}; rho = {float(rho):.5f}"
    )
    return Guarantee(USER, span, budget, rho, _one_report(rule), sentence)


def with_round(stream: Guarantee, budget: Budget) -> Guarantee:
    """Return a stream's guarantee with its threshold round: by sequential composition, its budget is for both
    together.
    """
    part = shown(budget.epsilon)
    return replace(stream, sentence=f"{stream.sentence}; of this ε, {part} is for the one report that finds theta")


def _one_report(rule: StreamRule) -> Fraction | None:
    """Return the largest ratio of the probabilities of a one-bit stream's single report; None for Gaussian noise."""
    if rule.law != ONE_BIT:
        return None
    first, later = rule.noise
    return max(
        Fraction(2 * step + width, 2 * step - width) for step, width in ((first, rule.levels), (later, rule.swing))
    )

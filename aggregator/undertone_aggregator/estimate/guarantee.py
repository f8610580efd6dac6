"""What a campaign costs in privacy, in numbers and in words that stand wherever its estimates are shown."""

from dataclasses import dataclass
from fractions import Fraction

from undertone_aggregator.design import Budget
from undertone_aggregator.design.budget import shown
from undertone_shared.campaign import Campaign
from undertone_shared.scalar import ScalarRule
from undertone_shared.stream import ONE_BIT, RHO_UNIT, StreamRule

EVENT = "event"
USER = "user"


@dataclass(frozen=True)
class Guarantee:
    """``level``: ``event``, of one reading, or ``user``, of all reports of a device in ``span``.

    ``certificate``: the largest exact ratio of the probabilities of one report by itself; None where there is none.
    """

    level: str
    span: str
    budget: Budget
    rho: Fraction | None
    certificate: Fraction | None
    sentence: str


def scalar_guarantee(campaign: Campaign, rule: ScalarRule, budget: Budget) -> Guarantee:
    """Of an epoch in which each reading meets one draw of one of the rule's mechanisms."""
    ratio = max(Fraction(*mechanism.certificate()) for _, mechanism in rule.mechanisms)
    return Guarantee(EVENT, "one reading", budget, None, ratio, event_sentence(budget, campaign.cycle))


def event_sentence(budget: Budget, cycle: int) -> str:
    """The level of the guarantee, and what it adds up to over a cycle."""
    together = shown(budget.epsilon * cycle)
    return (
        f"event-level local differential privacy, {budget.text} per reading; "
        f"a device that reports {cycle} readings per cycle spends up to ε = {together} on them together"
    )


def stream_guarantee(rule: StreamRule, budget: Budget) -> Guarantee:
    """Of all reports of a device in one window; ρ is what adds up."""
    span = f"each window of {rule.renewal} slots" if rule.renewal else "the whole campaign"
    rho = Fraction(rule.charge(), RHO_UNIT)
    sentence = (
        f"user-level local differential privacy, {budget.text} for all reports of a device "
        f"in {span}: up to {rule.reports} in {rule.chains} chains; rho = {float(rho):.5f}"
    )
    return Guarantee(USER, span, budget, rho, _one_report(rule), sentence)


def _one_report(rule: StreamRule) -> Fraction | None:
    """(1 + τ)/(1 - τ) of a one-bit stream, the ratio for one report by itself; Gaussian noise has none."""
    if rule.law != ONE_BIT:
        return None
    first, later = rule.noise
    return max(
        Fraction(2 * step + width, 2 * step - width) for step, width in ((first, rule.levels), (later, rule.swing))
    )

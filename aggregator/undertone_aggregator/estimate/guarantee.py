"""What a campaign costs in privacy, in words that stand wherever its numbers are shown."""

from fractions import Fraction

from undertone_shared.campaign import Campaign
from undertone_shared.stream import ONE_BIT, RHO_UNIT, StreamRule


def certificate(campaign: Campaign) -> Fraction:
    """The largest certificate of the epoch's mechanisms: each reading meets one draw of one of them.

    Of a stream campaign: of one report by itself, which only one-bit streams have; 0 stands for none.
    """
    if campaign.stream is not None:
        return stream_certificate(campaign.stream)
    return max(Fraction(*mechanism.certificate()) for _, mechanism in campaign.rule.mechanisms)


def guarantee(epsilon: Fraction, cycle: int) -> str:
    """One sentence: the level of the guarantee, and what it adds up to over a cycle."""
    one, all_of_them = f"{float(epsilon):g}", f"{float(epsilon * cycle):g}"
    return (
        f"event-level local differential privacy, ε = {one} per reading; "
        f"a device that reports {cycle} readings per cycle spends up to ε = {all_of_them} on them together"
    )


def stream_certificate(rule: StreamRule) -> Fraction:
    """(1 + τ)/(1 - τ) of a one-bit stream, the ratio for one report by itself; 0 for Gaussian noise, which has none."""
    if rule.law != ONE_BIT:
        return Fraction(0)
    first, later = rule.noise
    return max(
        Fraction(2 * step + width, 2 * step - width) for step, width in ((first, rule.levels), (later, rule.swing))
    )


def stream_guarantee(rule: StreamRule, epsilon: Fraction, delta: float) -> str:
    """One sentence: the level of the guarantee, what it covers, and ρ, which is what adds up."""
    span = f"each window of {rule.renewal} slots" if rule.renewal else "the whole campaign"
    return (
        f"user-level local differential privacy, (ε, δ) = ({float(epsilon):g}, {delta:g}) for all reports of a device "
        f"in {span}: up to {rule.reports} in {rule.chains} chains; rho = {rule.charge() / RHO_UNIT:.5f}"
    )


def campaign_guarantee(campaign: Campaign, epsilon: Fraction, delta: float | None) -> str:
    """The sentence that fits the campaign's kind."""
    if campaign.stream is not None:
        return stream_guarantee(campaign.stream, epsilon, delta or 0.0)
    return guarantee(epsilon, campaign.cycle)

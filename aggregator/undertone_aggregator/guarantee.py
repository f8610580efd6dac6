"""What a campaign costs in privacy, in words that stand wherever its numbers are shown."""

from fractions import Fraction

from undertone_shared.campaign import Campaign


def certificate(campaign: Campaign) -> Fraction:
    """The largest certificate of the epoch's mechanisms: each reading meets one draw of one of them."""
    found = [campaign.cohort.mechanism.certificate()]
    if campaign.report is not None:
        found.append(campaign.report.mechanism.certificate())
    return max(Fraction(*pair) for pair in found)


def guarantee(epsilon: Fraction, cycle: int) -> str:
    """One sentence: the level of the guarantee, and what it adds up to over a cycle."""
    one, all_of_them = f"{float(epsilon):g}", f"{float(epsilon * cycle):g}"
    return (
        f"event-level local differential privacy, ε = {one} per reading; "
        f"a device that reports {cycle} readings per cycle spends up to ε = {all_of_them} on them together"
    )

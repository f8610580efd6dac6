"""Formats estimates as lines of the log."""

from undertone_aggregator.estimate.estimates import MODEL, Estimate, Z


def suspicion(estimate: Estimate) -> str:
    """Return a line about a slot whose histogram honest devices would not send."""
    return (
        f"warning: slot {estimate.slot} holds reports that do not come from honest devices:"
        f" they would send such a histogram with a chance of at most 10^-{estimate.misfit:.0f}"
    )


def describe(estimate: Estimate, unit: str) -> str:
    """Return an estimate as a line for people; the number after ± is half the width of its 95 % interval."""
    if estimate.kind != MODEL:
        return (
            f"slot {estimate.slot}: {estimate.estimate:.1f} ± {Z * (estimate.standard_error or 0.0):.1f} {unit}"
            f" from {estimate.reports} reports"
        )
    return f"slot {estimate.slot}: about {estimate.estimate:.1f} {unit} (model) from {estimate.cohort} cohort reports"

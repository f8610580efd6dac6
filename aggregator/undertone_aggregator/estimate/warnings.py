"""What people are told of estimates whose intervals may not hold, or that show noise only."""

import numpy as np

from undertone_aggregator.base.durations import utc
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.counts.partial import EVERYBODY
from undertone_aggregator.estimate.estimates import ABSENT, Estimates
from undertone_aggregator.estimate.estimator import Estimator
from undertone_aggregator.estimate.misfit import ALARMING, RARELY
from undertone_aggregator.estimate.ranges import drowned


def warnings_of(timeline: Timeline, estimator: Estimator, estimates: Estimates) -> list[str]:
    """Return sentences about what a campaign's estimates cannot show, and about the choice of θ."""
    table = estimates.take(estimates.kind != ABSENT)
    raw = table.take(~table.filtered)
    chosen = next((epoch.threshold for epoch in reversed(timeline.epochs) if epoch.threshold), None)
    sentences = list(chosen.warnings) if chosen is not None else []
    sentences += estimator.warnings(raw)
    campaign = timeline.epochs[-1].campaign
    odd = table.take(np.nan_to_num(table.misfit) >= ALARMING)
    if len(odd):
        worst = odd[int(odd.misfit.argmax())]
        begins = utc(worst.slot * campaign.slot_seconds)
        sentences.append(
            f"some reports behind {len(odd)} of {len(table)} estimates can hardly be from honest devices, most clearly"
            f" those of {begins}, group {worst.group}: {RARELY}"
        )
    noise = drowned(raw.take(raw.group == EVERYBODY), campaign.offset)
    return sentences + ([noise] if noise is not None else [])

"""Which column of the readings a slot measures; it follows from the epochs that a campaign announces."""

from collections.abc import Sequence
from dataclasses import dataclass

from undertone_aggregator.counts.epochs import REPORT_PHASE, THRESHOLD_PHASE, Epoch
from undertone_shared.campaign import Campaign
from undertone_simulator.wire.ledger import Play


@dataclass(frozen=True)
class Continuous:
    """Each slot measures the next column of the readings, from the campaign's first slot on."""

    def next(self, plays: Sequence[Play], campaign: Campaign) -> Play | None:
        """Return the `Play` that begins with this campaign's epoch; None if the last one of ``plays`` continues."""
        phase = phase_of(campaign)
        if plays and (campaign.first_slot <= plays[-1].first or plays[-1].phase == phase):
            return None
        return Play(campaign.first_slot, campaign.first_slot - plays[0].first if plays else 0, 1, phase)


@dataclass(frozen=True)
class Playback:
    """For demonstrations: slots of threshold rounds skip columns of the readings, so that a short round covers a day.

    Threshold epoch number r measures every `stride`-th column of its own `days`; the first report epoch continues with
    the following day, column after column.
    """

    per_day: int
    stride: int
    days: int = 1

    def next(self, plays: Sequence[Play], campaign: Campaign) -> Play | None:
        """Return the `Play` that begins with this campaign's epoch; None if the last one of ``plays`` continues."""
        if plays and (campaign.first_slot <= plays[-1].first or plays[-1].phase == REPORT_PHASE):
            return None
        column = len(plays) * self.days * self.per_day
        if phase_of(campaign) == THRESHOLD_PHASE:
            return Play(campaign.first_slot, column, self.stride, THRESHOLD_PHASE)
        return Play(campaign.first_slot, column, 1, REPORT_PHASE)


def column_of(plays: Sequence[Play], slot: int) -> int:
    """Return the column of the readings that devices measure in ``slot``, which must not precede the playback."""
    play = next(play for play in reversed(plays) if slot >= play.first)
    return play.column + (slot - play.first) * play.stride


def phase_of(campaign: Campaign) -> str:
    """Return the phase of the epoch that a campaign announces."""
    return Epoch(campaign, campaign.epoch).phase

"""Checks a plan before its campaign begins: the files that it names, its guarantee, its warnings."""

import time
from collections.abc import Sequence

from undertone_aggregator.base.files import read_secret
from undertone_aggregator.campaign.collection import collection_of, guarantee_of
from undertone_aggregator.campaign.epoch_source import EpochMeans, EpochSource
from undertone_aggregator.counts.epochs import THRESHOLD_PHASE, Epoch, Timeline
from undertone_aggregator.counts.partial import Partial
from undertone_aggregator.estimate.guarantee import lasting, rest_of
from undertone_aggregator.settings.config import CampaignPlan, Config
from undertone_aggregator.settings.groups import read_groups
from undertone_aggregator.settings.papers import papers_sentence
from undertone_shared.campaign import Campaign
from undertone_shared.schedule import SEED_BYTES


def epochs_of(config: Config) -> EpochSource:
    """Return the object that would decide on the plan's epochs before any report has come. Raises Invalid."""
    seed = config.campaign.cohort_seed or bytes(SEED_BYTES)
    return collection_of(config.kind).epochs(config, EpochMeans(seed, lambda *_: Partial()))


def end_of(config: Config, epochs: Sequence[Epoch]) -> int:
    """Return the Unix second at which the campaign ends, by the ``epochs`` that were issued.

    A stream's threshold round is an epoch that ends before the stream begins. During the round the planned end is
    returned.
    """
    newest = epochs[-1]
    if newest.phase != THRESHOLD_PHASE:
        return newest.campaign.end
    return (epochs_of(config).last_slot(Timeline(epochs)) + 1) * newest.campaign.slot_seconds


def check_files(config: Config) -> None:
    """Read the files of groups, of the outlet's password and of its CA, as the server will.

    Raises Invalid, or OSError naming the file.
    """
    plan, outlet = config.campaign, config.outlet
    if plan.groups is not None:
        read_groups(config.path(plan.groups))
    # ``days`` reads the country's holidays from a library. If the library is missing, the error is raised here.
    _ = plan.days
    if outlet.password_file is not None:
        read_secret(config.secret(outlet.password_file))
    if outlet.ca_file is not None:
        config.path(outlet.ca_file).read_bytes()


def preview(config: Config, now: int) -> list[str]:
    """Return sentences: the plan's guarantee, the campaign's end if it begins at Unix second ``now``, notes, warnings.

    Raises Invalid or OSError, as `check_files` does.
    """
    check_files(config)
    epochs = epochs_of(config)
    timeline = Timeline(epochs.planned(now))
    cost = guarantee_of(timeline, config.budget)
    end = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(timeline.epochs[-1].campaign.end))
    warnings = [f"warning: {sentence}" for sentence in epochs.warnings().values()]
    said = [_longer_rest(config.campaign, timeline.epochs[-1].campaign), papers_sentence(config.campaign)]
    return [f"privacy: {cost.sentence}", f"the last slot ends at {end}", *filter(None, said), *warnings]


def _longer_rest(plan: CampaignPlan, campaign: Campaign) -> str:
    """Return a sentence if devices rest longer than the plan's window requires; else ""."""
    rest = rest_of(campaign)
    if plan.window is None or rest <= plan.window:
        return ""
    return (
        f"a device rests {lasting(rest)} between two readings, longer than campaign.window ({lasting(plan.window)})"
        f" asks for: it reports in one of {campaign.schedule.stride} slots, because a rest lasts whole slots, and"
        f" this number must have no divisor above 1 in common with the {plan.cycle} slots of a cycle"
    )

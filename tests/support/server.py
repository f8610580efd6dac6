"""A campaign for the server's tests: two epochs, and the report that a device would send in each."""

import functools
from pathlib import Path

from support.factory import FIRST, campaign_of
from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.design import hybrid, square_wave
from undertone_aggregator.settings.config import CampaignPlan, Config, parse_config
from undertone_shared import report
from undertone_shared.campaign import Campaign
from undertone_shared.scalar import Cohort, ReportRule
from undertone_shared.schedule import Schedule
from undertone_shared.topics import report_topic

PREFIX = "undertone-test/server"
SEED = bytes(range(16))
EDGES = (0, 10, 100, 1001)


@functools.cache
def campaign(
    first: int = FIRST,
    last: int = FIRST + 1000,
    cohort_stride: int = 1,
    theta: int = 0,
    bound: int = 1000,
    later: tuple[tuple[int, int, int], ...] = (),
    offset: int = 0,
    low: int = 0,
) -> Campaign:
    """One epoch with slots of a second. It is a threshold epoch unless theta is given. ``later``: further blocks."""
    rule = ReportRule(low, theta, hybrid(4, 16), later) if theta else None
    return campaign_of(
        offset=offset,
        bound=bound,
        epoch=first,
        last_slot=last,
        default=offset,
        cohort=Cohort(square_wave(4, EDGES)),
        report=rule,
        schedule=Schedule(SEED, 1, cohort_stride),
    )


def two_epochs() -> list[Epoch]:
    """A threshold epoch, and a report epoch from slot FIRST + 100 on.

    In the latter, a ninth of the devices reports for the threshold.
    """
    return [
        Epoch(campaign(), FIRST - 10),
        Epoch(campaign(FIRST + 100, cohort_stride=9, theta=500), FIRST + 90),
    ]


def delivery(issued: Campaign, device: str, slot: int, symbol: int = 0, sequence: int = 1) -> tuple[str, bytes]:
    """The topic and payload of an honest device's report."""
    member = issued.schedule.is_member(issued.schedule.place(device), slot)
    kind = report.COHORT if member else report.REPORT
    return report_topic(PREFIX, issued.name, device), report.pack(kind, issued.fingerprint, slot, (symbol,), sequence)


def config(folder: Path, text: str = "", **options: object) -> Config:
    """A configuration with slots of a second. ``options`` are lines of [campaign], and ``text`` has further tables."""
    lines = {
        "name": '"meters"',
        "sensor": '"load"',
        "unit": '"Wh"',
        "bound": 1000,
        "epsilon": 4,
        "mechanism": '"hybrid"',
        "slot_seconds": 1,
        "cycle": 4,
        "rounds": [4, 4],
        "report_slots": 20,
        "epoch_slots": 8,
        "cohort_share": 0.1,
        "settle_slots": 1,
        **options,
    }
    body = "\n".join(f"{name} = {value}" for name, value in lines.items())
    return parse_config(f"{text}\n[campaign]\n{body}\n", folder)


def plan(**options: object) -> CampaignPlan:
    """The plan of the campaign in ``config``."""
    return config(Path(), **options).campaign

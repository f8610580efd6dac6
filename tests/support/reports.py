"""Reports of a campaign, honest and not.

`expected` judges all of them by a single admission. The fault tests compare what their servers counted with this.
"""

import random

from support.child_server import NOW, PREFIX
from support.server import delivery
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.counts.partial import Partial
from undertone_aggregator.counts.seen import COUNTED, Seen
from undertone_aggregator.ingest.admission import Admission
from undertone_aggregator.store.store import Batch
from undertone_shared.campaign import Campaign
from undertone_shared.topics import report_topic


def some_reports(campaign: Campaign, chance: random.Random, number: int, count: int) -> list[tuple[str, bytes]]:
    """Reports of one slot. Some come twice, and a few are not valid."""
    slot = campaign.first_slot + number
    symbols = campaign.cohort.mechanism.symbols
    made = [delivery(campaign, f"d{i}", slot, chance.randrange(symbols)) for i in range(count)]
    made += chance.sample(made, count // 10)
    made.append((made[0][0], b"no report"))
    made.append((made[1][0].replace("/d1/", "/d0/"), made[1][1]))
    chance.shuffle(made)
    return made


def expected(
    campaign: Campaign, epochs: Timeline, sent: list[tuple[str, bytes]], own_only: bool = False
) -> tuple[Partial, dict[object, str]]:
    """How one admission judges everything that was sent, and the outcome of each different report.

    ``own_only``: judge a report as if it had no topic, if its topic is not that of the device which the topic names.
    """
    admission = Admission(PREFIX, "meters", 1, Seen(), cells=cells_of, audit=True)
    admission.timeline = epochs
    batch = Batch()
    for topic, payload in sent:
        own = not own_only or topic == report_topic(PREFIX, "meters", topic.split("/")[-2])
        admission.judge(topic if own else "", payload, False, NOW, batch)
    outcomes: dict[object, str] = {}
    for device, code, outcome in batch.audit:
        if outcome == COUNTED or (device, code) not in outcomes:
            outcomes[device, code] = outcome
    return batch.partial, outcomes

"""For tests of a campaign's rounds: a fleet whose devices report at once, and an outlet that keeps messages."""

import random
from bisect import bisect_right
from itertools import accumulate

from support import server
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.counts.partial import Key
from undertone_aggregator.store.store import Batch, Store
from undertone_shared import report
from undertone_shared.campaign import Campaign

NOW = server.FIRST
DEVICES = 400


class Outlet:
    """Keeps what was published."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []

    def publish(self, topic: str, payload: bytes, *, again: bool = False) -> None:
        self.messages.append((topic, payload))

    def campaigns(self) -> list[Campaign]:
        return [Campaign(payload[12:-64]) for topic, payload in self.messages if topic.endswith("/config")]


def report_slot(store: Store, slot: int, chance: random.Random, scale: float) -> None:
    """Let all devices report for a slot. Readings are exponential with the mean ``scale``."""
    epoch = Timeline(store.epochs()).at(slot)
    if epoch is None:
        return
    campaign, rule = epoch.campaign, epoch.campaign.report
    batch = Batch()
    members = DEVICES // campaign.schedule.cohort_stride
    laws: dict[tuple[int, int], list[int]] = {}
    for number in range(DEVICES):
        reading = min(int(chance.expovariate(1 / scale)), campaign.bound)
        if number < members:
            kind, mechanism = report.COHORT, campaign.cohort.mechanism
        else:
            assert rule is not None
            kind, mechanism = report.REPORT, rule.mechanism.piecewise  # type: ignore[union-attr]
        if kind == report.COHORT:
            level = bisect_right(mechanism.edges, reading) - 1  # type: ignore[arg-type]
        else:
            assert rule is not None
            level = min(reading, rule.theta) * mechanism.levels // rule.theta  # type: ignore[union-attr]
        if (kind, level) not in laws:
            laws[kind, level] = list(accumulate(mechanism.weights(level)))  # type: ignore[union-attr]
        symbol = chance.choices(range(mechanism.symbols), cum_weights=laws[kind, level])[0]  # type: ignore[union-attr]
        symbols = mechanism.symbols if kind == report.COHORT else rule.mechanism.symbols  # type: ignore[union-attr]
        batch.partial.add(Key("meters", campaign.fingerprint, kind, "all", slot), symbol, symbols)
    store.commit("0of1", batch)

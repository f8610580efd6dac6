"""Landed reports of a fleet, and the store of a server that counted the same deliveries itself."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from support.list_intake import ListIntake
from support.server import FIRST, PREFIX, delivery, two_epochs
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.ingest.ingest import Ingest, IngestPlan
from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.ingest.landing import Landing
from undertone_aggregator.settings.landing_plan import SERVER, LandingPlan
from undertone_aggregator.store.store import Store

EPOCHS = two_epochs()
START = FIRST + 100
GROUPS = 4
_CHUNK = 20_000


def bind(store: Store, epochs: Sequence[Epoch] = EPOCHS, *, name: str = "meters") -> None:
    """Make a store belong to this campaign."""
    store.set_meta({"campaign": name, "epsilon": "4"})
    for epoch in epochs:
        store.add_epoch(epoch)


def land_slot(folder: Path, store: Store, epoch: Epoch, slot: int, devices: int) -> None:
    """Land one honest report of each device, and count it into ``store``, to which the epoch was added before."""
    plan = IngestPlan(PREFIX, "meters", 1, cells_of, landing=LandingPlan(str(folder), 0.0, 3650, SERVER))
    ingest = Ingest(plan, store, ListIntake([]), clock=lambda: slot + 5)
    made = [delivery(epoch.campaign, f"d{number}", slot, number % 3) for number in range(devices)]
    assert ingest.commit([Delivery(*sent, False) for sent in made])
    ingest._gather(Landing.gather)


def land(folder: Path, store: Store, devices: int, slots: int, seed: int = 1) -> int:
    """Land what a fleet sends in ``slots`` slots, and count it into ``store``; return the number of deliveries.

    There is one report of each device and slot. In addition, 5 % come again, 1 % contradict another report, and 1 %
    are refused.
    """
    groups = {f"d{number}": f"g{number % GROUPS}" for number in range(devices)}
    plan = IngestPlan(PREFIX, "meters", 1, cells_of, groups=groups, landing=LandingPlan(str(folder), 0.0, 3650, SERVER))
    ingest = Ingest(plan, store, ListIntake([]), clock=lambda: START + slots + 5)
    chance = random.Random(seed)
    total = 0
    for deliveries in _sent(chance, devices, slots):
        for first in range(0, len(deliveries), _CHUNK):
            assert ingest.commit(deliveries[first : first + _CHUNK])
            ingest._gather(Landing.gather)
        total += len(deliveries)
    return total


def _sent(chance: random.Random, devices: int, slots: int) -> Iterator[list[Delivery]]:
    campaign, rule = EPOCHS[1].campaign, EPOCHS[1].campaign.rule
    phase = {number: campaign.schedule.place(f"d{number}") for number in range(devices)}

    def honest_report(number: int, slot: int, sequence: int) -> Delivery:
        member = campaign.schedule.is_member(phase[number], slot)
        drawn = (rule.cohort if member else rule.report).mechanism.symbols
        return Delivery(*delivery(campaign, f"d{number}", slot, chance.randrange(drawn), sequence), False)

    before: list[Delivery] = []
    for slot in range(START, START + slots):
        honest = [honest_report(number, slot, slot - START + 1) for number in range(devices)]
        again = chance.choices(honest + before, k=devices // 20)
        odd = [honest_report(chance.randrange(devices), slot, 1000) for _ in range(devices // 100)]
        refused = []
        for sent in chance.choices(honest, k=devices // 100):
            kind = chance.randrange(4)
            foreign = sent.payload[:2] + bytes(8) + sent.payload[10:]
            payload = (sent.payload[:20], sent.payload, sent.payload, foreign)[kind]
            topic = sent.topic.replace("/report", "/else") if kind == 1 else sent.topic
            refused.append(Delivery(topic, payload, kind == 2))
        sent_now = honest + again + odd + refused
        chance.shuffle(sent_now)
        before = honest
        yield sent_now

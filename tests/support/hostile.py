"""Deliveries of a hostile fleet: most are honest, and some are late, repeated, contradicting or damaged."""

import random
from collections import Counter

from support.factory import campaign_of
from support.server import FIRST, PREFIX, delivery, plan, two_epochs
from undertone_aggregator.campaign.stream_rounds import stream_rule
from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.settings.config import StreamPlan
from undertone_shared import report
from undertone_shared.schedule import Schedule
from undertone_shared.topics import report_topic

GROUPS = {f"d{number}": f"g{number % 3}" for number in range(0, 60, 2)}
OLD, NEW = two_epochs()


def turns() -> list[Epoch]:
    """A threshold epoch, and then a report epoch in which each device has a turn every seven slots."""
    campaign = NEW.campaign
    made = campaign_of(
        epoch=FIRST + 100,
        cohort=campaign.cohort,
        report=campaign.report,
        schedule=Schedule(bytes(16), 7, 3),
    )
    return [OLD, Epoch(made, FIRST + 90)]


def streams() -> list[Epoch]:
    chosen = StreamPlan(reports=40, chains=3)
    made = campaign_of(
        epoch=FIRST + 100,
        stream=stream_rule(plan(), chosen),
    )
    return [Epoch(made, FIRST + 90)]


EPOCHS = {"scalar": two_epochs(), "turns": turns(), "stream": streams()}


def honest(epochs: list[Epoch], chance: random.Random, device: str, slot: int) -> tuple[str, bytes]:
    campaign = chance.choice(epochs).campaign if chance.random() < 0.1 else epochs[-1].campaign
    sequence = chance.randrange(1, 1000)
    if chance.random() < 0.95:
        # Most reports are in the device's turn.
        slot += -(slot + campaign.schedule.place(device)) % campaign.schedule.stride
    if campaign.rule.kind == "stream":
        payload = report.pack(
            report.STREAM,
            campaign.fingerprint,
            slot,
            (chance.randrange(-5000, 5000),),
            sequence,
            chance.randrange(1, 41),
        )
        return report_topic(PREFIX, "meters", device), payload
    return delivery(campaign, device, slot, chance.randrange(12), sequence)


def hostile(chance: random.Random, topic: str, payload: bytes) -> tuple[str, bytes]:
    """The same delivery, damaged in one of the ways that an attacker may think of."""
    # A delivery that is damaged already may be too short for further damage.
    kind = chance.randrange(12) if topic.endswith("/report") and len(payload) >= report.LENGTH else 4
    data = bytearray(payload)
    if kind == 0:
        return topic, bytes(data[: chance.randrange(len(data))])
    if kind == 1:
        return topic, payload + chance.choice([b"x", b"1234", bytes(28), bytes(9)])
    if kind == 2:
        return topic.replace("/report", chance.choice(["", "/reports", "/report/x"])), payload
    if kind == 3:
        levels = topic.split("/")
        levels[-3] = str(chance.randrange(70))
        return "/".join(levels), payload
    if kind == 4:
        return chance.choice(["", "x", PREFIX + "/meters/1/A/report", "\N{SNOWMAN}" * 9]), payload
    if kind == 5:
        # No mechanism draws such a symbol, but a stream may release such a value.
        data[14:18] = chance.choice([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\xff\xff"])
        return topic, bytes(data)
    if kind == 6:
        data[10:14] = chance.choice([bytes(4), b"\xff\xff\xff\xff", (FIRST + 500).to_bytes(4, "big")])
        return topic, bytes(data)
    if kind == 7:
        data[20:24] = bytes(4)
        return topic, bytes(data)
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return topic, bytes(data)


def stream_of(
    epochs: list[Epoch], chance: random.Random, devices: int, count: int, share: float, steps: int
) -> list[Delivery]:
    """Deliveries of a fleet. Most are for newer slots; some are for old ones, repeated, contradicting or damaged."""
    newest = Counter[str]()
    sent: list[tuple[str, bytes]] = []
    made = []
    for _ in range(count):
        device = f"d{chance.randrange(devices)}"
        newest[device] += chance.choice([0, 1, 1, 1, 2, steps]) * epochs[-1].campaign.schedule.stride
        slot = FIRST + 100 + newest[device] - chance.choice([0] * 6 + [1, 3, 40, 95, 96, 97, 120])
        came = honest(epochs, chance, device, slot)
        if sent and chance.random() < 0.08:
            came = chance.choice(sent[-300:])
        if chance.random() < share:
            came = hostile(chance, *came)
        sent.append(came)
        made.append(Delivery(*came, chance.random() < 0.01, None))
    return made

"""Random lives of a device: clock steps, epochs with other certificates, reboots, a full disk, several caps and rests.

Whatever happens, the ledger on disk counts each report that leaves the device, each slot is reported at most once, and
the cap and the rest hold.
"""

import contextlib
import random

import pytest
from rig import DAY, START, Device, hybrid, make_campaign, square_wave

from undertone_device.core.ledger import Ledger
from undertone_device.core.units import epsilon_units
from undertone_shared.errors import Invalid, Refused
from undertone_shared.off_board import intake, issue
from undertone_shared.scalar import Cohort, ReportRule

LIVES = 40
STEPS = 400
CERTIFICATES = ((1001, 1000), (2, 1), (3, 2))


class Life:
    """A device with slots of one second, the campaigns that it was offered, and all that it reported."""

    def __init__(self, seed):
        self.dice = dice = random.Random(seed)
        self.device = Device(
            now=START - 2,
            slot_seconds=1,
            reports_per_period=dice.choice([5, 60, 1000, DAY]),
            period_seconds=dice.choice([20, 100, DAY]),
            write_seconds=dice.choice([1, 7, 60]),
            boots_per_day=1000,
            rest_seconds=dice.choice([0, 0, 3]),
            lifetime=1 << 50,
        )
        self.epoch = START
        self.price = {}
        self.slots = []
        self.units = 0
        self.offer()

    def offer(self):
        a, b = self.dice.choice(CERTIFICATES)
        report = self.dice.choice([None, ReportRule(0, 300, hybrid(a, b))])
        parts = {"cohort": Cohort(square_wave(a, b)), "report": report}
        times = {"slot_seconds": 1, "cycle": 1, "epoch": self.epoch, "last_slot": START + 10 * DAY}
        self.campaign = make_campaign(**times, **parts)
        self.price[self.campaign.fingerprint] = epsilon_units(a, b)
        self.hear()

    def hear(self):
        with contextlib.suppress(Refused, Invalid):
            self.device.reporter.accept(issue.pack(self.campaign, self.device.now), self.device.now)

    def step(self):
        device, dice = self.device, self.dice
        event = dice.random()
        if event < 0.85:
            device.pass_time(1, clock=1 if dice.random() < 0.95 else dice.choice([0, 1, 2, 5, -3]))
            report = device.reporter.close_slot(device.now)
            if report is not None:
                self.said(intake.unpack(report))
        elif event < 0.9:
            self.epoch = max(self.epoch + 1, device.now + dice.choice([0, 1, 3, 10]))
            self.offer()
        elif event < 0.95:
            device.boot()
            self.hear()
        else:
            device.storage.broken = dice.random() < 0.5
        if dice.random() < 0.05:
            self.hear()

    def said(self, report):
        assert not self.slots or report.slot > self.slots[-1] + self.device.policy.rest_seconds
        self.slots.append(report.slot)
        self.units += self.price[report.fingerprint]
        on_file = Ledger(self.device.storage, 96)
        assert on_file.spent_until > report.slot
        assert on_file.sequence >= report.sequence >= len(self.slots)
        assert on_file.ever >= self.units
        policy = self.device.policy
        since = [slot for slot in self.slots if slot > report.slot - policy.period_seconds]
        assert len(since) <= policy.reports_per_period


@pytest.mark.slow
def test_what_leaves_is_on_file_before_once_and_within_the_caps():
    said = 0
    for seed in range(LIVES):
        life = Life(seed)
        for _ in range(STEPS):
            life.step()
        said += len(life.slots)
    assert said > 1000

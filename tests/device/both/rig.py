"""A reporter with an injected clock and storage in memory, from which the tests in this folder and below are built."""

import hashlib
import os

from undertone_device.core.ledger import BUILT
from undertone_device.core.reporter import Reporter
from undertone_device.core.spent import drawn_since
from undertone_device.setup.config import DeviceConfig
from undertone_shared.entropy import Entropy
from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_shared.off_board import issue
from undertone_shared.policy import Policy
from undertone_shared.scalar import Cohort, ReportRule

SLOT = 1800
DAY = 86400
# The start of a day, ten days after the firmware was built.
START = (BUILT // DAY + 10) * DAY
# The certificate of a mechanism that hardly perturbs.
SHARP = [1 << 28, 1]


class Memory:
    """Storage that survives a reboot of the device that uses it. With ``broken``, every write fails."""

    def __init__(self):
        self.files = {}
        self.broken = False
        self.writes = 0

    def read(self, name):
        return self.files.get(name)

    def write(self, name, data):
        if self.broken:
            raise OSError("disk full")
        self.writes += 1
        self.files[name] = bytes(data)

    def delete(self, name):
        self.files.pop(name, None)


class Counting:
    """The same bytes in each run, for tests that need this, and for interpreters without os.urandom."""

    salt = b""

    def __init__(self):
        self.count = 0

    def __call__(self, n):
        data = b""
        while len(data) < n:
            self.count += 1
            data += hashlib.sha256(self.salt + b"%d" % self.count).digest()
        return data[:n]


def make_config():
    """The settings that a client reads. Reports are sent at once, not spread over time."""
    config = DeviceConfig()
    config.prefix = "undertone/v2"
    config.campaigns = ("load",)
    config.sample_seconds = config.spread_percent = 0
    config.in_flight = 4
    return config


def make_entropy():
    return Entropy(getattr(os, "urandom", None) or Counting())


class Ticks:
    def __init__(self):
        self.now = 5

    def __call__(self):
        return self.now & ((1 << 30) - 1)


def square_wave(a=2, b=1):
    return WindowMechanism(a, b, 3, 1, 3, (0, 100, 200, 500, 1000))


def hybrid(a=2, b=1):
    return Hybrid(20000, WindowMechanism(a, b, 1, 1, 1), WindowMechanism(a, b, 3, 2, 16, None, 2))


def make_campaign(**changes):
    fields = {
        "name": "load",
        "sensor": "energy",
        "unit": "Wh",
        "measure": "sum",
        "offset": 0,
        "bound": 1000,
        "slot_seconds": SLOT,
        "cycle": 48,
        "epoch": START,
        "last_slot": (START + 30 * DAY) // SLOT - 1,
        "default": 0,
        "cohort": Cohort(square_wave()),
        "report": ReportRule(0, 300, hybrid()),
    }
    for name in changes:
        fields[name] = changes[name]
    return issue.build(**fields)


def sharp_campaign(**changes):
    """A campaign that shows readings, for a device with the cap ``SHARP``.

    The symbol is almost surely 1 for a reading of at least 300, and 0 for one of at most 100.
    """
    mechanism = Hybrid(0, WindowMechanism(SHARP[0], 1, 1, 1, 1), WindowMechanism(2, 1, 1, 1, 1, None, 2))
    return make_campaign(report=ReportRule(100, 300, mechanism), **changes)


def make_policy(**changes):
    fields = {
        "version": 1,
        "sensor": "energy",
        "measures": ["sum"],
        "cap": [2, 1],
        "slot_seconds": SLOT,
        "theta": [1, 1000],
        "duration_seconds": 400 * DAY,
        "insecure": True,
        "lead_seconds": 4 * DAY,
    }
    for name in changes:
        fields[name] = changes[name]
    return Policy(fields)


class Device:
    """A reporter with its storage, clock and ticks. In `pass_time`, ``clock`` seconds pass by the clock, if given."""

    def __init__(self, storage=None, now=START - 600, entropy=None, **policy):
        self.entropy = entropy or make_entropy()
        self.storage = storage or Memory()
        self.policy = make_policy(**policy)
        self.now = now
        self.boot()

    def boot(self, asleep=None):
        self.ticks = Ticks()
        self.reporter = Reporter(
            "meter-1", self.policy, self.storage, self.entropy, self.ticks, asleep=asleep, capacity=96
        )

    def accept(self, campaign, issued_at=None):
        return self.reporter.accept(issue.pack(campaign, self.now if issued_at is None else issued_at), self.now)

    def pass_time(self, seconds, clock=None):
        self.ticks.now += seconds * 1000
        self.now += seconds if clock is None else clock

    def used(self):
        """The number of reports drawn in the policy's period up to now."""
        return drawn_since(self.reporter.ledger.sums, self.now - self.policy.period_seconds + 1)

    def slot(self, sample=40):
        """Observe one sample in the middle of a slot and ask for its report just after its end."""
        self.pass_time(SLOT // 2)
        self.reporter.observe(sample, self.now)
        self.pass_time(SLOT - SLOT // 2)
        return self.reporter.close_slot(self.now)

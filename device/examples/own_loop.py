"""Example: only the reporter core, in a firmware that has its own loop, clock and MQTT connection.

    micropython device/examples/own_loop.py

The firmware passes in its parts: a storage of named bytes, random bytes, a tick counter. It calls ``observe`` with raw
samples and ``close_slot`` often, publishes the returned report at QoS 1, and calls ``acked`` when the PUBACK has
arrived. In this example ``print`` stands in for the connection, and one hour is simulated.
"""

import sys

_HERE = __file__[: __file__.rindex("/")] if "/" in __file__ else "."
sys.path[0:0] = [_HERE + "/..", _HERE + "/../../shared"]

from undertone_device.core.reporter import Reporter  # noqa: E402
from undertone_shared.entropy import Entropy  # noqa: E402
from undertone_shared.errors import Invalid, Refused  # noqa: E402
from undertone_shared.mechanism import Hybrid, WindowMechanism  # noqa: E402
from undertone_shared.off_board import issue  # noqa: E402
from undertone_shared.policy import Policy  # noqa: E402
from undertone_shared.scalar import Cohort, ReportRule  # noqa: E402
from undertone_shared.topics import report_topic  # noqa: E402


class Flash:
    """The firmware's storage: ``write`` must be atomic and durable, see `undertone_device.setup.storage`."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def read(self, name: str) -> "bytes | None":
        """Return the bytes last written, or None."""
        return self._files.get(name)

    def write(self, name: str, data: "bytes | memoryview") -> None:
        """Replace the bytes. Raises OSError, and keeps the old bytes then."""
        self._files[name] = bytes(data)

    def delete(self, name: str) -> None:
        """Delete the bytes."""
        self._files.pop(name, None)


class Clock:
    """The firmware's clocks; ``now`` is Unix seconds, ``ticks`` monotonic milliseconds modulo 2^30."""

    def __init__(self, now: int) -> None:
        self.now = now
        self._ticks = 0

    def ticks(self) -> int:
        """Return monotonic milliseconds modulo 2^30; the reporter calls this method."""
        return self._ticks & 0x3FFFFFFF

    def advance(self, seconds: int) -> None:
        """Simulate that time passes."""
        self.now += seconds
        self._ticks += seconds * 1000


def retained_campaign(now: int) -> bytes:
    """Return the retained campaign message that the firmware would receive on the topic undertone/v2/load/config."""
    cohort = WindowMechanism(2721, 1001, 3, 1, 3, (0, 100, 200, 500, 1000))
    pieces = WindowMechanism(2721, 1001, 621, 4, 256, None, 2)
    campaign = issue.build(
        name="load",
        sensor="energy",
        unit="Wh",
        measure="sum",
        offset=0,
        bound=1000,
        slot_seconds=60,
        cycle=60,
        epoch=now // 60 * 60,
        last_slot=now // 60 + 1440,
        default=0,
        cohort=Cohort(cohort),
        report=ReportRule(0, 300, Hybrid(25784, WindowMechanism(2721, 1001, 1, 1, 1), pieces)),
    )
    return issue.pack(campaign, now)


def main() -> None:
    """Run one hour of slots of a minute, with six samples in each."""
    clock = Clock(1800000000)
    policy = Policy(
        {
            "version": 1,
            "sensor": "energy",
            "measures": ["sum"],
            "cap": [2719, 1000],
            "slot_seconds": 60,
            "theta": [100, 1000],
            "duration_seconds": 30 * 86400,
            "insecure": True,
            "reports_per_period": 1440,
        }
    )
    reporter = Reporter("meter-1", policy, Flash(), Entropy(), clock.ticks)
    try:
        reporter.accept(retained_campaign(clock.now), clock.now)
    except (Refused, Invalid) as refused:
        print("campaign refused:", refused)
        return
    topic = report_topic("undertone/v2", "load", "meter-1")
    for step in range(360):
        clock.advance(10)
        reporter.observe(step % 7, clock.now)
        report = reporter.close_slot(clock.now)
        if report is not None:
            # A firmware would call publish(topic, report, qos=1) here; a retry sends reporter.outbox[0] again.
            print(topic, "".join("%02x" % byte for byte in report))
            reporter.acked(report)
    # ``paused`` is one word: why the last finished slot gave no report.
    last = reporter.paused or "reported"
    spent = reporter.ledger.spent_until
    line = "reports in the outbox: %d; last slot: %s; privacy is spent for all slots before Unix second %d"
    print(line % (len(reporter.outbox), last, spent))


main()

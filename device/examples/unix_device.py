"""A device under the unix port of MicroPython, for tests and the demo: the boards' code and transport on a PC.

    micropython device/examples/unix_device.py CONFIG SLOTS READINGS [PERIOD]

CONFIG is a device's configuration. READINGS is a comma-separated list of integers, or a file with one reading a line
(its coordinates separated by spaces). Each slot uses one reading: reading i, from 0, goes into the i-th slot of the
campaign, and after the last reading comes the first again. PERIOD: milliseconds between two attempts to connect to a
server that does not answer. The program ends after SLOTS reports are acknowledged, or on SIGINT. Lines on standard
output, where SECONDS is Unix time and FREE the free bytes of the heap:

    start NAME / sent SECONDS HEX / acked SECONDS HEX / state WORD / end SENT ACKED OUTBOX FREE
"""

import gc
import sys

_HERE = __file__[: __file__.rindex("/")] if "/" in __file__ else "."
sys.path[0:0] = [_HERE + "/..", _HERE + "/../../shared"]

from undertone_device.mqtt.client import Client, Platform  # noqa: E402
from undertone_device.mqtt.knocks import PERIOD  # noqa: E402
from undertone_device.setup import assembly, clock  # noqa: E402
from undertone_device.setup.config import read_config  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    from undertone_device.core.protocols import Sample


def read_list(text: str) -> "list[Sample]":
    """Return the integers in a comma-separated list, or the readings in the file whose path is ``text``."""
    if text.replace(",", "").replace("-", "").strip().isdigit():
        return [int(word) for word in text.split(",")]
    with open(text, encoding="utf-8") as file:
        readings = [tuple([int(word) for word in line.split()]) for line in file if line.strip()]
    return [reading[0] if len(reading) == 1 else reading for reading in readings]


def say(*words: object) -> None:
    """Print one line at once."""
    sys.stdout.write(" ".join([str(word) for word in words]) + "\n")
    if hasattr(sys.stdout, "flush"):
        sys.stdout.flush()


def rounds(path: str, slots: int, readings: "list[Sample]", period: int = PERIOD) -> "Generator[None]":
    """Run a round of the client for each ``next``, until ``slots`` reports are acknowledged or the generator is closed.

    Then send the outbox and disconnect.
    """
    config = read_config(path)
    policy = assembly.read_policy(config)
    transport = assembly.board_transport(config, policy, clock.ticks)
    holder: list[Client] = []

    def read(now: int) -> "Sample | None":
        reporter = holder[0].reporter
        campaign = reporter.following
        # The reporter switches to the next campaign only after the first read in that campaign's epoch.
        if campaign is None or now < campaign.epoch:
            campaign = reporter.campaign
        if campaign is None:
            return None
        return readings[(now // campaign.slot_seconds - campaign.first_slot) % len(readings)]

    platform = Platform(clock.unix_time, clock.ticks, clock.sleep_ms)
    platform.read = read
    platform.period = period
    platform.handed_over = lambda report: say("sent", clock.unix_time(), report.hex())
    platform.acknowledged = lambda report: say("acked", clock.unix_time(), report.hex())
    client = assembly.make_client(config, policy, transport, platform)
    holder.append(client)
    say("start", config.name)
    state = ""
    try:
        while client.counts["acked"] < slots:
            client.step(20)
            word = client.trouble or ((client.reporter.paused or "online") if client.online else "offline")
            if word != state:
                state = word
                say("state", word)
            yield
    except (KeyboardInterrupt, GeneratorExit):
        say("state", "interrupted")
    client.finish(2000)
    gc.collect()
    free = gc.mem_free() if hasattr(gc, "mem_free") else 0
    say("end", client.counts["sent"], client.counts["acked"], len(client.reporter.outbox), free)


def main() -> None:
    """Run the device with the arguments of the command line."""
    running = rounds(sys.argv[1], int(sys.argv[2]), read_list(sys.argv[3]), *[int(word) for word in sys.argv[4:5]])
    try:
        for _ in running:
            pass
    except KeyboardInterrupt:
        running.close()


if __name__ == "__main__":
    main()

"""Run by test_soak.py under MicroPython: a device reports to a real broker until SLOTS reports are acknowledged.

micropython soak_device.py HOST PORT NAME SLOTS STATE injected|real

The last argument says whether the clock and the ticks are injected or real. The program prints "LABEL BYTES
DESCRIPTORS", the free heap and the open descriptors after a collection. LABEL is "made", then "campaign", then "free"
at each tenth of the slots. At the end comes "end SENT ACKED OUTBOX DROPPED PAUSED".
"""

# ruff: noqa: E402

import gc

gc.threshold(4096)  # main.py sets this, too

import os
import sys

from undertone_device.core.reporter import Reporter
from undertone_device.mqtt.client import Client, Platform
from undertone_device.setup import assembly, clock
from undertone_device.setup.config import read_config
from undertone_device.setup.storage import FileStorage
from undertone_shared.entropy import Entropy
from undertone_shared.policy import Policy

gc.collect()


class Time:
    """Seconds and ticks that only ``advance`` moves, together."""

    def __init__(self, now):
        self.now = now
        self.ticks = 5

    def advance(self, milliseconds):
        self.ticks += milliseconds
        self.now += milliseconds // 1000

    def clock(self):
        return self.now

    def count(self):
        return self.ticks & ((1 << 30) - 1)


def measure(label):
    gc.collect()
    print(label, gc.mem_free(), len(os.listdir("/proc/self/fd")))


def main(host, port, name, slots, state, kind):
    seconds = 60 if kind == "injected" else 1
    time = Time(clock.unix_time() // seconds * seconds)
    now = time.clock if kind == "injected" else clock.unix_time
    ticks = time.count if kind == "injected" else clock.ticks
    policy = Policy(
        {
            "version": 1,
            "sensor": "energy",
            "measures": ["sum"],
            "cap": [2850, 1000],
            "slot_seconds": seconds,
            "theta": [1, 4000],
            "duration_seconds": 400 * 86400,
            "reports_per_period": 86400,
            "boots_per_day": 1000,
            "insecure": True,
        }
    )
    os.mkdir(state)
    settings = '{"name": "%s", "broker": {"host": "%s", "port": %d, "keepalive": 30}, "campaigns": ["load"],'
    settings = settings % (name, host, port) + '"publish": {"spread_percent": 10}, "policy": "-", "state": "-"}'
    with open(state + "/device.json", "w", encoding="utf-8") as file:
        file.write(settings)
    config = read_config(state + "/device.json")
    transport = assembly.board_transport(config, policy, clock.ticks)
    reporter = Reporter(name, policy, FileStorage(state), Entropy(), ticks)
    platform = Platform(now, ticks, clock.sleep_ms)
    platform.read = lambda at: at % 3000
    client = Client(reporter, transport, config, platform)
    measure("made")
    while reporter.campaign is None:
        client.step(20)
    measure("campaign")
    mark = tenth = max(1, slots // 10)
    while client.counts["acked"] < slots:
        if kind == "injected":
            client.step(0)
            sent = client.counts["sent"]
            while len(reporter.outbox):
                # Once the report is sent, real time alone passes. If the injected ticks went on, a slow broker would
                # count as dead.
                if client.counts["sent"] == sent or not client.online:
                    time.advance(1000)
                client.step(1)
            time.advance(10000)
        else:
            client.step(50)
        if client.counts["acked"] >= mark:
            while kind == "injected" and transport._session._body is not None:
                # The server publishes the campaign from time to time. A part that has arrived takes memory.
                client.step(1)
            measure("free")
            mark += tenth
    client.finish(2000)
    counts = client.counts
    print("end", counts["sent"], counts["acked"], len(reporter.outbox), reporter.dropped, reporter.paused)


main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5], sys.argv[6])

"""Run by test_heap.py on a heap of 96 KB: the whole device, from its two files to reports that a broker acknowledges.

The arguments are the number of slots and the first second of an injected clock (0 for the real clock). Garbage is
collected where a line of three hyphens divides the code (see `run_micropython32`). The program prints "heap USED FILES
DESCRIPTORS" before each tenth of the slots, then "end SENT ACKED OUTBOX DROPPED PAUSED" and the heap's state.
"""

# ruff: noqa: E402, F401

import gc
import sys

import _node
import micropython

from undertone_device import unload

gc.collect()
# ---
import heap_rig

sys.modules["select"] = sys.modules["socket"] = heap_rig
gc.collect()
# ---
from undertone_device.setup.config import read_config

gc.collect()
# ---
config = read_config("/device.json")
del read_config
unload("undertone_device.setup.config")
gc.collect()
# ---
import undertone_shared.policy

gc.collect()
# ---
import undertone_device.core.reporter

gc.collect()
# ---
import undertone_device.mqtt.session_transport

gc.collect()
# ---
from undertone_device.mqtt.client import Platform
from undertone_device.setup import assembly, clock

gc.collect()
# ---
slots, start = int(sys.argv[1]), int(sys.argv[2])
device = heap_rig.Clock(start) if start else clock
ticks = device.ticks
policy = assembly.read_policy(config)
platform = Platform(device.unix_time, ticks, clock.sleep_ms)
platform.read = lambda now: now % 3000
client = assembly.make_client(config, policy, assembly.board_transport(config, policy, ticks), platform)
# On a board, these are gone after the start as well; main.py keeps ``config``.
del policy, assembly, platform
unload("undertone_device.setup.assembly")
unload("undertone_device.setup.tls_context")
gc.collect()
# ---
mark = settled = 0


def step():
    """Do one round of a board's loop. Return None after the last slot, else for how many milliseconds to wait."""
    global mark, settled
    reporter = client.reporter
    # The server publishes the campaign from time to time. A part that has arrived takes memory, so nothing
    # is measured before the whole message is there.
    whole = client.transport._session._body is None
    if reporter.campaign is not None and client.counts["acked"] >= mark and whole:
        print("heap", gc.mem_alloc(), _node.files(), _node.descriptors())
        mark += slots // 10
    client.step(0)
    # The injected clock moves while a report is held back for a few seconds, and then stands still until the broker has
    # answered. If the clock went on, the device would take a slow broker for a dead one.
    if not len(reporter.outbox):
        settled = client.counts["sent"]
    if start and reporter.campaign is not None and (client.counts["sent"] == settled or not client.online):
        device.advance(1 if len(reporter.outbox) else 10)
    gc.collect()
    if client.counts["acked"] >= slots and not len(reporter.outbox):
        return None
    return 0 if start else 20


# ---
reporter = client.reporter
print("end", client.counts["sent"], client.counts["acked"], len(reporter.outbox), reporter.dropped, reporter.paused)
micropython.mem_info()

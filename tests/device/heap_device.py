"""Run by test_heap.py on a heap of 64 KB: the whole device, from its two files to reports that a broker acknowledges.

Arguments: slots, the campaign's epoch, the size of the campaign message in /campaign. Where lines part the code,
garbage is collected (see `run_micropython32`). Prints "heap USED" at every tenth of the way, garbage included; then
"end SENT ACKED RECEIVED GAPS OUTBOX", "paused WHY" and the heap's state.
"""

# ruff: noqa: E402, F401

import gc
import os
import sys

import micropython

from undertone_device import unload

gc.collect()
# ---
from undertone_device.config import read_config

gc.collect()
# ---
config = read_config("/device.json")
del read_config
unload("config")
gc.collect()
# ---
import undertone_shared.policy

gc.collect()
# ---
import undertone_device.reporter

gc.collect()
# ---
from undertone_device.stream_transport import StreamTransport

gc.collect()
# ---
import heap_rig

from undertone_device import assembly

gc.collect()
# ---
slots = int(sys.argv[1])
machine = heap_rig.Machine(int(sys.argv[2]))
broker = heap_rig.Broker()
os.urandom = machine.random
transport = StreamTransport(broker.open, machine.ticks, config.name)
client = assembly.make_client(
    config,
    assembly.read_policy(config),
    transport,
    machine.clock,
    machine.ticks,
    lambda milliseconds: None,
    lambda now: now % 3000,
)
# As main.py does after the start.
del config, assembly
unload("assembly")
unload("tls_context")
gc.collect()
# ---
client.step(0)
broker.send("undertone/v1/load/config", "/campaign", int(sys.argv[3]))
gc.collect()
# ---
client.step(0)
gc.collect()
# ---
print("heap", gc.mem_alloc())
done = 0


def step():
    global done
    machine.advance(30)
    client.step(0)
    done += 1
    if done % (slots // 5) == 0:
        print("heap", gc.mem_alloc())
    gc.collect()


# ---
print("end", client.counts["sent"], client.counts["acked"], broker.count, broker.gaps, len(client.reporter.outbox))
print("paused", client.reporter.paused, client.trouble)
micropython.mem_info()

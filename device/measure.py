"""Measure the device's cost on this interpreter.

Run it with ``mpremote run device/measure.py`` or ``micropython device/measure.py``.

Prints rows of a Markdown table: the heap used by the modules and by a running device, and the cost of one slot, of one
write of the ledger, of random bytes and of one signature. The campaign is as large as a usual one: 256 bins of Square
Wave and a Hybrid, 1.7 KB.
"""

# ruff: noqa: E402

import gc

# As in main.py, the garbage collector's threshold is set before any other import, so that a small heap stays in one
# piece.
gc.threshold(4096)

import os
import sys
import time

try:
    _HERE = __file__[: __file__.rindex("/")] if "/" in __file__ else "."
    sys.path.extend([_HERE, _HERE + "/../shared"])
except NameError:
    pass

SLOTS = 200


def allocated():
    """Return the bytes of the heap in use after a collection."""
    gc.collect()
    gc.collect()
    return gc.mem_alloc()


def row(what, value, unit):
    """Print one line of the table."""
    print("| %s | %d %s |" % (what, value, unit))


class _Memory:
    def __init__(self):
        self.files = {}

    def read(self, name):
        data = self.files.get(name)
        return None if data is None else bytes(data)

    def write(self, name, data):
        # A file of the same length is overwritten in place: like a board's write to flash, this makes no garbage.
        if len(self.files.get(name, b"")) == len(data):
            self.files[name][:] = data
        else:
            self.files[name] = bytearray(data)

    def delete(self, name):
        self.files.pop(name, None)


class _Config:
    prefix = "undertone/v2"
    campaigns = ("load",)
    sample_seconds = spread_percent = 0
    in_flight = 4


class _Time:
    now = 1800000000
    ticks = 5

    def clock(self):
        return self.now

    def count(self):
        return self.ticks & 0x3FFFFFFF

    def advance(self, seconds):
        self.now += seconds
        self.ticks += seconds * 1000


class _Nowhere:
    """Simulated broker that acknowledges every report at once."""

    oversized = 0
    reached = False
    places = (("", 0),)

    def __init__(self, message):
        self.events = [("connected",), ("message", "undertone/v2/load/config", message, True)]
        self.token = 0

    def connect(self):
        pass

    def subscribe(self, topic):
        pass

    def publish(self, topic, payload):
        self.token += 1
        self.events.append(("acked", self.token))
        return self.token

    def poll(self, milliseconds):
        events = self.events
        self.events = []
        return events

    def close(self):
        pass


def modules():
    """Import every module that a configured device needs; print a row for the core and a row for the rest.

    Modules that are needed only at the start are unloaded again, as in main.py.
    """
    start = allocated()
    from undertone_device.core import reporter  # noqa: F401
    from undertone_device.mqtt import client, session_transport  # noqa: F401

    core = allocated()
    row("modules: reporter, client, MQTT session", core - start, "bytes")
    try:
        from undertone_device import unload
        from undertone_device.setup import assembly, config
    except ImportError as error:
        print("| modules: sockets, TLS, configuration file, storage | %s |" % error)
        return
    everything = allocated()
    row("modules: sockets, TLS, configuration file, storage", everything - core, "bytes")
    del assembly, config
    for name in ("assembly", "config", "tls_context"):
        unload("undertone_device.setup." + name)
    row("modules that are unloaded after the start", everything - allocated(), "bytes")


def message():
    """Return a campaign message, written by hand because boards have no code that issues campaigns."""
    import json
    import struct

    body = (
        '{"bound":4000,"campaign":"load","cohort":{"a":2721,"b":1001,"edges":%s,"kind":"square-wave","window":65},'
        '"cycle":48,"default":0,"epoch":%d,"last_slot":%d,"measure":"sum","offset":0,"rule":{"kind":"scalar","mechanism":'
        '{"coin":25784,"kind":"hybrid","piecewise":[2721,1001,621,4,256],"rounding":[2721,1001]},"ranges":[[0,0,3000]]},'
        '"schedule":{"cohort_stride":5,"seed":"%s","stride":1},"sensor":"energy","slot_seconds":60,"unit":"Wh","version":2}'
        % (json.dumps(list(range(0, 257 * 15, 15))).replace(" ", ""), _Time.now, _Time.now // 60 + 20000, "00" * 16)
    ).encode()
    return struct.pack(">4sII", b"UTC2", _Time.now, len(body)) + body + bytes(64)


def device(packed):
    """Return a client that receives the campaign message ``packed`` in its first rounds, and the client's clock."""
    from undertone_device.core.reporter import Reporter
    from undertone_device.mqtt.client import Client, Platform
    from undertone_shared.entropy import Entropy
    from undertone_shared.policy import Policy

    clock = _Time()
    policy = Policy(
        {
            "version": 1,
            "sensor": "energy",
            "measures": ["sum"],
            "cap": [2850, 1000],
            "slot_seconds": 60,
            "theta": [1, 4000],
            "duration_seconds": 400 * 86400,
            "insecure": True,
            "reports_per_period": 2000,
        }
    )
    reporter = Reporter("board-1", policy, _Memory(), Entropy(), clock.count)
    platform = Platform(clock.clock, clock.count, lambda milliseconds: None)
    platform.read = lambda now: now % 3000
    return Client(reporter, _Nowhere(packed), _Config(), platform), clock


def per_slot():
    """Print rows for a running device and for one slot of it, without storage and network."""
    packed = message()
    before = allocated()
    client, clock = device(packed)
    del packed
    client.step(0)
    client.step(0)
    row("a running device: campaign, ledger, outbox of 96 reports", allocated() - before, "bytes")
    for _ in range(3):
        clock.advance(60)
        client.step(0)
    before = allocated()
    started = time.ticks_us()
    for _ in range(SLOTS):
        clock.advance(60)
        client.step(0)
    row("one slot: sample, draw, publish, acknowledge", time.ticks_diff(time.ticks_us(), started) // SLOTS, "us")
    row("heap that %d slots leave behind" % SLOTS, allocated() - before, "bytes")
    gc.collect()
    gc.disable()
    before = gc.mem_alloc()
    clock.advance(60)
    client.step(0)
    row("garbage of one slot", gc.mem_alloc() - before, "bytes")
    gc.enable()
    assert client.counts["acked"] > SLOTS, client.trouble


def storage():
    """Print rows for one write of the ledger to this board's files, and for 32 random bytes."""
    from undertone_device.setup.storage import FileStorage

    store = FileStorage(".")
    data = bytes(92 + 532 + 96 * 24 + 8)
    started = time.ticks_us()
    for _ in range(5):
        store.write("measure.tmp", data)
    row("one write of a full ledger, %d bytes" % len(data), time.ticks_diff(time.ticks_us(), started) // 5, "us")
    store.delete("measure.tmp")
    started = time.ticks_us()
    for _ in range(20):
        os.urandom(32)
    row("os.urandom(32)", time.ticks_diff(time.ticks_us(), started) // 20, "us")


def signature():
    """Print a row for verifying a campaign's signature, which a device does once for each new campaign."""
    from undertone_shared.errors import Refused
    from undertone_shared.policy import Policy

    policy = Policy(
        {
            "version": 1,
            "sensor": "energy",
            "measures": ["sum"],
            "cap": [2850, 1000],
            "slot_seconds": 60,
            "theta": [1, 4000],
            "duration_seconds": 400 * 86400,
            "signers": ["d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"],
        }
    )
    started = time.ticks_us()
    try:
        # A wrong signature takes as long as a valid one.
        policy.check_signature(bytes(32), bytes(64))
    except Refused:
        pass
    row("one signature of a campaign", time.ticks_diff(time.ticks_us(), started), "us")


STAGES = (modules, per_slot, storage, signature)


def main():
    """Print the whole table."""
    print("| %s | MicroPython %s |" % (sys.platform, ".".join([str(part) for part in sys.implementation.version[:3]])))
    print("|---|---|")
    row("heap", gc.mem_alloc() + gc.mem_free(), "bytes")
    for stage in STAGES:
        stage()


if __name__ == "__main__":
    main()

"""The client that is flashed: slot values, reporter core, ledger and outbox, MQTT transports, loop.

MicroPython subset; import the modules by name.
"""

import sys

# A C stack of 8 KB, as the Pico W has, holds three imports within each other. So the package loads first what the
# modules of every device import, each after the ones that it imports itself.
for _name in (
    "undertone_shared.errors",
    "undertone_shared.checks",
    "undertone_shared.topics",
    "undertone_shared.report",
    "undertone_shared.truncation",
    "undertone_shared.schedule",
    "undertone_shared.entropy",
    "undertone_shared.mechanism",
    "undertone_shared.notation",
    "undertone_shared.scalar",
    "undertone_shared.campaign",
    "undertone_shared.policy",
    "undertone_device.slot_value",
    "undertone_device.ledger",
    "undertone_device.campaign_files",
):
    __import__(_name)


def unload(name: str) -> None:
    """Drop a module of this package, for the memory of its code; whatever was made of it and is held keeps it."""
    del sys.modules["undertone_device." + name]
    globals().pop(name, None)

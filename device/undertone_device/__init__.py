"""The client for devices. Its subpackages: ``core``, ``mqtt``, ``setup``, ``board``, ``host``, ``sensors``, ``tools``.

Boards load all of them except ``host`` and ``tools``; what boards load is written in the MicroPython subset of Python.
Import modules by name. Start reading: ``core/__init__.py``.
"""

import sys

# A C stack of 8 KB, as on the Pico W, has room for three nested imports. So the package first loads the modules that
# every device needs, each after the modules that it imports itself.
for _name in (
    "undertone_shared.errors",
    "undertone_shared.checks",
    "undertone_shared.topics",
    "undertone_shared.report",
    "undertone_shared.schedule",
    "undertone_shared.entropy",
    "undertone_shared.mechanism",
    "undertone_shared.notation",
    "undertone_shared.scalar",
    "undertone_shared.campaign",
    "undertone_shared.policy",
    "undertone_device.core.slot_value",
    "undertone_device.core.ledger",
    "undertone_device.core.campaign_files",
):
    __import__(_name)


def unload(name: str) -> None:
    """Remove a module to free the memory of its code; the next import loads it again. Existing objects stay valid."""
    parts = name.split(".")
    del sys.modules[name]
    delattr(sys.modules[".".join(parts[:-1])], parts[-1])

"""The client for devices. Its subpackages: ``core``, ``mqtt``, ``setup``, ``board``, ``host``, ``sensors``, ``tools``.

Boards load nothing from ``host`` and ``tools``; what boards load is written in the MicroPython subset of Python.
Import modules by name. Start reading: ``core/__init__.py``.
"""

import sys

# A C stack of 8 KB, as on the Pico W, has room for three nested imports. So the package first loads the modules that
# every device needs, each after the modules that it imports itself.
for _name in (
    "shared.errors shared.checks shared.topics shared.report shared.schedule shared.entropy shared.mechanism"
    " shared.notation shared.scalar shared.campaign shared.policy"
    " device.core.slot_value device.core.ledger device.core.campaign_files"
).split():
    __import__("undertone_" + _name)


def unload(name: str) -> None:
    """Remove a module to free the memory of its code; the next import loads it again. Existing objects stay valid."""
    parts = name.split(".")
    del sys.modules[name]
    delattr(sys.modules[".".join(parts[:-1])], parts[-1])

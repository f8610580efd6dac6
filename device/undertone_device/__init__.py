"""The client that is flashed: slot values, reporter core, ledger and outbox, MQTT transports, loop.

MicroPython subset; import the modules by name.
"""

import sys


def unload(name: str) -> None:
    """Drop a module of this package, for the memory of its code; whatever was made of it and is held keeps it."""
    del sys.modules["undertone_device." + name]
    globals().pop(name, None)

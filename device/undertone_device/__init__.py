"""The client for devices. Its subpackages: ``core``, ``mqtt``, ``setup``, ``board``, ``host``, ``sensors``, ``tools``.

Boards load all of them except ``host`` and ``tools``; what boards load is written in the MicroPython subset of Python.
Import modules by name. Start reading: ``core/__init__.py``.
"""

import sys

# A C stack of 8 KB, as on the Pico W, has room for three nested imports. So the package first loads the modules that
# every device needs, each after the modules that it imports itself.
for _package, _modules in (
    ("undertone_shared.", "errors checks topics report schedule entropy mechanism notation scalar campaign policy"),
    ("undertone_device.core.", "slot_value ledger campaign_files"),
):
    for _name in _modules.split():
        __import__(_package + _name)


def unload(name: str) -> None:
    """Remove a module to free the memory of its code; the next import loads it again. Existing objects stay valid."""
    parts = name.split(".")
    del sys.modules[name]
    delattr(sys.modules[".".join(parts[:-1])], parts[-1])

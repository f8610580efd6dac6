"""Setup: makes a running client from the files in a device's folder, on a board and on any other machine.

Code for device.json, storage, the clock and TLS is here.
May import: core, mqtt.
Start reading: ``assembly.py``, which puts the parts together; ``config.py`` has the fields of device.json.
"""

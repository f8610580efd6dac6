"""The client that is flashed: slot values, reporter core, ledger and outbox, MQTT transports, loop.

MicroPython subset; import the modules by name.
"""

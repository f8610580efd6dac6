"""Fleets of real MQTT connections with the shipped reporter core, their faults, their ledger, and its audit.

Start reading: ``fleet.py``, then ``wire_device.py``; ``verify.py`` audits.
"""

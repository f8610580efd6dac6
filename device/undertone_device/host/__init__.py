"""What a phone or a gateway adds: paho-mqtt, sources of readings, the household's status. CPython only.

May import: undertone_device, undertone_shared.
Start reading: ``sources/__init__.py``; ``undertone_device/gateway.py`` runs the devices.
"""

"""Code for phones and gateways: paho-mqtt, sources of readings, the household's status. CPython only.

May import: core, mqtt, sensors, setup.
Start reading: ``gateway.py``, which runs devices; ``sources/__init__.py`` for where readings come from.
"""

"""The server as its devices' own MQTT endpoint: a PUBACK tells a device that its report is committed.

Owns the listener with TLS, logging in, the limits of each connection, and the queue of each campaign.
Start reading: ``endpoint.py``, then ``connection.py`` for one device.
"""

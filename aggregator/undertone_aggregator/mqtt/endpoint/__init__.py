"""The server's own MQTT endpoint, to which devices connect: a PUBACK tells a device that its report is committed.

Owns the listener with TLS, authentication, the limits of each connection, and the queue of each campaign.
Start reading: ``endpoint.py``, then ``connection.py`` for one device.
"""

"""The connection to the broker: packets, sockets, and the client, which connects them to the reporter.

May import: core.
Start reading: ``client.py``; ``packets.py`` is MQTT without sockets or clocks.
"""

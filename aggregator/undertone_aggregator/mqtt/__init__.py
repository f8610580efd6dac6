"""MQTT: how reports arrive and how campaigns and estimates leave.

Owns packets and sessions, links to a broker, its files and passwords, signatures, and the server's own endpoint.
May import: base, counts, ingest, settings, store.
Start reading: ``source.py`` for the two ways in which reports come, ``endpoint/endpoint.py`` for the server's own.
"""

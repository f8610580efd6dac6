"""Load: a fleet on the wire against a server, as a load test.

Start reading: ``run.py``.
"""

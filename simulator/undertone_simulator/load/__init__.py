"""The load test of a server, with a fleet of real connections.

Start reading: ``run.py``.
"""

"""Examine: finds what is wrong with a server, its broker and its stores, and counts landed reports a second time.

Owns the findings of ``undertone doctor``, the comparison of ``undertone recount``, and the trial that measures what a
server needs.
May import: fleet, join.
Start reading: ``doctor.py``.
"""

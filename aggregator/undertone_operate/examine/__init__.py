"""Examine: finds what is wrong with a server, its broker and its stores, and counts landed reports a second time.

Owns the findings of ``undertone doctor`` and the comparison of ``undertone recount``.
May import: fleet, join.
Start reading: ``doctor.py``.
"""

"""Ingest: turns deliveries into counts. Each batch is one transaction, and is acknowledged after its commit.

Owns the protocol of an intake, admission (a report is counted once, or refused with a reason), workers, landed reports.
May import: base, counts, settings, store.
Start reading: ``ingest.py`` for the loop, ``admission.py`` for the rules, ``fast_path.py`` for many reports at once.
"""

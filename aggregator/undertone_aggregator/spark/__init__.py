"""Spark: counts landed reports on many machines, by Spark Structured Streaming. Needs the extra ``spark``.

Owns the driver, what runs on executors, and the ledger of batches that a store holds.
May import: campaign, counts, ingest, settings, store.
Start reading: ``job.py``.
"""

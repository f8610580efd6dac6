"""Spark: counts landed reports on many machines, by Spark Structured Streaming. Needs the extra ``spark``.

Owns the driver, what runs on executors, quarantine of damaged files, and recovery after a loss.
May import: base, campaign, counts, ingest, settings, store.
Start reading: ``job.py``.
"""

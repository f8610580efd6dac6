"""Server: any number of campaigns in one process, and what operators see of it.

Owns the supervisor of campaigns, the server's folder, health, metrics, alerts, the page's process, the worker's main.
May import: base, campaign, counts, estimate, ingest, mqtt, settings, store.
Start reading: ``supervisor.py``.
"""

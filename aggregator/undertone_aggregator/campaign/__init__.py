"""Campaign: runs one campaign, from its first round to its last published estimate.

Owns the runner, the coordinator (issuing, settling, status), rounds and their evidence, alarms.
May import: base, counts, design, estimate, ingest, mqtt, settings, store, threshold.
Start reading: ``runner.py``, then ``coordinator.py``, ``issuing.py`` and ``rounds.py``.
"""

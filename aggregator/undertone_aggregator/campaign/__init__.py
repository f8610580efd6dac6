"""Campaign: one running campaign, from its first round to its last published estimate.

Owns the runner, the coordinator (which issues epochs and publishes), rounds and their evidence, alarms.
May import: base, counts, design, estimate, ingest, mqtt, settings, store, threshold.
Start reading: ``runner.py``, then ``coordinator.py`` and ``rounds.py``.
"""

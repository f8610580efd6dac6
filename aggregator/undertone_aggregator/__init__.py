"""The aggregation server: counts reports, chooses thresholds, estimates means with intervals, and publishes them.

Its sub-packages are called rooms. The ``__init__.py`` of each says what the room owns and, unless it
is inside another, what it may import.
``docs/architecture.md`` shows them together.
Start reading: ``server/supervisor.py`` for the process, ``campaign/runner.py`` for one campaign.
"""

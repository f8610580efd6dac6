"""The aggregation server: counts reports, chooses thresholds, estimates means with intervals, and publishes them.

Its sub-packages are rooms; each one's ``__init__.py`` says what it owns and may import. ``docs/architecture.md`` shows
them together.
Start reading: ``server/supervisor.py`` for the process, ``campaign/runner.py`` for one campaign.
"""

"""Base: helpers that any server process needs, independent of reports.

Owns locks on files, background threads, the log, time zones, timing, systemd's notifications.
May import: nothing.
Start reading: ``log.py`` for what operators see, ``background.py`` for how threads end.
"""

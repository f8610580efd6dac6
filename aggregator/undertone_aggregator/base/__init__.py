"""Base: the parts that every process of the server needs and that know nothing about reports.

Owns files that are replaced in one step, locks on files, the limit of open files, background threads, the log,
durations, time zones, values as JSON, timing, systemd's notifications.
May import: nothing.
Start reading: ``log.py`` for what operators see, ``background.py`` for how threads end, ``files.py`` for safe writes.
"""

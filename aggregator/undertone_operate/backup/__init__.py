"""Backup: copies a server's whole folder to one file, restores it, and migrates stores of an earlier version.

Owns the archive's format and its encryption.
May import: fleet.
Start reading: ``home_backup.py``.
"""

"""Store: one campaign's counts on disk, in SQLite or PostgreSQL, from which a restart resumes exactly.

Owns the protocol of a store, its tables and migrations, leases, the inventory of devices, backups.
May import: base, counts, design.
Start reading: ``store.py``, the protocol; ``open_store`` there is the only way to open one.
"""

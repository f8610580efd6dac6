"""Store: one campaign's counts on disk, in SQLite or PostgreSQL. After a restart, the server goes on from it exactly.

Owns the protocol of a store, its tables and migrations, leases, the inventory of devices, waiting for disk space.
May import: base, counts, design.
Start reading: ``store.py``, the protocol; ``open_store`` there is the only way to open one.
"""

"""The store's schema, one step per version; a step that has shipped is never edited."""

import sqlite3
import time

from undertone_shared.errors import Invalid

APPLICATION = 0x55544E31  # "UTN1": marks the file as a store

STEPS = (
    """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE epochs (
        epoch INTEGER PRIMARY KEY,          -- Unix second of its first slot
        fingerprint BLOB NOT NULL UNIQUE,
        body BLOB NOT NULL,
        issued_at INTEGER NOT NULL,
        threshold TEXT,                     -- JSON: the choice that led to its theta
        decoded TEXT                        -- JSON: decode values of a table mechanism
    );
    CREATE TABLE partials (
        slot INTEGER NOT NULL, fingerprint BLOB NOT NULL, kind INTEGER NOT NULL, grp TEXT NOT NULL,
        worker TEXT NOT NULL, counts BLOB NOT NULL
    );
    CREATE UNIQUE INDEX partial_key ON partials (slot, fingerprint, kind, grp, worker);
    CREATE TABLE counters (
        worker TEXT NOT NULL, outcome TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (worker, outcome)
    ) WITHOUT ROWID;
    CREATE TABLE seen (
        id INTEGER PRIMARY KEY AUTOINCREMENT, worker TEXT NOT NULL, is_snapshot INTEGER NOT NULL, data BLOB NOT NULL
    );
    CREATE TABLE audit (
        device TEXT NOT NULL, digest BLOB NOT NULL, outcome TEXT NOT NULL, PRIMARY KEY (device, digest)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE chains (id INTEGER PRIMARY KEY AUTOINCREMENT, worker TEXT NOT NULL, data BLOB NOT NULL);
    """,
)


def migrate(connection: sqlite3.Connection, name: str) -> None:
    """Bring a file to this version's schema, a new one included. Raises Invalid for a foreign or newer file."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application != APPLICATION and tables:
        raise Invalid(f"{name} is a database, but not an Undertone store")
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL)"
        )
        version = check_version(connection, name)
        for number in range(version + 1, len(STEPS) + 1):
            for statement in STEPS[number - 1].split(";\n"):
                if statement.strip():
                    connection.execute(statement)
            connection.execute("INSERT INTO migrations VALUES (?, ?)", (number, int(time.time())))
        if application != APPLICATION:
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def check_version(connection: sqlite3.Connection, name: str) -> int:
    """The file's schema version. Raises Invalid when a newer Undertone wrote it."""
    version = connection.execute("SELECT coalesce(max(version), 0) FROM migrations").fetchone()[0]
    if version > len(STEPS):
        raise Invalid(f"{name} has schema version {version}, this Undertone knows up to {len(STEPS)}: upgrade it")
    return int(version)

"""The store's schema, one step per version; a step that has shipped is never edited."""

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

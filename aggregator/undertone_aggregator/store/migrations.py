"""Brings a database to the tables of `undertone_aggregator.store.tables`, in the caller's transaction.

A new database gets these tables at once. A store of 0.3.0 or later is brought to them step by step.

To change the tables again, change them in `tables`, raise `tables.HEAD`, and add a step here from the previous revision
to the new one. Once a step is in a release, never edit it.
"""

from collections.abc import Callable

from sqlalchemy import Connection, inspect, select

from undertone_aggregator.store import tables

# The revision of 0.3.0, the first release. Databases of the versions before it cannot be read.
FIRST = "0013"
# Revision -> (the next revision, the step that brings a database to it).
STEPS: dict[str, tuple[str, Callable[[Connection], None]]] = {}


def revision_of(connection: Connection) -> str | None:
    """Return the database's revision; None for a new database."""
    if not inspect(connection).has_table(tables.revision.name):
        return None
    return connection.execute(select(tables.revision.c.version_num)).scalar()


def upgrade(connection: Connection) -> None:
    """Bring a new database, or one of revision `FIRST` or later, to the newest tables and revision."""
    revision = revision_of(connection)
    if revision is None:
        tables.metadata.create_all(connection)
        connection.execute(tables.revision.insert().values(version_num=tables.HEAD))
        return
    while revision != tables.HEAD:
        revision, step = STEPS[revision]
        step(connection)
    connection.execute(tables.revision.update().values(version_num=tables.HEAD))

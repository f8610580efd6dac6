"""Brings a database to the tables of `undertone_aggregator.store.tables`, by Alembic.

A revision that has shipped is never edited. A new table: change `tables`, add a revision, set `tables.HEAD` to it.
"""

import threading

from sqlalchemy import Connection

# Alembic keeps the connection of a run in its module: two threads would take each other's.
_ONE_AT_A_TIME = threading.Lock()


def upgrade(connection: Connection) -> None:
    """All revisions that the database lacks, in the caller's transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "undertone_aggregator.store:migrations")
    config.attributes["connection"] = connection
    with _ONE_AT_A_TIME:
        command.upgrade(config, "head")

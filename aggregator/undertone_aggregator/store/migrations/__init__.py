"""Migration of a database to the tables of `undertone_aggregator.store.tables`, by Alembic.

A shipped revision is never edited. To add a table, change `tables`, add a revision and set `tables.HEAD` to it.
"""

import threading

from sqlalchemy import Connection

# Alembic stores the connection of a run in its module, so that two threads would use each other's.
_ONE_AT_A_TIME = threading.Lock()


def upgrade(connection: Connection) -> None:
    """Run all revisions that the database lacks, in the caller's transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "undertone_aggregator.store:migrations")
    config.attributes["connection"] = connection
    with _ONE_AT_A_TIME:
        command.upgrade(config, "head")

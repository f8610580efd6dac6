"""Brings a database to the tables of `undertone_aggregator.collect.tables`, by Alembic.

A revision that has shipped is never edited. A new table: change `tables`, add a revision, set `tables.HEAD` to it.
"""

from sqlalchemy import Connection


def upgrade(connection: Connection) -> None:
    """All revisions that the database lacks, in the caller's transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "undertone_aggregator.collect:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")

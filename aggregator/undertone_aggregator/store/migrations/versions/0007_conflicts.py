"""Revision 7: add conflicting reports by group."""

from alembic import op
from sqlalchemy import inspect

from undertone_aggregator.store import tables

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    connection = op.get_bind()
    if tables.conflicts.name not in inspect(connection).get_table_names():
        tables.conflicts.create(connection)

"""Revision 3: add the devices' sequence numbers, and the missing reports that they show."""

from alembic import op
from sqlalchemy import inspect

from undertone_aggregator.store import tables

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    connection = op.get_bind()
    there = set(inspect(connection).get_table_names())
    for table in (tables.sequences, tables.losses):
        if table.name not in there:
            table.create(connection)

"""Revision 6: add leases of partitions and of the coordinator, the workers, and the groups of devices."""

from alembic import op
from sqlalchemy import inspect

from undertone_aggregator.store import tables

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    connection = op.get_bind()
    there = set(inspect(connection).get_table_names())
    for table in (tables.leases, tables.members, tables.groups):
        if table.name not in there:
            table.create(connection)

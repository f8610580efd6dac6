"""Revision 9: add reports that came after their slot had settled."""

from alembic import op
from sqlalchemy import inspect

from undertone_aggregator.store import tables

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    connection = op.get_bind()
    if tables.late.name not in inspect(connection).get_table_names():
        tables.late.create(connection)

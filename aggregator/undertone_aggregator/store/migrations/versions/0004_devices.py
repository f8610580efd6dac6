"""Revision 4: add the operator's inventory of devices."""

from alembic import op
from sqlalchemy import inspect

from undertone_aggregator.store import tables

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    connection = op.get_bind()
    if tables.devices.name not in inspect(connection).get_table_names():
        tables.devices.create(connection)

"""Revision 8: add gaps by device, a third word in each record of sequence numbers.

Older gaps can no longer be closed.
"""

import sqlalchemy as sql
from alembic import op

from undertone_aggregator.store import tables

revision = "0008"
down_revision = "0007"
_BEFORE = 16


def upgrade() -> None:
    connection, table = op.get_bind(), tables.sequences
    for number, data in connection.execute(sql.select(table.c.id, table.c.data)).all():
        records = (data[at : at + _BEFORE] + bytes(8) for at in range(0, len(data), _BEFORE))
        connection.execute(table.update().where(table.c.id == number).values(data=b"".join(records)))

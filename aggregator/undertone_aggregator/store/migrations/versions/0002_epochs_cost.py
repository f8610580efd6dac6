"""Revision 2: add each epoch's planned privacy cost; NULL in older epochs."""

from alembic import op
from sqlalchemy import Column, Float, Text, inspect

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    there = {column["name"] for column in inspect(op.get_bind()).get_columns("epochs")}
    for column in (Column("epsilon", Text), Column("delta", Float)):
        if column.name not in there:
            op.add_column("epochs", column)

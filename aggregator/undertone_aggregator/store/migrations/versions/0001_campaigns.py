"""Revision 1: create all tables; move the rows of an older SQLite file, which has one campaign, into them."""

from alembic import op
from sqlalchemy import inspect, text

from undertone_aggregator.store import tables

revision = "0001"
down_revision = None

_BEFORE = {
    "meta": "name, value",
    "epochs": "epoch, fingerprint, body, issued_at, threshold, decoded",
    "partials": "slot, fingerprint, kind, grp, worker, counts",
    "counters": "worker, outcome, n",
    "seen": "id, worker, is_snapshot, data",
    "audit": "device, digest, outcome",
    "chains": "id, worker, data",
}
_FIRST = 1


def upgrade() -> None:
    connection = op.get_bind()
    there = set(inspect(connection).get_table_names())
    before = [name for name in _BEFORE if name in there] if "migrations" in there else []
    for name in before:
        op.rename_table(name, f"before_{name}")
    tables.metadata.create_all(connection)
    if not before:
        return
    names = connection.execute(text("SELECT value FROM before_meta WHERE name = 'campaign'")).scalars().all()
    connection.execute(tables.campaigns.insert().values(id=_FIRST, name=names[0] if names else ""))
    for name in before:
        columns = _BEFORE[name]
        connection.execute(
            text(f"INSERT INTO {name} (campaign, {columns}) SELECT {_FIRST}, {columns} FROM before_{name}")
        )
        op.drop_table(f"before_{name}")
    op.drop_table("migrations")

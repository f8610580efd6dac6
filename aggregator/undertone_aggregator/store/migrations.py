"""Bring a database to the tables of `undertone_aggregator.store.tables`, in the caller's transaction.

A new database gets these tables at once. Two older formats are brought up to them:

- 0.1.0: a SQLite file of one campaign, known by its table ``migrations``. Its rows move to the tables of today.
- 0.2.0: revisions 0001 to 0010 while it was developed. They lack tables and columns, and keep each state of devices in
  a table of its own.

In both, campaigns in wire format 1 are written again in wire format 2 (`converted`), sequence records get a third word,
and facts about the plan get the names of today.

To change the tables again: change them in `tables`, raise `tables.HEAD`, and add a step here that brings the revision
before to the new one. A step runs only if the database has that revision. Once a step is in a release, never edit it.
"""

import hashlib
import json
from collections.abc import Iterator
from itertools import count
from math import gcd
from typing import Any

from sqlalchemy import Connection, inspect, select, text

from undertone_aggregator.counts.device_states import CHAINS, SEEN, SEQUENCES
from undertone_aggregator.store import tables
from undertone_shared.campaign import write_canonical

# Tables of 0.1.0 and their columns; they had no column for the campaign.
_FIRST_FORMAT = {
    "meta": "name, value",
    "epochs": "epoch, fingerprint, body, issued_at, threshold, decoded",
    "partials": "slot, fingerprint, kind, grp, worker, counts",
    "counters": "worker, outcome, n",
    "audit": "device, digest, outcome",
}
_FIRST_MARK = "migrations"
_ONLY_CAMPAIGN = 1
# States of devices whose segments had a table of their own, by this name, before revision 0011.
_OWN_TABLES = (SEEN, CHAINS, SEQUENCES)
# Columns of an epoch's planned privacy cost, which the first revision of 0.2.0 lacked.
_EPOCH_COLUMNS = {"epsilon": "TEXT", "delta": "FLOAT"}
# The first revision in which a sequence record has three words of 64 bits; before it, a record had two.
_THREE_WORDS = "0008"
_TWO_WORDS_BYTES = 16
_WHOLE = 1 << 24


def revision_of(connection: Connection) -> str | None:
    """Return the database's revision; None for a new database, and for a file of 0.1.0."""
    if not inspect(connection).has_table(tables.revision.name):
        return None
    return connection.execute(select(tables.revision.c.version_num)).scalar()


def upgrade(connection: Connection) -> None:
    """Bring the database to the tables and the revision of today."""
    before = revision_of(connection)
    tables_before = set(inspect(connection).get_table_names())
    if before is None and _FIRST_MARK in tables_before:
        _move_first_format(connection, tables_before)
        _gather_segments(connection, tables_before, str(_ONLY_CAMPAIGN))
    else:
        tables.metadata.create_all(connection)
        _gather_segments(connection, tables_before, "campaign")
    if before is not None:
        _add_epoch_columns(connection)
        if before < _THREE_WORDS:
            _widen_sequences(connection)
    _convert_campaigns(connection)
    _convert_facts(connection)
    connection.execute(tables.revision.delete())
    connection.execute(tables.revision.insert().values(version_num=tables.HEAD))


def _move_first_format(connection: Connection, tables_before: set[str]) -> None:
    """Move the rows of a file of 0.1.0 to the tables of today, as its only campaign."""
    old = [name for name in _FIRST_FORMAT if name in tables_before]
    for name in old:
        connection.execute(text(f"ALTER TABLE {name} RENAME TO before_{name}"))
    tables.metadata.create_all(connection)
    names = connection.execute(text("SELECT value FROM before_meta WHERE name = 'campaign'")).scalars().all()
    connection.execute(tables.campaigns.insert().values(id=_ONLY_CAMPAIGN, name=names[0] if names else ""))
    for name in old:
        columns = _FIRST_FORMAT[name]
        connection.execute(
            text(f"INSERT INTO {name} (campaign, {columns}) SELECT {_ONLY_CAMPAIGN}, {columns} FROM before_{name}")
        )
        connection.execute(text(f"DROP TABLE before_{name}"))
    connection.execute(text(f"DROP TABLE {_FIRST_MARK}"))


def _gather_segments(connection: Connection, tables_before: set[str], campaign: str) -> None:
    """Move the segments of all states of devices into one table. ``campaign``: SQL for the campaign's number."""
    for state in _OWN_TABLES:
        if state in tables_before:
            # Only the state of deduplication distinguished snapshots from appended records; elsewhere they look alike.
            is_snapshot = "is_snapshot" if state == SEEN else "false"
            connection.execute(
                text(
                    "INSERT INTO segments (campaign, state, worker, is_snapshot, data)"
                    f" SELECT {campaign}, '{state}', worker, {is_snapshot}, data FROM {state} ORDER BY id"
                )
            )
            connection.execute(text(f"DROP TABLE {state}"))


def _add_epoch_columns(connection: Connection) -> None:
    columns_before = {column["name"] for column in inspect(connection).get_columns("epochs")}
    for name, kind in _EPOCH_COLUMNS.items():
        if name not in columns_before:
            connection.execute(text(f"ALTER TABLE epochs ADD COLUMN {name} {kind}"))


def _widen_sequences(connection: Connection) -> None:
    """Give each sequence record its third word, no missing report: older gaps can no longer be closed."""
    table = tables.segments
    for number, data in connection.execute(select(table.c.id, table.c.data).where(table.c.state == SEQUENCES)).all():
        wide = b"".join(record + bytes(8) for record in _records(data))
        connection.execute(table.update().where(table.c.id == number).values(data=wide))


def _records(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), _TWO_WORDS_BYTES):
        yield data[at : at + _TWO_WORDS_BYTES]


def _convert_campaigns(connection: Connection) -> None:
    """Write campaigns of wire 1 as wire 2, with their new fingerprints, so that old epochs are still estimated."""
    table = tables.epochs
    for campaign, epoch, old, body in connection.execute(
        select(table.c.campaign, table.c.epoch, table.c.fingerprint, table.c.body)
    ).all():
        fields = json.loads(bytes(body))
        if fields.get("version") != 1:
            continue
        pieces: list[bytes] = []
        write_canonical(converted(fields), pieces.append)
        new_body = b"".join(pieces)
        new = hashlib.sha256(new_body).digest()[:8]
        here = (table.c.campaign == campaign) & (table.c.epoch == epoch)
        connection.execute(table.update().where(here).values(fingerprint=new, body=new_body))
        counted = (tables.partials.c.campaign == campaign) & (tables.partials.c.fingerprint == old)
        connection.execute(tables.partials.update().where(counted).values(fingerprint=new))


def _convert_facts(connection: Connection) -> None:
    """Rename each campaign's way of collecting as plans name it today; add a plan where only epsilon was stored."""
    table = tables.meta
    for campaign, value in connection.execute(
        select(table.c.campaign, table.c.value).where(table.c.name == "facts")
    ).all():
        of_campaign = table.c.campaign == campaign
        facts = json.loads(value)
        way = facts.pop("kind", facts.get("collect"))
        facts["collect"] = "reports" if way == "report" else way
        connection.execute(
            table.update().where(of_campaign & (table.c.name == "facts")).values(value=json.dumps(facts))
        )
        meta = {row.name: row.value for row in connection.execute(select(table).where(of_campaign))}
        if "plan" not in meta:
            plan = json.dumps({"epsilon": meta["epsilon"]})
            connection.execute(table.insert().values(campaign=campaign, name="plan", value=plan))


def converted(old: dict[str, Any]) -> dict[str, Any]:
    """Return the fields, in wire format 2, of the campaign that these fields describe in wire format 1.

    Who was in the old cohorts no longer matters: only the strides of the schedule are written.
    """
    stream = old.get("stream")
    cohort, report = old["cohort"], old["report"]
    stride, seed = 0, "00" * 16
    if stream:
        rule = {**stream, "kind": "stream", "law": stream["kind"]}
    else:
        seed = cohort["seed"]
        stride = 1 if report is None else _stride(cohort["share"], old["cycle"])
        rule = {
            "kind": "scalar",
            "mechanism": report and report["mechanism"],
            "ranges": [[0, report["low"], report["theta"]]] if report else [],
        }
    others = {name: value for name, value in old.items() if name not in ("report", "stream")}
    return {
        **others,
        "version": 2,
        "cohort": cohort and cohort["mechanism"],
        "rule": rule,
        "schedule": {"seed": seed, "stride": 1, "cohort_stride": stride},
    }


def _stride(share: int, cycle: int) -> int:
    """Return the least stride from 1/share on that is coprime to the cycle; 0 for a share of 0."""
    return next(n for n in count(max(round(_WHOLE / share), 2)) if gcd(n, cycle) == 1) if share else 0

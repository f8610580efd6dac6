"""Revision 5: rewrite campaigns of wire 1 in wire 2, with new fingerprints, so that old epochs can still be estimated.

The members of their cohorts are not needed any more; only the strides of a schedule are written, besides the shares.
"""

import hashlib
import json
from itertools import count
from math import gcd
from typing import Any

from alembic import op
from sqlalchemy import text

from undertone_shared.campaign import write_canonical

revision = "0005"
down_revision = "0004"

_WHOLE = 1 << 24


def upgrade() -> None:
    connection = op.get_bind()
    rows = connection.execute(text("SELECT campaign, epoch, fingerprint, body FROM epochs")).all()
    for campaign, epoch, fingerprint, body in rows:
        fields = json.loads(bytes(body))
        if fields.get("version") != 1:
            continue
        pieces: list[bytes] = []
        write_canonical(converted(fields), pieces.append)
        body = b"".join(pieces)
        values = {"c": campaign, "e": epoch, "old": fingerprint, "new": hashlib.sha256(body).digest()[:8], "body": body}
        connection.execute(
            text("UPDATE epochs SET fingerprint = :new, body = :body WHERE campaign = :c AND epoch = :e"), values
        )
        connection.execute(
            text("UPDATE partials SET fingerprint = :new WHERE campaign = :c AND fingerprint = :old"), values
        )


def converted(old: dict[str, Any]) -> dict[str, Any]:
    """Convert the fields of a body of wire 1 to those of wire 2."""
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
    kept = {name: value for name, value in old.items() if name not in ("report", "stream")}
    return {
        **kept,
        "version": 2,
        "cohort": cohort and cohort["mechanism"],
        "rule": rule,
        "schedule": {"seed": seed, "stride": 1, "cohort_stride": stride},
    }


def _stride(share: int, cycle: int) -> int:
    """Return the least stride from 1/share on that has no common divisor with the cycle; 0 for share 0."""
    return next(n for n in count(max(round(_WHOLE / share), 2)) if gcd(n, cycle) == 1) if share else 0

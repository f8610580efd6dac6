"""Recount of landed reports with DuckDB on one machine: an audit, and the reference for the engine that counts them.

The recount does not use the server's `Tally`, so that it can find mistakes there. `Tally` keeps 32 bytes for each
device, and gets the reports one after the other, in any order. SQL sees all reports together and states the rule
directly: *a device's first report for a slot counts, unless its report for a slot at least 96 later came before*. If
the rules without memory refused a report when it was landed, the file holds the reason, and the recount counts the
report under the same reason.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from undertone_aggregator.base.plural import many
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.counts.epochs import Epoch, Timeline
from undertone_aggregator.counts.moments import LAGS, layout_of
from undertone_aggregator.counts.partial import Key, Partial
from undertone_aggregator.counts.seen import CONFLICT, COUNTED, DUPLICATE, UNVERIFIED, WINDOW
from undertone_aggregator.ingest.landing import RAW, files_of
from undertone_aggregator.store.store import RECEIVED, CountedReports
from undertone_shared.errors import Invalid
from undertone_shared.stream import StreamRule

_LAST = 0xFFFFFFFF
_TRIES = 50
# Outcomes that a memory of 32 bytes per device cannot always distinguish.
_AGAIN = (DUPLICATE, CONFLICT, UNVERIFIED)

# If a worker dies between gathering files and removing them, two copies of one landed row remain. They count as one.
_ROWS = """
CREATE TEMP TABLE rows AS
SELECT DISTINCT {columns}
FROM read_parquet($files)
"""
_COLUMNS = "place, second, outcome, key, grp, fingerprint, kind, slot, value, further, chain, code"
_JUDGED = f"""
CREATE TEMP TABLE judged AS
SELECT *, coalesce(newest - slot >= {WINDOW}, FALSE) AS old FROM (
    SELECT *,
        row_number() OVER (PARTITION BY key, slot ORDER BY place) AS number,
        first_value(code) OVER (PARTITION BY key, slot ORDER BY place) AS first_code,
        max(slot) OVER (PARTITION BY key ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS newest
    FROM rows WHERE outcome = '{RAW}'
);
CREATE TEMP TABLE counted AS SELECT * FROM judged WHERE number = 1 AND NOT old;
"""
_JUDGEMENT = f"""CASE
    WHEN number = 1 AND NOT old THEN '{COUNTED}' WHEN old THEN '{UNVERIFIED}'
    WHEN code = first_code THEN '{DUPLICATE}' ELSE '{CONFLICT}' END"""
# The outcome of a report is "counted" if any copy was counted, else the first copy's outcome.
_AUDIT = f"""
SELECT device, digest, coalesce(any_value(outcome) FILTER (outcome = '{COUNTED}'), arg_min(outcome, place)) FROM (
    SELECT device, digest, place, outcome FROM rows WHERE outcome <> '{RAW}'
    UNION ALL SELECT device, digest, place, {_JUDGEMENT} FROM judged
) GROUP BY device, digest
"""
_OUTCOMES = f"""
SELECT outcome, count(*) FROM rows WHERE outcome <> '{RAW}' GROUP BY outcome
UNION ALL SELECT {_JUDGEMENT} AS outcome, count(*)
FROM judged GROUP BY 1
"""
_HISTOGRAMS = """
SELECT fingerprint, kind, grp, slot, value, count(*)
FROM counted WHERE slot BETWEEN $first AND $last GROUP BY ALL ORDER BY ALL
"""
# Sum of u, and sums of the upper and the lower 32 bits of u², for one coordinate x of the reports. Here u = x + 2^31.
_MOMENTS = """
SELECT grp, slot, chain, count(*), sum(u), sum(u * u // 4294967296), sum(u * u % 4294967296) FROM (
    SELECT grp, slot, chain, {coordinate}::HUGEINT + 2147483648 AS u FROM counted
    WHERE fingerprint = $fingerprint AND slot BETWEEN $first AND $last
) GROUP BY ALL
"""
# Pairs of counted reports of one chain. A pair is found if both reports are within the 64 slots before the chain's
# newest slot at the time of the later one.
_PAIRS = f"""
WITH ordered AS (
    SELECT *, max(slot) OVER (
        PARTITION BY key, origin ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS head FROM (SELECT *, slot - chain * $lag AS origin FROM counted WHERE fingerprint = $fingerprint)
)
SELECT later.grp, greatest(later.slot, earlier.slot) AS newer, abs(later.slot - earlier.slot), count(*)
FROM ordered AS later JOIN ordered AS earlier
    ON later.key = earlier.key AND later.origin = earlier.origin AND earlier.place < later.place
WHERE later.head - least(later.slot, earlier.slot) <= {LAGS}
    AND greatest(later.slot, earlier.slot) BETWEEN $first AND $last
GROUP BY ALL
"""


@dataclass(frozen=True)
class Recount:
    """Result of a recount: the Partial of a range of slots, and the deliveries of all slots by outcome."""

    partial: Partial
    outcomes: Counter[str]


def recount(folder: Path, epochs: Sequence[Epoch], first: int = 0, last: int = _LAST) -> Recount:
    """Count the landed files below a folder, for first <= slot <= last.

    Raises Invalid without files, or without DuckDB.
    """
    try:
        import duckdb
    except ModuleNotFoundError:
        raise Invalid("recount needs duckdb: pip install 'undertone-ldp[recount]'") from None
    timeline = Timeline(epochs)
    span = {"first": first, "last": last}
    with duckdb.connect() as database:
        _read(database, folder)
        database.execute(_JUDGED)
        outcomes = Counter({outcome: int(n) for outcome, n in database.execute(_OUTCOMES).fetchall()})
        partial = Partial()
        streams: set[int] = set()
        for number, kind, group, slot, value, n in database.execute(_HISTOGRAMS, span).fetchall():
            campaign = _epoch(timeline, number).campaign
            if campaign.rule.kind == "stream":
                streams.add(number)
                continue
            cells = cells_of(campaign.rule.kind).length(campaign.rule, kind)
            partial.add_moments(Key(campaign.name, campaign.fingerprint, kind, group, slot), [(value, n)], cells)
        for number in streams:
            _add_streams(database, timeline, number, span, partial)
    return Recount(partial, outcomes)


def landed_audit(folder: Path) -> dict[tuple[str, bytes], str]:
    """Return (device, first 8 bytes of sha256(payload)) -> outcome of each distinct landed report.

    This equals a store's audit: a repeated report has the outcome of the first time, unless it was counted later.
    Raises Invalid as `recount` does, and for files that were landed without ``audit`` in [store].
    """
    try:
        import duckdb
    except ModuleNotFoundError:
        raise Invalid("reading landed files needs duckdb: pip install 'undertone-ldp[recount]'") from None
    with duckdb.connect() as database:
        _read(database, folder, f"{_COLUMNS}, device, digest")
        if database.execute("SELECT count(*) FROM rows WHERE digest <> 0").fetchone() == (0,):
            raise Invalid(
                f"the files in {folder} have no audit, expected files of a server with audit = true in [store]"
            )
        database.execute(_JUDGED)
        rows = database.execute(_AUDIT).fetchall()
    return {(device, number.to_bytes(8, "big", signed=True)): outcome for device, number, outcome in rows}


def _read(database: Any, folder: Path, columns: str = _COLUMNS) -> None:
    """Read the landed files. If one was moved meanwhile, its rows are in another file, so the read is repeated."""
    from duckdb import Error

    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            files = files_of(folder)
            try:
                database.execute(_ROWS.format(columns=columns), {"files": [str(file) for file in files]})
                return
            except Error as wrong:
                if all(file.exists() for file in files):
                    raise Invalid(f"{folder} cannot be read: {wrong}") from None
    raise Invalid(f"the files of {folder} moved {_TRIES} times while this command read them: run it again")


def _add_streams(database: Any, timeline: Timeline, number: int, span: dict[str, int], partial: Partial) -> None:
    campaign = _epoch(timeline, number).campaign
    rule = cast("StreamRule", campaign.rule)
    layout = layout_of(rule)
    kind = database.execute("SELECT any_value(kind) FROM counted WHERE fingerprint = ?", [number]).fetchone()[0]

    def key(group: str, slot: int) -> Key:
        return Key(campaign.name, campaign.fingerprint, kind, group, slot)

    chosen = {**span, "fingerprint": number}
    for k in range(rule.dimension):
        query = _MOMENTS.format(coordinate=f"further[{k}]" if k else "value")
        for group, slot, chain, *sums in database.execute(query, chosen).fetchall():
            partial.add_moments(key(group, slot), layout.sums_at(chain, k, *map(int, sums)), layout.cells)
    for group, slot, lag, n in database.execute(_PAIRS, {**chosen, "lag": rule.lag}).fetchall():
        partial.add_moments(key(group, slot), [(lag, n)], layout.cells)


def _epoch(timeline: Timeline, number: int) -> Epoch:
    epoch = timeline.of(number.to_bytes(8, "big", signed=True))
    if epoch is None:
        raise Invalid(
            f"a landed report belongs to the epoch {number & (1 << 64) - 1:016x}, which the store does not contain"
        )
    return epoch


@dataclass(frozen=True)
class Difference:
    """One histogram that differs: number of reports in the files and in the store."""

    key: Key
    landed: int
    stored: int

    def __str__(self) -> str:
        where = f"slot {self.key.slot}, group {self.key.group}"
        unlike = ", with other contents" if self.landed == self.stored else ""
        return f"{where}: {many(self.landed, 'report')} in the files, {self.stored} in the store{unlike}"


def compare(again: Recount, store: CountedReports, first: int = 0, last: int = _LAST) -> list[Difference]:
    """List every histogram in which files and store differ, by slot."""
    counted = store.partial(first, last)
    keys = sorted({*again.partial, *counted}, key=lambda key: (key.slot, key.group, key.kind, key.fingerprint))
    differing = []
    for key in keys:
        landed, stored = again.partial.get(key), counted.get(key)
        if landed is None or stored is None or not np.array_equal(landed, stored):
            differing.append(Difference(key, *(Partial({key: counts}).reports if counts is not None else 0
                                               for counts in (landed, stored))))  # fmt: skip
    return differing


def merged(outcomes: Mapping[str, int]) -> dict[str, int]:
    """Return deliveries by outcome, with all kinds of repetitions as one number.

    A memory of 32 bytes per device cannot always tell these kinds apart.
    """
    again = sum(outcomes.get(outcome, 0) for outcome in _AGAIN)
    others = {outcome: n for outcome, n in outcomes.items() if n and outcome not in (*_AGAIN, RECEIVED)}
    return {**others, "again": again}

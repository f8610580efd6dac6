"""Writers of estimates: one JSON object, and the formats of `undertone_aggregator.estimate.formats`."""

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, tzinfo
from fractions import Fraction
from functools import cache
from typing import Any

from undertone_aggregator.base.plain import plain
from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.counts.facts import mechanism_facts
from undertone_aggregator.estimate.estimates import Estimates, Row, Z
from undertone_aggregator.estimate.query import Results
from undertone_aggregator.estimate.spreadsheets import as_cell
from undertone_shared.errors import Invalid

# Columns that identify a series; they are tags in line protocol.
_TAGS = ("group", "coordinate", "filtered", "kind", "share")


def document(results: Results, estimates: Estimates) -> dict[str, Any]:
    """Return the campaign's facts and these estimates as one JSON object."""
    campaign, exact = results.campaign, results.certificate
    world, columns = results.world(estimates), estimates.table()
    document: dict[str, Any] = {
        "campaign": campaign.name,
        "sensor": campaign.sensor,
        "unit": campaign.unit,
        "slot_seconds": campaign.slot_seconds,
        **results.budget.as_json(),
        "certificate": None if exact is None else [exact.numerator, exact.denominator],
        "guarantee": results.guarantee,
        "published": world and world.as_json(),
        "theta": results.theta,
        "phase": results.newest.phase,
        "epochs": [_epoch(epoch, results.budget.epsilon) for epoch in results.timeline.epochs],
        "outcomes": results.outcomes(),
        "lost": {group: {"reports": n, "since_slot": slot} for group, (n, slot) in results.lost().items()},
        "unpublished": results.unpublished,
        "settled": results.settled,
        "warnings": results.warnings(estimates),
        "slots": [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)],
    }
    if estimates.filtered.any():
        document["filter"] = results.filter.sentence
    return dict(plain(document))


def to_csv(results: Results, pieces: Iterable[Sequence[Row]], kind: type[Row]) -> Iterator[bytes]:
    """Yield rows of one kind as CSV with a header; missing values are empty.

    Further columns are ``time``, the start as ISO 8601 in the campaign's zone, and constants without which no number is
    complete: unit, ε and the guarantee. Text that a spreadsheet would take for a formula is marked as text.
    """
    facts = {"unit": results.campaign.unit, "epsilon": results.budget.approximate[0], "guarantee": results.guarantee}
    yield (",".join([*kind.columns(), "time", *facts]) + "\n").encode()
    tail = "".join(f",{_in_csv(value)}" for value in facts.values()) + "\n"
    zone, types = results.days.zone, kind.types()
    time = cache(lambda start: datetime.fromtimestamp(start, zone).isoformat())
    # The csv module takes twice as long as columns of finished texts.
    for rows in pieces:
        columns = kind.table(rows)
        cells = [_texts(values) if types[name] is str else _numbers(values) for name, values in columns.items()]
        lines = map(",".join, zip(*cells, map(time, columns["start"]), strict=True))
        yield "".join([line + tail for line in lines]).encode()


def means_csv(results: Results, series: Iterable[Estimates], zone: tzinfo) -> bytes:
    """Return a small CSV file for people with a spreadsheet: time, group, mean, ± and unit of each slot with a number.

    ``series``: one group's estimates each, of which the filtered ones are taken if there are any. The time is by the
    clock of ``zone``, in a form that spreadsheets read as a time; ± is half the 95 % interval.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["time", "group", "mean", "plus_minus", "unit"])
    unit = as_cell(results.campaign.unit)
    for rows in series:
        for row in rows.take(rows.filtered) if rows.filtered.any() else rows:
            if math.isfinite(row.estimate):
                error = "" if row.standard_error is None else _short(Z * row.standard_error)
                group = as_cell(row.series.group)
                writer.writerow([local(row.start, zone), group, _short(row.estimate), error, unit])
    return text.getvalue().encode()


def to_json_lines(results: Results, pieces: Iterable[Sequence[Row]], kind: type[Row]) -> Iterator[bytes]:
    """Yield one line with a JSON object for each row."""
    for rows in pieces:
        columns = kind.table(rows)
        for values in zip(*columns.values(), strict=True):
            row = plain(dict(zip(columns, values, strict=True)))
            yield (json.dumps(row, ensure_ascii=False) + "\n").encode()


def to_influx(results: Results, pieces: Iterable[Sequence[Row]], kind: type[Row]) -> Iterator[bytes]:
    """Yield InfluxDB line protocol: the campaign as measurement, tags that identify the series, the start in ns."""
    measurement = _escaped(results.campaign.name)
    for rows in pieces:
        columns = kind.table(rows)
        for cells in zip(*columns.values(), strict=True):
            row = plain(dict(zip(columns, cells, strict=True)))
            given = {name: value for name, value in row.items() if value is not None}
            start = given.pop("start") * 1_000_000_000
            tags = "".join(f",{name}={_escaped(str(given.pop(name)).lower())}" for name in _TAGS if name in given)
            values = ",".join(f"{name}={_influx_value(value)}" for name, value in given.items())
            yield f"{measurement}{tags} {values} {start}\n".encode()


def to_parquet(results: Results, pieces: Iterable[Sequence[Row]], kind: type[Row]) -> Iterator[bytes]:
    """Yield rows of one kind as a Parquet file with the campaign's facts in its metadata.

    Each piece is a row group. Raises Invalid without pyarrow.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError:
        raise Invalid("Parquet needs pyarrow: pip install 'undertone-ldp[all]'") from None
    facts = {key: value for key, value in document(results, Estimates.of([])).items() if key != "slots"}
    types = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
    schema = pa.schema(
        [(name, types[kind_of]) for name, kind_of in kind.types().items()], metadata={"undertone": json.dumps(facts)}
    )
    into = _Pipe()
    with pq.ParquetWriter(pa.PythonFile(into, mode="w"), schema) as writer:
        for rows in pieces:
            writer.write_table(pa.table(kind.table(rows), schema=schema))
            yield into.taken()
    yield into.taken()


class _Pipe:
    """An in-memory file for pyarrow: pyarrow writes to it, and `taken` returns the bytes written so far."""

    def __init__(self) -> None:
        self.closed = False
        self._written = 0
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        """Write bytes at the end."""
        self._parts.append(bytes(data))
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._written

    def flush(self) -> None:
        """Do nothing: all bytes are in memory."""

    def close(self) -> None:
        """Note that no more bytes come."""
        self.closed = True

    def taken(self) -> bytes:
        """Return the bytes written since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


def local(second: int, zone: tzinfo = UTC) -> str:
    """Format a Unix second as date and time in a zone."""
    return datetime.fromtimestamp(second, zone).strftime("%Y-%m-%d %H:%M:%S")


def _epoch(epoch: Epoch, epsilon: Fraction) -> Mapping[str, Any]:
    campaign, chosen = epoch.campaign, epoch.threshold
    facts: dict[str, Any] = {
        "epoch": campaign.epoch,
        "phase": epoch.phase,
        "first_slot": campaign.first_slot,
        "theta": campaign.theta,
        "ranges": [list(block) for block in campaign.ranges],
    }
    if campaign.cohort is not None:
        facts["cohort_edges"] = [campaign.offset + edge for edge in campaign.cohort.mechanism.edges or ()]
    if chosen is not None:
        facts |= {"low": campaign.offset + chosen.low, "high": campaign.offset + chosen.high}
        for name in ("bias", "bias_se", "method", "warnings"):
            facts[name] = getattr(chosen, name)
    reporting = mechanism_facts(epoch, epsilon)
    if reporting is not None:
        facts["mechanism"] = asdict(reporting)
    return facts


def _short(value: float) -> float:
    return float(f"{value:.7g}")


def _in_csv(value: Any) -> str:
    """Return a cell of a CSV file; text cannot be a formula in a spreadsheet."""
    text = io.StringIO()
    # The second cell is empty: a row with a single empty cell would be written in quotes.
    csv.writer(text, lineterminator="").writerow([as_cell(value) if isinstance(value, str) else value, ""])
    return text.getvalue()[:-1]


def _texts(values: Sequence[str | None]) -> list[str]:
    """Return the cells of a column of text, in which few texts occur often."""
    cells = {value: _in_csv(value) for value in set(values)}
    return [cells[value] for value in values]


def _numbers(values: Sequence[float | None]) -> list[str]:
    """Return the cells of a column of numbers, each with as many digits as it needs."""
    return ["" if value is None else str(value) for value in values]


def _influx_value(value: Any) -> str:
    """Return a field's value in line protocol: text in quotes, an integer with an i, true or false, or a number."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value}i" if isinstance(value, int) else str(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace(",", "\\,").replace(" ", "\\ ").replace("=", "\\=")

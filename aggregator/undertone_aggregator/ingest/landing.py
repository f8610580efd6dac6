"""Landed reports: deliveries as Parquet files, each with the outcome of the rules that need no memory.

Spark counts these files on many machines (`undertone spark run`), and `undertone recount` counts them again. Files are
written only if a folder for them is configured, because they hold each device's perturbed reports under its name.

A batch becomes a small file in a hidden folder of its worker, and is durable before the batch is acknowledged. From
time to time a worker merges its small files into one file in the folder of the day. Every file is written under a name
that begins with a dot, synced and renamed, so that nobody ever finds half a file. If a worker dies, the next worker of
the same name takes over its hidden folder. If a worker dies before it acknowledges a report, the report is landed
twice; the second one is counted as a duplicate.
"""

import hashlib
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from undertone_aggregator.base.files import sync
from undertone_aggregator.counts.seen import digest
from undertone_aggregator.ingest.admission import Admission
from undertone_aggregator.ingest.fast_path import FastPath
from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.settings.landing_plan import SERVER, LandingPlan
from undertone_aggregator.store.store import StoreError
from undertone_shared.errors import Invalid

# The outcome of a report that passed every rule without memory. The rules with memory judge the report when it is
# counted.
RAW = "raw"
LANDED, COUNTED = "landed", "counted"
_PENDING = ".pending"
# Number of rows at which small files are merged into one.
_MOST_ROWS = 100_000
# The names of merged files: the worker, and the places of the first and the last row.
_GATHERED = re.compile(r"(.+)-(\d{20})-(\d{20})\.parquet")
# The names of small files: the place of the last row. Files with neither kind of name are not Undertone's.
_WAITING = re.compile(r"(\d{20})\.parquet")
# File pattern by which Spark finds merged files.
GATHERED_GLOB = "*-[0-9]*-[0-9]*.parquet"

# Column -> type; int32s: a list of int32. A refused delivery has values only for outcome, device, grp, place, second,
# code and digest.
COLUMNS = {
    # The order in which a worker's rows are judged.
    "place": "int64",
    # Unix second at which the report arrived.
    "second": "int64",
    # `RAW`, or the reason for refusal.
    "outcome": "string",
    "device": "string",
    # The device's key for deduplication: 64 bits, signed.
    "key": "int64",
    "grp": "string",
    # The epoch's fingerprint: 64 bits, signed.
    "fingerprint": "int64",
    "kind": "int32",
    "slot": "int64",
    # The symbol, or the first coordinate of a released stream value. `further` holds the other coordinates.
    "value": "int64",
    "further": "int32s",
    "chain": "int32",
    "sequence": "int64",
    # The payload's digest of 21 bits, see `undertone_aggregator.counts.seen.digest`.
    "code": "int32",
    # With [store] audit: the first 8 bytes of the payload's sha256, signed, for `undertone verify`; else 0.
    "digest": "int64",
}


def rows_of(admission: Admission, deliveries: Sequence[Delivery], now: int) -> dict[str, Any]:
    """Return the columns of deliveries, in their order, without ``place``."""
    columns = {
        name: np.zeros(len(deliveries), dtype=np.int64) for name, kind in COLUMNS.items() if kind in ("int64", "int32")
    }
    columns["second"][:] = now
    device, outcome = [""] * len(deliveries), [""] * len(deliveries)
    further: list[tuple[int, ...]] = [()] * len(deliveries)
    plain = np.zeros(len(deliveries), dtype=bool)
    try:
        admitted, rows = FastPath(admission).admitted(deliveries, now)
        plain, fields = admitted.good, admitted.columns
        columns["key"][plain] = fields.device.view(np.int64)[plain]
        columns["fingerprint"][plain] = fields.fingerprint.view(np.int64)[plain]
        for name in ("kind", "slot", "chain", "sequence"):
            columns[name][plain] = getattr(fields, name)[plain]
        streams = np.array([epoch.campaign.rule.kind == "stream" for epoch in admitted.epochs] or [False])
        columns["value"][plain] = np.where(streams[admitted.epoch], fields.released, fields.symbol)[plain]
        for i in np.flatnonzero(plain).tolist():
            device[i], outcome[i] = admission.devices.name(int(rows[i])), RAW
    except Exception:
        # If a batch fails, its deliveries are judged one by one, as in the fast path.
        plain[:] = False
    for i in np.flatnonzero(~plain).tolist():
        topic, payload, retained, _ = deliveries[i]
        refused, device[i], key, report, _ = admission.examine(topic, payload, retained, now)
        outcome[i] = refused or RAW
        if not refused and report is not None:
            columns["value"][i] = report.values[0]
            for name in ("kind", "slot", "chain", "sequence"):
                columns[name][i] = getattr(report, name)
            columns["key"][i] = np.uint64(key).astype(np.int64)
            columns["fingerprint"][i] = int.from_bytes(report.fingerprint, "big", signed=True)
            further[i] = report.values[1:]
    columns["code"][:] = [digest(payload) for _, payload, _, _ in deliveries]
    if admission.audit:
        columns["digest"][:] = [
            int.from_bytes(hashlib.sha256(payload).digest()[:8], "big", signed=True) for _, payload, _, _ in deliveries
        ]
    groups = [admission.group_of(name) for name in device]
    del columns["place"]
    return {**columns, "outcome": outcome, "device": device, "grp": groups, "further": further}


class Landing:
    """The files of one worker. Raises StoreError if they cannot be written; then nothing may be acknowledged.

    Raises Invalid if pyarrow is not installed.
    """

    def __init__(self, plan: LandingPlan, worker: str) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ModuleNotFoundError:
            raise Invalid("[landing] needs pyarrow: pip install 'undertone-ldp[recount]'") from None
        self._pa, self._pq = pa, pq
        listed = pa.list_(pa.int32())
        self._schema = pa.schema([(name, listed if kind == "int32s" else kind) for name, kind in COLUMNS.items()])
        self._plan = plan
        self._folder = Path(plan.folder)
        self._worker = worker
        self._own = self._folder / _PENDING / f"{worker}-{secrets.token_hex(8)}"
        self._place = self._newest_place()
        self._rows = 0
        self._since = time.monotonic()
        with _stored():
            for folder in (self._folder, self._folder / _PENDING, self._folder / LANDED):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._adopt()

    def land(self, columns: dict[str, Any]) -> None:
        """Write the columns of a batch (`rows_of`) to a file, durable on return."""
        rows = len(columns["second"])
        # If the clock was set back, the next place is taken instead of the time, so that rows stay in order.
        first = max(self._place + 1, time.time_ns())
        place = first + np.arange(rows, dtype=np.int64)
        with _stored():
            table = self._pa.table({**columns, "place": place}, schema=self._schema)
            self._write(table, self._own / f"{first + rows - 1:020d}.parquet")
        self._place = first + rows - 1
        self._since = self._since if self._rows else time.monotonic()
        self._rows += rows

    def step(self) -> None:
        """Merge the small files once they are old or many. If this raises StoreError, call it again later."""
        if self._rows and (self._rows >= _MOST_ROWS or time.monotonic() > self._since + self._plan.seconds):
            self.gather()

    def gather(self) -> None:
        """Merge all small files into one, and remove files that are too old."""
        with _stored():
            self._gather(self._own, self._worker)
            self._rows = 0
            self._expire()

    def _gather(self, folder: Path, worker: str) -> None:
        files = sorted(file for file in folder.glob("*.parquet") if _WAITING.fullmatch(file.name))
        if not files:
            return
        table = self._pa.concat_tables([self._pq.read_table(file, schema=self._schema) for file in files])
        first, last = table["place"][0].as_py(), table["place"][-1].as_py()
        day = datetime.fromtimestamp(table["second"][0].as_py(), UTC).date()
        self._write(table, self._folder / LANDED / str(day) / f"{worker}-{first:020d}-{last:020d}.parquet")
        for file in files:
            file.unlink()

    def _adopt(self) -> None:
        """Merge the files that earlier workers of this name left behind.

        Worker 0 also merges the files from runs with another number of workers. If a worker of this name is still
        alive, it notices that its folder is gone and makes a new one.
        """
        number, _, workers = self._worker.partition("of")
        for left in sorted((self._folder / _PENDING).glob("*-*")):
            name = left.name.partition("-")[0]
            if name == self._worker or (number == "0" and name.partition("of")[2] != workers):
                # The folder's new name contains the name of the worker to which its rows belong.
                adopted = left.with_name(f"{name}-{secrets.token_hex(8)}")
                with suppress(FileNotFoundError):
                    left.rename(adopted)
                    self._forget_gathered(adopted, name)
                    self._gather(adopted, name)
                    shutil.rmtree(adopted)

    def _forget_gathered(self, folder: Path, worker: str) -> None:
        """Remove small files in a dead worker's folder that it had already merged but not yet removed."""
        gathered = [
            (int(match[2]), int(match[3]))
            for part in (LANDED, COUNTED)
            for match in map(_gathered, (self._folder / part).rglob(f"{worker}-*.parquet"))
            if match and match[1] == worker
        ]
        for file in folder.glob("*.parquet"):
            match = _WAITING.fullmatch(file.name)
            if match and any(first <= int(match[1]) <= last for first, last in gathered):
                file.unlink()

    def _newest_place(self) -> int:
        names = [file.name for file in self._folder.rglob("*.parquet")]
        matches = [_GATHERED.fullmatch(name) or _WAITING.fullmatch(name) for name in names]
        return max((int(match[match.lastindex or 0]) for match in matches if match), default=0)

    def _expire(self) -> None:
        """Remove the folders of days that are too old; where Spark counts, only those of counted files."""
        oldest = datetime.now(UTC).date() - timedelta(days=self._plan.days)
        gathered = self._folder / (LANDED if self._plan.counts == SERVER else COUNTED)
        for folder in list(gathered.rglob("????-??-??")):
            with suppress(ValueError):
                if date.fromisoformat(folder.name) < oldest:
                    shutil.rmtree(folder, ignore_errors=True)

    def _write(self, table: Any, path: Path) -> None:
        """Write a file, whole or not at all. It is durable on return."""
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in (path.parent.parent, path.parent.parent.parent):
                sync(folder)
        hidden = path.with_name(f".{path.name}")
        self._pq.write_table(table, hidden, compression="zstd")
        sync(hidden)
        hidden.replace(path)
        sync(path.parent)


def _gathered(file: Path) -> "re.Match[str] | None":
    return _GATHERED.fullmatch(file.name)


def day_of(file: Path) -> date:
    """Return the UTC day of a merged file's first row."""
    match = _gathered(file)
    assert match is not None
    return datetime.fromtimestamp(int(match[2]) // 10**9, UTC).date()


def gathered_files(folder: Path) -> list[Path]:
    """Return the merged files below a folder, sorted. Files with other names are left out."""
    return sorted(file for file in folder.rglob("*.parquet") if _gathered(file))


def files_of(folder: Path) -> list[Path]:
    """Return every whole file below a landing folder. Raises Invalid if there is none.

    The folders are read in the order in which rows move through them. So a file that moves meanwhile may be found
    twice, but is never missed.
    """
    waiting = [file for file in (folder / _PENDING).rglob("*.parquet") if _WAITING.fullmatch(file.name)]
    files = [*sorted(waiting), *gathered_files(folder / LANDED), *gathered_files(folder / COUNTED)]
    if not files:
        raise Invalid(f"{folder} holds no landed file")
    return files


@contextmanager
def _stored() -> Iterator[None]:
    try:
        yield
    except OSError as wrong:
        raise StoreError(f"landing: {wrong}") from wrong

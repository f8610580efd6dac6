"""Results: what a store says, for an analyst. Reading never disturbs a running aggregator."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.collect import store as stores
from undertone_aggregator.collect.epochs import Epoch, Timeline
from undertone_aggregator.collect.facts import MechanismFacts, mechanism_facts
from undertone_aggregator.estimate.distribution import Quantile, quantiles
from undertone_aggregator.estimate.guarantee import campaign_guarantee, certificate
from undertone_aggregator.estimate.misfit import ALARM
from undertone_aggregator.estimate.ranges import RangeEstimate, drowned, over
from undertone_aggregator.estimate.reconstruct import Estimate, Reconstruction
from undertone_aggregator.estimate.stream import StreamReconstruction
from undertone_aggregator.publish import plain
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid


class Results:
    """A store, opened for reading. Raises Invalid for a file that is none, or has no epoch yet."""

    def __init__(self, path: Path | str) -> None:
        self._store = stores.open_store(path, read_only=True)
        epochs = self._store.epochs()
        if not epochs:
            self._store.close()
            raise Invalid(f"the store {path} has no epoch yet: the aggregator has not begun")
        self.timeline = Timeline(epochs)
        self._reconstruction = Reconstruction(self.timeline)
        self._streams = StreamReconstruction(self.timeline)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def __enter__(self) -> "Results":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def newest(self) -> Epoch:
        """The newest epoch."""
        return self.timeline.epochs[-1]

    @property
    def campaign(self) -> Campaign:
        """The newest epoch's campaign."""
        return self.newest.campaign

    @property
    def epsilon(self) -> Fraction:
        """ε of one reading (event level), as planned; certificates stay at or below e^ε."""
        return Fraction(self._store.meta()["epsilon"])

    @property
    def guarantee(self) -> str:
        """The privacy guarantee in one sentence."""
        return campaign_guarantee(self.campaign, self.epsilon, self.delta)

    @property
    def delta(self) -> float | None:
        """δ of a whole stream, None for other campaigns."""
        text = self._store.meta().get("delta")
        return float(text) if text else None

    @property
    def certificate(self) -> Fraction:
        """The largest exact probability ratio of any mechanism of any epoch: at most e^ε."""
        return max(certificate(epoch.campaign) for epoch in self.timeline.epochs)

    @property
    def theta(self) -> int | None:
        """The truncation threshold of the newest report epoch."""
        rules = [epoch.campaign.stream or epoch.campaign.report for epoch in self.timeline.epochs]
        return next((rule.theta for rule in reversed(rules) if rule is not None), None)

    @property
    def mechanism(self) -> MechanismFacts | None:
        """What reports in the newest epoch; None in a threshold epoch or a stream campaign."""
        return mechanism_facts(self.newest, self.epsilon)

    def outcomes(self) -> dict[str, int]:
        """Deliveries by outcome; ``received`` is their sum."""
        return dict(self._store.outcomes())

    def estimates(
        self, first: int = 0, last: int = 0xFFFFFFFF, groups: Iterable[str] | None = ("all",)
    ) -> list[Estimate]:
        """The estimates of first <= slot <= last; ``groups`` None for all groups."""
        if self.campaign.stream is not None:
            return self._streams.estimates(self._store.partial(first, last), groups)
        return self._reconstruction.estimates(self._store.partial(first, last), groups)

    def ranges(
        self, every: int, first: int = 0, last: int = 0xFFFFFFFF, groups: Iterable[str] | None = ("all",)
    ) -> list[RangeEstimate]:
        """Means over runs of ``every`` slots within first <= slot <= last; 48 half-hours make UTC days."""
        if self.campaign.stream is not None:
            return self._streams.ranges(self._store.partial(first, last), every, groups)
        return over(self.estimates(first, last, groups), every)

    def smoothed(
        self,
        first: int = 0,
        last: int = 0xFFFFFFFF,
        groups: Iterable[str] | None = ("all",),
        *,
        seasonal: bool = False,
    ) -> list[Estimate]:
        """A stream's estimates, smoothed; ``seasonal``: with a daily or other pattern of ``cycle`` slots.

        Raises Invalid for a campaign without streams.
        """
        if self.campaign.stream is None:
            raise Invalid(f"campaign {self.campaign.name} collects no streams: there is nothing to smooth")
        cycle = self.campaign.cycle if seasonal else None
        return self._streams.smoothed(self._store.partial(first, last), groups, cycle=cycle)

    def quantiles(
        self,
        shares: Sequence[float] = (0.1, 0.5, 0.9),
        every: int | None = None,
        first: int = 0,
        last: int = 0xFFFFFFFF,
    ) -> list[Quantile]:
        """Quantiles of the readings over runs of ``every`` slots, one cycle by default, with 90 % bands: a model.

        Takes about a second per run. Raises Invalid for a share outside (0, 1).
        """
        return quantiles(self.timeline, self._store.partial(first, last), shares, every or self.campaign.cycle)

    def warnings(self, estimates: Sequence[Estimate]) -> list[str]:
        """Plain sentences about what these estimates cannot show, and about how θ was chosen."""
        chosen = next(
            (epoch.threshold for epoch in reversed(self.timeline.epochs) if epoch.threshold is not None), None
        )
        said = list(chosen.warnings) if chosen is not None else []
        noise = drowned([one for one in estimates if one.group == "all"], self.campaign.offset)
        odd = [one for one in estimates if one.misfit is not None and one.misfit >= ALARM]
        if odd:
            worst = max(odd, key=lambda one: one.misfit or 0.0)
            said.append(
                f"{len(odd)} of {len(estimates)} estimates rest on reports that do not come from honest devices alone:"
                f" in slot {worst.slot}, group {worst.group}, they would send the like with a chance of at most"
                f" 10^-{worst.misfit:.0f}"
            )
        return said + ([noise] if noise is not None else [])

    def arrays(self, first: int = 0, last: int = 0xFFFFFFFF, group: str = "all") -> dict[str, NDArray[Any]]:
        """The estimates of one group as numpy arrays by column; what a slot does not have is nan."""
        rows = [asdict(one) for one in self.estimates(first, last, [group])]
        return {name: np.array([_number(row[name]) for row in rows]) for name in COLUMNS}

    def frame(self, first: int = 0, last: int = 0xFFFFFFFF, groups: Iterable[str] | None = None) -> Any:
        """The estimates as a pandas DataFrame indexed by the slot's start (UTC). Needs pandas."""
        import pandas as pd

        frame = pd.DataFrame([asdict(one) for one in self.estimates(first, last, groups)], columns=list(COLUMNS))
        return frame.set_index(pd.to_datetime(frame.pop("start"), unit="s", utc=True))


COLUMNS: tuple[str, ...] = tuple(Estimate.__dataclass_fields__)


def open_store(path: Path | str) -> Results:
    """Open an aggregator's store for reading. Raises Invalid."""
    return Results(path)


def document(results: Results, estimates: Sequence[Estimate]) -> dict[str, Any]:
    """Everything about the campaign and these estimates, as one JSON object."""
    campaign, exact = results.campaign, results.certificate
    document: dict[str, Any] = {
        "campaign": campaign.name,
        "sensor": campaign.sensor,
        "unit": campaign.unit,
        "slot_seconds": campaign.slot_seconds,
        "epsilon": float(results.epsilon),
        "delta": results.delta,
        "certificate": [exact.numerator, exact.denominator],
        "guarantee": results.guarantee,
        "theta": results.theta,
        "phase": results.newest.phase,
        "epochs": [_epoch(epoch, results.epsilon) for epoch in results.timeline.epochs],
        "outcomes": results.outcomes(),
        "warnings": results.warnings(estimates),
        "slots": [asdict(one) for one in estimates],
    }
    return dict(plain(document))


def to_csv(rows: Sequence[Estimate | RangeEstimate | Quantile]) -> str:
    """Rows of one kind as CSV with a header; what a row does not have is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(rows[0])] if rows else COLUMNS)
    for one in rows:
        writer.writerow(["" if value is None else value for value in asdict(one).values()])
    return text.getvalue()


def write_parquet(results: Results, rows: Sequence[Estimate | RangeEstimate | Quantile], path: Path) -> None:
    """Rows of one kind as a Parquet file, the campaign's facts in its metadata. Raises Invalid without pyarrow."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError:
        raise Invalid("Parquet needs pyarrow: pip install 'undertone-ldp[all]'") from None
    facts = {key: value for key, value in document(results, []).items() if key != "slots"}
    names = [field.name for field in fields(rows[0])] if rows else COLUMNS
    columns = {name: [getattr(one, name) for one in rows] for name in names}
    table = pa.table(columns, metadata={"undertone": json.dumps(facts)})
    pq.write_table(table, path)


def _epoch(epoch: Epoch, epsilon: Fraction) -> Mapping[str, Any]:
    campaign, chosen = epoch.campaign, epoch.threshold
    facts: dict[str, Any] = {
        "epoch": campaign.epoch,
        "phase": epoch.phase,
        "first_slot": campaign.first_slot,
        "theta": None if campaign.report is None else campaign.report.theta,
        "cohort_edges": [] if campaign.cohort is None else list(campaign.cohort.mechanism.edges or ()),
    }
    if chosen is not None:
        for name in ("low", "high", "bias", "bias_se", "method", "warnings"):
            facts[name] = getattr(chosen, name)
    reporting = mechanism_facts(epoch, epsilon)
    if reporting is not None:
        facts["mechanism"] = asdict(reporting)
    return facts


def utc(second: int) -> str:
    """A Unix second as date and time in UTC."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _number(value: Any) -> Any:
    return np.nan if value is None else value

"""``undertone simulate``: a campaign over a population of any size, without a wire and in bounded memory."""

import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertone.sentences import refuse_strangers, refuse_together
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_simulator.fast.simulated import Compared, Simulated

_MOST_ROWS = 48
# What the intervals are held against, and the wider ones, by the kind of the campaign's rules.
_TRUTHS = {"scalar": ("truncated", ", {} wider ones the raw truth"), "stream": ("clipped", "")}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate")(simulate)


def simulate(
    context: typer.Context,
    devices: Annotated[int, typer.Option(help="how many devices")] = 20_000,
    slots: Annotated[
        int | None, typer.Option(help="report slots, after the threshold rounds; 48, or the campaign's")
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option(help="privacy, 0.05 to 8: of one reading (event level), or of a whole stream; 1")
    ] = None,
    seed: Annotated[int, typer.Option(help="fixes everything: population, cohort, noise, drop-outs")] = 1,
    population: Annotated[
        str, typer.Option(help="synthetic: households, phones, time-in-state, heavy-tail or temperature")
    ] = "households",
    data: Annotated[Path | None, typer.Option(help="readings to replay instead: .npz, .csv or .parquet")] = None,
    unit: Annotated[str | None, typer.Option(help="unit of the readings where the file does not say")] = None,
    bound: Annotated[int | None, typer.Option(help="public upper bound of a reading, in whole units")] = None,
    campaign: Annotated[
        Path | None, typer.Option(help="an aggregator's configuration: its [campaign] instead of the options here")
    ] = None,
    rounds: Annotated[str | None, typer.Option(help="days of each threshold round; 1,1,1")] = None,
    collect: Annotated[str | None, typer.Option(help="reports, or stream: all of a device's under one budget")] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(help="of reports: auto, hybrid, piecewise or optimal; of a stream: gaussian, one-bit or direct"),
    ] = None,
    cohort_share: Annotated[
        float | None, typer.Option(help="share of reports that keep the threshold fresh; 0.05")
    ] = None,
    blocks: Annotated[
        int | None, typer.Option(help="at most so many blocks of the day have a θ of their own, 1 to 8; 8")
    ] = None,
    window: Annotated[
        str | None, typer.Option(help='ε is of all readings in any window, as "24h": devices report in turns')
    ] = None,
    delta: Annotated[float | None, typer.Option(help="of a whole stream; 0.00001")] = None,
    slew: Annotated[
        float | None, typer.Option(help="of a stream: largest step between reports, a share of the range; 0.05")
    ] = None,
    theta: Annotated[int | None, typer.Option(help="of a stream: readings are truncated to it; the bound")] = None,
    dimension: Annotated[int | None, typer.Option(help="of a stream: coordinates of a reading; 1")] = None,
    drop_out: Annotated[float, typer.Option(help="share of reports that never leave their device")] = 0.0,
    late: Annotated[float, typer.Option(help="share of devices that join late")] = 0.0,
    late_slots: Annotated[int, typer.Option(help="slots in which they join")] = 48,
    liars: Annotated[float, typer.Option(help="share of devices that always send the largest symbol")] = 0.0,
    chunk: Annotated[int, typer.Option(help="devices at a time; results do not depend on it")] = 1 << 17,
    workers: Annotated[int, typer.Option(help="processes; results do not depend on it")] = 1,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="a Dask scheduler whose workers take part")
    ] = None,
    store: Annotated[Path | None, typer.Option(help="write a store, as for undertone query")] = None,
    png: Annotated[Path | None, typer.Option(help="write a picture there")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Run a whole campaign on a simulated fleet, without a wire: the server's estimates beside the truth."""
    from undertone_simulator import doors

    refuse_together(context, "population", "data")
    if late == 0:
        refuse_strangers(context, context.params.keys() - {"late_slots"}, "without --late")
    started = time.perf_counter()
    with _Progress() as progress:
        simulated = doors.simulate(
            devices=devices,
            slots=slots,
            epsilon=epsilon,
            seed=seed,
            population=population,
            data=data,
            unit=unit,
            bound=bound,
            campaign=campaign,
            rounds=None if rounds is None else _days(rounds),
            collect=collect,
            mechanism=mechanism,
            cohort_share=cohort_share,
            blocks=blocks,
            window=window,
            delta=delta,
            slew=slew,
            theta=theta,
            dimension=dimension,
            drop_out=drop_out,
            late=late,
            late_slots=late_slots,
            liars=liars,
            chunk=chunk,
            workers=workers,
            dask=dask,
            progress=progress.show,
        )
    seconds = time.perf_counter() - started
    if store is not None:
        simulated.save(store)
    _tell(simulated, seconds, png, as_json)


def _tell(simulated: "Simulated", seconds: float, png: Path | None, as_json: bool) -> None:
    from undertone_aggregator.counts.partial import EVERYBODY
    from undertone_simulator.wire.memory import peak_megabytes

    compared = simulated.compared()
    if not compared:
        raise Invalid("no slot has a report that its mean is made of: are there devices, and slots?")
    if png is not None:
        from undertone_simulator.picture import draw

        draw(simulated, png)
    facts = {
        "reports": simulated.partial.reports,
        "seconds": seconds,
        "reports_per_second": simulated.partial.reports / seconds,
        "peak_megabytes": peak_megabytes(),
    }
    if as_json:
        of_groups = [_row(each) for each in simulated.compared(None) if each.estimate.group != EVERYBODY]
        whole = {
            **document(simulated, compared),
            **({"groups": of_groups} if of_groups else {}),
            **facts,
            "notes": simulated.notes,
        }
        print(json.dumps(whole, ensure_ascii=False))
        return
    _show(simulated, compared)
    print(
        f"{facts['reports']} reports in {seconds:.1f} s ({facts['reports_per_second'] / 1e6:.2f} million/s),"
        f" at most {facts['peak_megabytes']:.0f} MB"
    )


def _days(rounds: str) -> tuple[float, ...]:
    try:
        return tuple(float(text) for text in rounds.split(","))
    except ValueError:
        raise Invalid(f"rounds is {rounds!r}, expected days of each round such as 1,1,3") from None


def document(simulated: "Simulated", slots: "list[Compared]") -> dict[str, Any]:
    """Everything about the campaign and its slots, as one JSON object."""
    from undertone_aggregator.campaign.collection import guarantee_of
    from undertone_aggregator.estimate.estimates import plain

    newest = simulated.timeline.epochs[-1].campaign
    theta = newest.theta
    cost = guarantee_of(simulated.timeline, simulated.budget)
    exact = cost.certificate
    return dict(
        plain(
            {
                "theta": theta,
                "ranges": [list(block) for block in newest.ranges],
                "unit": simulated.plan.unit,
                **cost.budget.as_json(),
                # Gaussian noise has none for a report by itself.
                "certificate": [exact.numerator, exact.denominator] if exact else None,
                "guarantee": cost.sentence,
                "warnings": warnings(simulated),
                "slots": [_row(each) for each in slots],
                "measured_error": _root_mean_square([each.error for each in slots]),
                "predicted_error": _root_mean_square([each.estimate.standard_error or 0.0 for each in slots]),
            }
        )
    )


def _row(compared: "Compared") -> dict[str, Any]:
    return {**compared.estimate.row(), "truth_truncated": compared.truth_truncated, "truth_raw": compared.truth_raw}


def warnings(simulated: "Simulated") -> list[str]:
    """What the threshold's choice warned of, in any epoch."""
    chosen = [epoch.threshold for epoch in simulated.timeline.epochs if epoch.threshold is not None]
    return list(dict.fromkeys(sentence for threshold in chosen for sentence in threshold.warnings))


def _root_mean_square(values: list[float]) -> float:
    return math.sqrt(math.fsum(value * value for value in values) / len(values))


def _show(simulated: "Simulated", slots: "list[Compared]") -> None:
    from rich.console import Console
    from rich.table import Table

    facts = document(simulated, slots)
    unit, errors = facts["unit"], (facts["measured_error"], facts["predicted_error"])
    table = Table("slot", "n", "estimate", "95 % interval", "truth", "for raw", "raw", box=None, pad_edge=False)
    for column in table.columns:
        column.justify, column.no_wrap = "right", True
    for each in slots[:: -(-len(slots) // _MOST_ROWS)]:
        of = each.estimate
        table.add_row(
            str(of.slot),
            str(of.reports),
            f"{of.estimate:.1f} ± {of.standard_error:.1f}",
            f"{of.low:.1f}..{of.high:.1f}",
            f"{each.truth_truncated:.1f}",
            "" if of.low_raw is None else f"{of.low_raw:.1f}..{of.high_raw:.1f}",
            f"{each.truth_raw:.1f}",
        )
    console = Console(highlight=False)
    for note in [*simulated.notes, *(f"warning: {sentence}" for sentence in facts["warnings"])]:
        console.print(note)
    console.print(table)
    held, held_raw = (sum(flags) for flags in zip(*(each.covers() for each in slots), strict=True))
    ratio = f" (ratio {errors[0] / errors[1]:.2f})" if errors[1] else ""
    exact = facts["certificate"]
    theta = simulated.timeline.epochs[-1].campaign.thetas
    console.print(f"θ = {theta}" + ("" if exact is None else f"; certificate {exact[0]}/{exact[1]}"))
    kept, wider = _TRUTHS[simulated.kind]
    console.print(
        f"error of a slot: {errors[0]:.2f} {unit} measured, {errors[1]:.2f} {unit} predicted{ratio};"
        f" {held} of {len(slots)} intervals hold the {kept} truth{wider.format(held_raw)}"
    )
    level = math.fsum(each.estimate.estimate for each in slots) / len(slots)
    if errors[1] > abs(level) / 2:
        console.print("nothing is visible: the standard error is above half the signal; undertone plan says what would")
    console.print(facts["guarantee"])


class _Progress:
    """Progress on standard error: a bar on a terminal, a line every ten seconds elsewhere."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = Console(stderr=True, highlight=False)
        self._progress = Progress(
            TextColumn("simulating"),
            BarColumn(bar_width=30),
            TextColumn("{task.completed:,} reports"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("simulating", total=None)
        self._said = time.monotonic()

    def __enter__(self) -> "_Progress":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, done: int, planned: int) -> None:
        """Device-slots that are over, of those settled so far."""
        self._progress.update(self._task, completed=done, total=planned)
        if not self._console.is_terminal and time.monotonic() >= self._said + 10:
            self._said = time.monotonic()
            self._console.print(f"{done:,} of {planned:,} reports that are settled so far")

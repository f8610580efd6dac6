"""``undertone simulate``: a campaign over a population of any size, without a wire and in bounded memory."""

import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.config import CampaignPlan
    from undertone_simulator.readings import Source
    from undertone_simulator.simulated import Compared, Simulated

_MOST_ROWS = 48


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate")(simulate)


def simulate(
    devices: Annotated[int, typer.Option(help="how many devices")] = 20_000,
    slots: Annotated[int, typer.Option(help="report slots, after the threshold rounds")] = 48,
    epsilon: Annotated[
        str, typer.Option(help="privacy, 0.05 to 8: of one reading (event level), with --stream of a whole one")
    ] = "1",
    seed: Annotated[int, typer.Option(help="fixes everything: population, cohort, noise, drop-outs")] = 1,
    population: Annotated[
        str, typer.Option(help="synthetic: households, phones, time-in-state or heavy-tail")
    ] = "households",
    data: Annotated[Path | None, typer.Option(help="readings to replay instead: .npz, .csv or .parquet")] = None,
    unit: Annotated[str | None, typer.Option(help="unit of the readings where the file does not say")] = None,
    bound: Annotated[int | None, typer.Option(help="public upper bound of a reading, in whole units")] = None,
    campaign: Annotated[
        Path | None, typer.Option(help="an aggregator's configuration: its [campaign] instead of the options here")
    ] = None,
    rounds: Annotated[str, typer.Option(help="days of each threshold round")] = "1,1,1",
    mechanism: Annotated[str, typer.Option(help="auto, hybrid, piecewise or optimal")] = "auto",
    stream: Annotated[
        str | None, typer.Option(help="streams under one budget instead: gaussian, one-bit or direct")
    ] = None,
    delta: Annotated[float, typer.Option(help="δ of a whole stream")] = 1e-5,
    slew: Annotated[float, typer.Option(help="largest step of a stream between reports, a share of the range")] = 0.05,
    theta: Annotated[
        int | None, typer.Option(help="a stream's readings are truncated to it; the bound if absent")
    ] = None,
    cohort_share: Annotated[float, typer.Option(help="share of reports that keep the threshold fresh")] = 0.05,
    drop_out: Annotated[float, typer.Option(help="share of reports that never leave their device")] = 0.0,
    late: Annotated[float, typer.Option(help="share of devices that join late")] = 0.0,
    late_slots: Annotated[int, typer.Option(help="slots in which they join")] = 48,
    liars: Annotated[float, typer.Option(help="share of devices that always send the largest symbol")] = 0.0,
    chunk: Annotated[int, typer.Option(help="devices at a time; results do not depend on it")] = 1 << 16,
    workers: Annotated[int, typer.Option(help="processes; results do not depend on it")] = 1,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="a Dask scheduler whose workers take part")
    ] = None,
    store: Annotated[Path | None, typer.Option(help="write a store, as for undertone query")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Run a whole campaign on a simulated fleet, without a wire: the server's estimates beside the truth."""
    from undertone_aggregator.collect.partial import EVERYBODY
    from undertone_aggregator.config import StreamPlan, read_config
    from undertone_aggregator.options import parse
    from undertone_aggregator.server import read_groups
    from undertone_simulator.behaviour import Behaviour
    from undertone_simulator.loaders import load
    from undertone_simulator.memory import peak_megabytes
    from undertone_simulator.populations import population as synthetic
    from undertone_simulator.simulation import Simulation
    from undertone_simulator.spread import workers as crew

    source: Source
    notes: list[str] = []
    if data is not None:
        from undertone_simulator.bounds import public_bound

        source = load(data, unit, devices)
        notes += source.notes
        most, note = public_bound(source, bound)
        notes += [note] if note else []
    else:
        source = synthetic(population, seed)
        most = source.bound if bound is None else bound
    groups = None
    streams: StreamPlan | None = None
    if campaign is not None:
        config = read_config(campaign)
        plan, streams = config.campaign, config.stream
        groups = None if plan.groups is None else read_groups(config.path(plan.groups))
    else:
        plan = _plan(source, most, slots, epsilon, rounds, cohort_share, mechanism)
        if stream is not None:
            table = {"mechanism": stream, "delta": delta, "slew": slew, "theta": theta or most, "reports": slots}
            streams = parse(StreamPlan, "stream", table)
    started = time.perf_counter()
    with _Progress() as progress, crew(workers, dask) as hands:
        options: dict[str, Any] = {
            "behaviour": Behaviour(seed, drop_out, late, late_slots, liars),
            "groups": groups,
            "chunk": chunk,
            "progress": progress.show,
            "workers": hands,
        }
        found = Simulation(plan, source, devices, seed, stream=streams, **options).run()
    seconds = time.perf_counter() - started
    if store is not None:
        found.save(store)
    slots_found = found.compared()
    if not slots_found:
        raise Invalid("no slot has a report that its mean is made of: are there devices, and slots?")
    facts = {
        "reports": found.partial.reports,
        "seconds": seconds,
        "reports_per_second": found.partial.reports / seconds,
        "peak_megabytes": peak_megabytes(),
    }
    if as_json:
        of_groups = [_row(one) for one in found.compared(None) if one.estimate.group != EVERYBODY]
        whole = {
            **document(found, slots_found),
            **({"groups": of_groups} if of_groups else {}),
            **facts,
            "notes": notes,
        }
        print(json.dumps(whole, ensure_ascii=False))
        return
    _show(found, slots_found, notes)
    print(
        f"{facts['reports']} reports in {seconds:.1f} s ({facts['reports_per_second'] / 1e6:.2f} million/s),"
        f" at most {facts['peak_megabytes']:.0f} MB"
    )


def _plan(
    source: "Source", bound: int, slots: int, epsilon: str, rounds: str, cohort_share: float, mechanism: str
) -> "CampaignPlan":
    from undertone_aggregator.config import CampaignPlan
    from undertone_aggregator.options import parse

    per_day = source.per_day
    try:
        days = [float(text) for text in rounds.split(",")]
    except ValueError:
        days = []
    if not days or not all(0 < day <= 1000 for day in days):
        raise Invalid(f"rounds is {rounds!r}, expected days of each round such as 1,1,3")
    table = {
        "name": "simulation",
        "sensor": "load",
        "unit": source.unit or "units",
        "bound": bound,
        "slot_seconds": 86400 // per_day,
        "cycle": per_day,
        "epsilon": epsilon,
        "rounds": [max(1, round(day * per_day)) for day in days],
        "report_slots": slots,
        "epoch_slots": 7 * per_day,
        "cohort_share": cohort_share,
        "mechanism": mechanism,
    }
    return parse(CampaignPlan, "campaign", table)


def document(found: "Simulated", slots: "list[Compared]") -> dict[str, Any]:
    """Everything about the campaign and its slots, as one JSON object."""
    from undertone_aggregator.estimate.estimates import plain
    from undertone_aggregator.estimate.guarantee import campaign_guarantee, certificate

    newest = found.timeline.epochs[-1].campaign
    rule = newest.stream or newest.report
    exact = max(certificate(epoch.campaign) for epoch in found.timeline.epochs)
    delta = None if found.stream is None else found.stream.delta
    return dict(
        plain(
            {
                "theta": None if rule is None else rule.theta,
                "unit": found.plan.unit,
                "epsilon": float(found.plan.epsilon),
                "delta": delta,
                # Gaussian noise has none for a report by itself.
                "certificate": [exact.numerator, exact.denominator] if exact else None,
                "guarantee": campaign_guarantee(newest, found.plan.epsilon, delta),
                "warnings": warnings(found),
                "slots": [_row(one) for one in slots],
                "measured_error": _root_mean_square([one.error for one in slots]),
                "predicted_error": _root_mean_square([one.estimate.standard_error or 0.0 for one in slots]),
            }
        )
    )


def _row(one: "Compared") -> dict[str, Any]:
    return {**one.estimate.row(), "truth_truncated": one.truth_truncated, "truth_raw": one.truth_raw}


def warnings(found: "Simulated") -> list[str]:
    """What the threshold's choice warned of, in any epoch."""
    chosen = [epoch.threshold for epoch in found.timeline.epochs if epoch.threshold is not None]
    return list(dict.fromkeys(sentence for one in chosen for sentence in one.warnings))


def _root_mean_square(values: list[float]) -> float:
    return math.sqrt(math.fsum(value * value for value in values) / len(values))


def _show(found: "Simulated", slots: "list[Compared]", notes: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    facts = document(found, slots)
    unit, errors = facts["unit"], (facts["measured_error"], facts["predicted_error"])
    table = Table("slot", "n", "estimate", "95 % interval", "truth", "for raw", "raw", box=None, pad_edge=False)
    for column in table.columns:
        column.justify, column.no_wrap = "right", True
    for one in slots[:: -(-len(slots) // _MOST_ROWS)]:
        of = one.estimate
        table.add_row(
            str(of.slot),
            str(of.reports),
            f"{of.estimate:.1f} ± {of.standard_error:.1f}",
            f"{of.low:.1f}..{of.high:.1f}",
            f"{one.truth_truncated:.1f}",
            "" if of.low_raw is None else f"{of.low_raw:.1f}..{of.high_raw:.1f}",
            f"{one.truth_raw:.1f}",
        )
    console = Console(highlight=False)
    for note in [*notes, *(f"warning: {sentence}" for sentence in facts["warnings"])]:
        console.print(note)
    console.print(table)
    held, held_raw = (sum(flags) for flags in zip(*(one.covers() for one in slots), strict=True))
    ratio = f" (ratio {errors[0] / errors[1]:.2f})" if errors[1] else ""
    exact = facts["certificate"]
    console.print(f"θ = {facts['theta']} {unit}" + ("" if exact is None else f"; certificate {exact[0]}/{exact[1]}"))
    kept = "truncated" if found.stream is None else "clipped"
    wider = "" if found.stream is not None else f", {held_raw} wider ones the raw truth"
    console.print(
        f"error of a slot: {errors[0]:.2f} {unit} measured, {errors[1]:.2f} {unit} predicted{ratio};"
        f" {held} of {len(slots)} intervals hold the {kept} truth{wider}"
    )
    level = math.fsum(one.estimate.estimate for one in slots) / len(slots)
    if errors[1] > abs(level) / 2:
        console.print("nothing is visible: the standard error is above half the signal; undertone plan says what would")
    console.print(facts["guarantee"])


class _Progress:
    """A bar on standard error, where that is a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("simulating"),
            BarColumn(bar_width=30),
            TextColumn("{task.completed:,} reports"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("simulating", total=None)

    def __enter__(self) -> "_Progress":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, done: int, planned: int) -> None:
        """Move the bar: device-slots that are over, of those settled so far."""
        self._progress.update(self._task, completed=done, total=planned)

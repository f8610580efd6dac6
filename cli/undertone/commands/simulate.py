"""``undertone simulate``: a campaign over a population of any size, without a network and in bounded memory."""

import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertone.options import check_picture, with_options
from undertone.progress import Progress
from undertone_aggregator.base.plural import many
from undertone_shared.errors import Invalid
from undertone_simulator.fast.options import SimulateOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from undertone_simulator.fast.simulated import Compared, Simulated

_MOST_ROWS = 48


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("simulate")(simulate)


@with_options(SimulateOptions)
def simulate(
    options: SimulateOptions,
    store: Annotated[Path | None, typer.Option(help="Write a store to this file, which undertone query reads.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write a picture to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run a whole campaign on a simulated fleet, without a network. Print the server's estimates beside the truth."""
    from undertone_simulator.fast import simulate as engine

    check_picture(png)
    started = time.perf_counter()
    with Progress("device-slots", announce=options.plan is not None) as progress:
        simulated = engine.simulate(options, progress.show)
    seconds = time.perf_counter() - started
    if store is not None:
        simulated.save(store)
    _tell(simulated, seconds, png, as_json)


def _tell(simulated: "Simulated", seconds: float, png: Path | None, as_json: bool) -> None:
    from undertone_aggregator.base.plain import STEADY, plain
    from undertone_aggregator.counts.partial import EVERYBODY
    from undertone_simulator.wire.memory import peak_megabytes

    # Only JSON shows the groups. Their estimates take time, so without --json they are not computed.
    of_groups = simulated.compared(None if as_json else (EVERYBODY,))
    compared = [each for each in of_groups if each.estimate.group == EVERYBODY]
    if not compared:
        raise Invalid(
            "no slot has a report from which its mean can be computed, expected more devices, more slots or a smaller"
            " --drop-out"
        )
    if png is not None:
        from undertone_simulator.fast.picture import draw

        draw(simulated, png)
    reports = simulated.partial.reports
    # These numbers differ from run to run. They are kept apart from the results, which are the same for the same seed.
    run = {"seconds": seconds, "reports_per_second": reports / seconds, "peak_megabytes": peak_megabytes()}
    if as_json:
        groups = _rows([each for each in of_groups if each.estimate.group != EVERYBODY])
        results = {
            **document(simulated, compared),
            **({"groups": groups} if groups else {}),
            "reports": reports,
            "notes": simulated.notes,
        }
        print(json.dumps({**plain(results, STEADY), "run": run}, ensure_ascii=False))
        return
    _show(simulated, compared)
    print(
        f"{many(reports, 'report')} in {seconds:.1f} s ({run['reports_per_second'] / 1e6:.2f} million/s),"
        f" at most {run['peak_megabytes']:.0f} MB of memory"
    )


def document(simulated: "Simulated", slots: "list[Compared]") -> dict[str, Any]:
    """Return the campaign and its slots as one JSON object."""
    from undertone_aggregator.campaign.collection import guarantee_of

    newest = simulated.timeline.epochs[-1].campaign
    cost = guarantee_of(simulated.timeline, simulated.budget)
    exact = cost.certificate
    return {
        "theta": newest.theta,
        "ranges": [list(block) for block in newest.ranges],
        "unit": simulated.plan.unit,
        **ways(simulated),
        **cost.budget.as_json(),
        # Gaussian noise has no certificate for a single report.
        "certificate": [exact.numerator, exact.denominator] if exact else None,
        "guarantee": cost.sentence,
        "warnings": said(simulated, "warnings"),
        "notices": said(simulated, "notices"),
        "slots": _rows(slots),
        "measured_error": _root_mean_square([each.error for each in slots]),
        "predicted_error": _root_mean_square([each.estimate.standard_error or 0.0 for each in slots]),
    }


def ways(simulated: "Simulated") -> dict[str, Any]:
    """Return as_papers, the method and the query by which θ was chosen, and the mechanism.

    A stream campaign has a mechanism only.
    """
    from undertone_aggregator.design.mechanisms import traits_of

    plan, newest = simulated.plan, simulated.timeline.epochs[-1].campaign
    if simulated.stream is not None:
        return {"mechanism": simulated.stream.mechanism}
    mechanism = None if newest.report is None else traits_of(newest.report.mechanism).kind
    return {"as_papers": plan.as_papers, "method": plan.method, "query": plan.query, "mechanism": mechanism}


def _rows(compared: "Sequence[Compared]") -> list[dict[str, Any]]:
    from undertone_aggregator.estimate.estimates import Estimate

    columns = Estimate.table([each.estimate for each in compared])
    columns["truth_truncated"] = [each.truth_truncated for each in compared]
    columns["truth_raw"] = [each.truth_raw for each in compared]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def said(simulated: "Simulated", kind: str) -> list[str]:
    """Return the ``warnings`` or ``notices`` of the threshold's choice in all epochs."""
    chosen = [epoch.threshold for epoch in simulated.timeline.epochs if epoch.threshold is not None]
    return list(dict.fromkeys(sentence for threshold in chosen for sentence in getattr(threshold, kind)))


def _root_mean_square(values: list[float]) -> float:
    return math.sqrt(math.fsum(value * value for value in values) / len(values))


def _show(simulated: "Simulated", slots: "list[Compared]") -> None:
    from rich.console import Console
    from rich.table import Table

    from undertone_aggregator.estimate.estimates import Z

    facts = document(simulated, slots)
    unit, errors = facts["unit"], (facts["measured_error"], facts["predicted_error"])
    heads = ("slot", "n", "mean ± 95 %", "95 % interval", "truth", "min(x, θ) ± 95 %", "truth")
    table = Table(*heads, box=None, pad_edge=False)
    for column in table.columns:
        column.justify, column.no_wrap = "right", True
    for each in slots[:: -(-len(slots) // _MOST_ROWS)]:
        of = each.estimate
        table.add_row(
            str(of.slot),
            str(of.reports),
            f"{of.estimate:.1f} ± {Z * (of.standard_error or 0.0):.1f}",
            f"{of.low:.1f}..{of.high:.1f}",
            f"{each.truth_raw:.1f}",
            f"{of.truncated_mean:.1f} ± {Z * (of.truncated_se or 0.0):.1f}",
            f"{each.truth_truncated:.1f}",
        )
    console = Console(highlight=False, markup=False)
    for note in [*simulated.notes, *facts["notices"], *(f"warning: {sentence}" for sentence in facts["warnings"])]:
        console.print(note)
    console.print(table)
    held = sum(each.covers()[0] for each in slots)
    ratio = f" (ratio {errors[0] / errors[1]:.2f})" if errors[1] else ""
    exact = facts["certificate"]
    theta = simulated.timeline.epochs[-1].campaign.thetas
    console.print(f"threshold θ = {theta}" + ("" if exact is None else f"; certificate {exact[0]}/{exact[1]}"))
    console.print(
        f"error of a slot: {errors[0]:.2f} {unit} measured, {errors[1]:.2f} {unit} predicted{ratio};"
        f" {held} of {len(slots)} intervals hold the mean of the readings"
    )
    level = math.fsum(each.estimate.estimate for each in slots) / len(slots)
    if errors[1] > abs(level) / 2:
        console.print(
            "the noise hides the mean: a slot's standard error is more than half of the mean; more devices or a larger"
            " epsilon lower this error"
        )
    console.print(facts["guarantee"])

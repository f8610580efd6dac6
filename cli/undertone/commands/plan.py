"""``undertone plan``: what a campaign would give, before anybody deploys it."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertone.commands.plan_pages import show_reports, show_stream, show_window
from undertone.sentences import refuse_strangers, refuse_together
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.design.stream import StreamComparison
    from undertone_simulator.planning.predict import FleetPlan
    from undertone_simulator.planning.window_plan import WindowPlan


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("plan")(plan)


def plan(
    context: typer.Context,
    devices: Annotated[int, typer.Option(help="how many devices")] = 1000,
    epsilon: Annotated[str, typer.Option(help="privacy of one reading (event level), or of a whole stream")] = "1",
    collect: Annotated[str, typer.Option(help="reports, or stream: all of a device's under one budget")] = "reports",
    window: Annotated[
        str | None, typer.Option(help="such as 24h: every way of collecting with epsilon for any such window")
    ] = None,
    error: Annotated[
        str | None, typer.Option(help="wanted error of a slot's mean, in the unit or as in 5%: what would reach it")
    ] = None,
    population: Annotated[
        str, typer.Option(help="synthetic: households, phones, time-in-state, heavy-tail or temperature")
    ] = "households",
    data: Annotated[Path | None, typer.Option(help="readings to plan for instead: .npz, .csv or .parquet")] = None,
    unit: Annotated[str | None, typer.Option(help="unit of the readings where the file does not say")] = None,
    bound: Annotated[int | None, typer.Option(help="public upper bound of a reading, in whole units")] = None,
    mechanism: Annotated[str, typer.Option(help="of reports: auto, hybrid, piecewise or optimal")] = "auto",
    cohort_share: Annotated[float, typer.Option(help="share of reports that keep the threshold fresh")] = 0.05,
    days: Annotated[int, typer.Option(help="length of a campaign of reports")] = 365,
    slots: Annotated[int, typer.Option(help="reports of one stream, l")] = 48,
    delta: Annotated[float, typer.Option(help="of a whole stream (user level)")] = 1e-5,
    slew: Annotated[str, typer.Option(help="of a stream: C, the largest step, a share of the range")] = "0.05",
    query: Annotated[str, typer.Option(help="of a stream: slot, or range:M for sums over M slots")] = "slot",
    chains: Annotated[int, typer.Option(help="of one stream: 1, and 1 more for each reboot allowed")] = 1,
    movement: Annotated[
        float | None, typer.Option(help="of a stream: standard deviation of the mean's step; a quarter of the slew")
    ] = None,
    per_report: Annotated[
        bool, typer.Option("--per-report", help="of a stream: ε, δ of each report, as in the paper's Kaggle run")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """What a campaign would give, before anybody deploys it: errors, θ and mechanism, traffic, privacy.

    For reports one by one (event level), or for stream methods at equal privacy.
    """
    given = dict(locals())
    if collect not in _WAYS:
        raise Invalid(f"collect is {collect!r}, expected one of {', '.join(_WAYS)}")
    way, how = (_WINDOW, "with --window") if window is not None else (_WAYS[collect], f"with --collect {collect}")
    names = way.options.split()
    refuse_strangers(context, [*names, "as_json", *(["collect"] if window is None else [])], how)
    refuse_together(context, "population", "data")
    planned = way.plan(**{name: given[name] for name in names})
    if as_json:
        print(json.dumps(asdict(planned), ensure_ascii=False, default=float))
        return
    way.show(planned)


def _window(**given: Any) -> "WindowPlan":
    from undertone_simulator import doors

    return doors.plan_window(**given)


def _reports(**given: Any) -> "FleetPlan":
    from undertone_simulator import doors

    return doors.plan(**given)


def _stream(**given: Any) -> "StreamComparison":
    from undertone_aggregator.design.stream import plan_stream

    return plan_stream(**given)


@dataclass(frozen=True)
class _Way:
    """A way of collecting: its options, what plans with them, and what shows the plan."""

    options: str
    plan: Callable[..., Any]
    show: Callable[[Any], None]


_WINDOW = _Way("window devices epsilon population data unit bound delta", _window, show_window)
_WAYS = {
    "reports": _Way(
        "devices epsilon error population data unit bound mechanism cohort_share days", _reports, show_reports
    ),
    "stream": _Way("devices slots epsilon delta slew query chains movement per_report", _stream, show_stream),
}

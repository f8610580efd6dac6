"""Output of ``undertone plan`` for people."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from undertone_aggregator.design.stream import StreamComparison
    from undertone_simulator.planning.fleet_plan import FleetPlan
    from undertone_simulator.planning.window_plan import WindowPlan


def show(plan: "FleetPlan | StreamComparison | WindowPlan") -> None:
    """Print a plan of any kind."""
    from undertone_aggregator.design.stream import StreamComparison
    from undertone_simulator.planning.fleet_plan import FleetPlan

    if isinstance(plan, FleetPlan):
        _show_reports(plan)
    elif isinstance(plan, StreamComparison):
        _show_stream(plan)
    else:
        _show_window(plan)


def _show_reports(plan: "FleetPlan") -> None:
    """Print the errors by length of time, θ, what a wanted error needs, the traffic and the privacy cost."""
    from rich.console import Console
    from rich.table import Table

    from undertone_aggregator.design.budget import shown
    from undertone_aggregator.design.reach import WIDE_REACH

    devices, reports = _many(plan.devices, "device"), _many(plan.reports, "report")
    unit, console = plan.unit and f" {plan.unit}", Console(highlight=False, markup=False)
    table = Table("mean over", "noise", "truncated", "error", box=None, pad_edge=False)
    if not plan.far_from_zero:
        table.add_column("of the mean")
    for span in plan.spans:
        assert span.shown is not None
        share = () if plan.far_from_zero else (f"{span.shown / plan.mean:.1%}",)
        table.add_row(span.name, f"{span.standard_error:.3g}", f"{span.error:.3g}", f"{span.shown:.3g}{unit}", *share)
    for column in table.columns[1:]:
        column.justify = "right"
    console.print(
        f"{devices}, ε = {shown(plan.epsilon)} for each reading; the mean reading is"
        f" {plan.mean:.3g}{unit}, and a device makes {_many(plan.per_day, 'reading')} a day"
    )
    console.print(table)
    console.print(
        f"noise: the standard error from noise, with {reports} in a slot\n"
        f"truncated: the error of the mean of truncated readings, from noise and a bias of {plan.bias:.3g}{unit}\n"
        "error: the error of the mean"
        + (
            " that undertone query shows; as in the papers, no model adds anything to it, and no filter smooths it"
            if plan.as_papers
            else " that undertone query --filtered shows, from simulated campaigns; a model adds what truncation"
            " removed, and a filter smooths a slot's mean"
        )
    )
    side = "below" if plan.gain >= 0 else "above"
    gain = f", whose variance is {abs(plan.gain):.1%} {side} the Hybrid's" if plan.mechanism != "hybrid" else ""
    ends = f"range {plan.bottom} to {plan.theta}" if plan.bottom else f"threshold θ = {plan.theta}"
    console.print(f"best: {ends}{unit} with the mechanism {plan.mechanism}{gain}")
    if plan.reach is not None:
        cheaper = ""
        if plan.reach < WIDE_REACH:
            cheaper = f"; a reach of {WIDE_REACH} would lower the variance by {plan.reach_cost:.1%}"
        console.print(
            f"reach {plan.reach:g} (the largest decoded value of the table, as a multiple of the least that is"
            f" possible){cheaper}; one false report moves a slot's mean by at most {plan.one_lie:.3g}{unit}"
        )
    if plan.day is not None:
        blocks = plan.day.blocks
        least, most = (end(block.standard_error for block in blocks) for end in (min, max))
        first, *others = blocks
        thetas = ", ".join(f"{block.theta} from {_time_of(block.first, plan.per_day)}" for block in others)
        truncated = plan.spans[0].error
        console.print(
            "if the threshold rounds show that readings differ by time of day, each block of the day has its own θ:"
            f" {first.theta}{unit} from {_time_of(first.first, plan.per_day)} on, {thetas}. In a slot, noise is then"
            f" {least:.3g} to {most:.3g}{unit}. The error in the column 'truncated' is then {plan.day.error:.3g}{unit}"
            f" in a slot, instead of {truncated:.3g}{unit}"
        )
    for sentence in plan.warnings:
        console.print(sentence)
    if plan.wanted is not None:
        needed = "more than 10^9" if plan.devices_needed is None else f"{plan.devices_needed:,}"
        dear = "ε above 8" if plan.epsilon_needed is None else f"ε = {plan.epsilon_needed:g}"
        console.print(
            f"with the Hybrid mechanism, an error of {plan.wanted:.3g}{unit} in the column 'truncated', for one slot,"
            f" needs {needed} devices at ε = {shown(plan.epsilon)}, or {dear} with {devices}"
        )
    of = plan.traffic
    console.print(
        f"traffic of a device in a day: {_many(of.reports, 'report')} of 24 bytes; with MQTT and acknowledgements"
        f" {of.mqtt_bytes:,} bytes; with TLS and TCP/IP, too, {of.bytes:,} bytes in {of.packets} packets. A device that"
        f" stays connected all day also receives the campaign's message every hour ({of.campaign_bytes:,} bytes a"
        f" day), and exchanges pings ({of.ping_bytes:,} bytes a day)"
    )
    for sentence in plan.sentences:
        console.print(sentence)


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _time_of(slot: int, per_day: int) -> str:
    minutes = slot * 24 * 60 // per_day
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _show_stream(plan: "StreamComparison") -> None:
    """Print the methods side by side, and which one to use."""
    from rich.console import Console
    from rich.table import Table

    from undertone_aggregator.design.stream.plan import table

    shown = Table("method", "variance", "raw", "smoothed", "what it is")
    for row in table(plan):
        shown.add_row(*row)
    console = Console(highlight=False, markup=False)
    console.print(shown)
    what = "a slot's mean" if plan.query == "slot" else f"a sum over {plan.query.removeprefix('range:')} slots"
    console.print(
        "variance: a report's variance, as a multiple of that of the paper's method\n"
        f"raw, smoothed: root mean square error of {what} from noise, as a share of the range"
    )
    console.print("these errors leave out the bias from clipping, which depends on the data: see docs/cgm.md")
    console.print(
        f"smoothed: after a filter that expects the mean to move by {plan.movement:g} of the range per slot"
        " (standard deviation)"
    )
    for sentence in plan.guarantees:
        console.print(sentence)
    best = next(line for line in plan.lines if line.method == plan.recommended)
    share = "" if best.share is None else f" and stream.share = {best.share:g}"
    console.print(
        f"recommended: {plan.recommended}; a campaign runs it with stream.mechanism = {best.mechanism}{share}"
    )
    if plan.best != plan.recommended:
        console.print(f"the method {plan.best} has the least error, but no campaign can run it")


def _show_window(plan: "WindowPlan") -> None:
    """Print the ways of collecting side by side, with their errors and guarantees."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    table = Table("way", "reports a day", "θ", "noise", "bias", "error", "filtered", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for way in plan.ways:
        filtered = "" if way.filtered is None else plan.text(way.filtered)
        parts = (plan.text(way.noise), plan.text(way.bias), plan.text(way.raw), filtered)
        ends = f"{way.bottom} to {way.theta}" if way.bottom else str(way.theta)
        table.add_row(way.name, f"{way.reports_per_day:.3g}", ends, *parts)
    for column in table.columns[1:]:
        column.justify = "right"
    kind = "" if plan.far_from_zero else ", in shares of the mean"
    devices = _many(plan.devices, "device")
    console.print(f"{devices}; errors of a slot's mean{kind}")
    console.print(table)
    console.print(
        "error: the error of a slot's mean from noise and bias, without a filter\n"
        "filtered: the error of the mean that undertone query --filtered shows, from simulated campaigns; a filter"
        " smooths it over time, and a model adds what truncation removed; empty where no campaign is simulated"
    )
    for way in plan.ways:
        console.print(f"{way.name}: {way.guarantee}{'' if way.same else ' (another guarantee, for comparison)'}")
    for sentence in plan.sentences:
        console.print(sentence)

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

    unit, console = plan.unit and f" {plan.unit}", Console(highlight=False)
    table = Table("mean over", "noise", "truncated", "error", box=None, pad_edge=False)
    if not plan.far_from_zero:
        table.add_column("of the mean")
    for span in plan.spans:
        share = () if plan.far_from_zero else (f"{span.shown / plan.mean:.1%}",)
        table.add_row(span.name, f"{span.standard_error:.3g}", f"{span.error:.3g}", f"{span.shown:.3g}{unit}", *share)
    for column in table.columns[1:]:
        column.justify = "right"
    console.print(
        f"{plan.devices:,} devices, ε = {shown(plan.epsilon)} for each reading; mean reading {plan.mean:.3g}{unit},"
        f" {plan.per_day} readings a day"
    )
    console.print(table)
    console.print(
        f"noise: the standard error of a mean of {plan.reports:,} reports a slot; truncated: the error of the truncated"
        f" mean, from noise and a bias of {plan.bias:.3g}{unit}; error: that of the mean that undertone query shows, to"
        " which a model adds what truncation removed; only the mean of a slot is filtered"
    )
    gain = f", {plan.gain:.1%} less variance than the Hybrid" if plan.mechanism != "hybrid" else ""
    ends = f"range {plan.bottom} to {plan.theta}" if plan.bottom else f"θ = {plan.theta}"
    console.print(f"best: {ends}{unit}, mechanism {plan.mechanism}{gain}")
    if plan.reach is not None:
        cheaper = ""
        if plan.reach < WIDE_REACH:
            cheaper = f"with a reach of {WIDE_REACH} the variance would be {plan.reach_cost:.1%} lower; "
        console.print(
            f"reach {plan.reach:g}: {cheaper}one false report moves a slot's mean by at most {plan.one_lie:.3g}{unit}"
        )
    if plan.day is not None:
        blocks = plan.day.blocks
        least, most = (end(block.standard_error for block in blocks) for end in (min, max))
        thetas = ", ".join(f"{_time_of(block.first, plan.per_day)} {block.theta}" for block in blocks)
        console.print(
            f"if the rounds show that readings differ by time of day, each block of the day has its own θ:"
            f" {thetas}{unit}; noise {least:.3g} to {most:.3g}, error {plan.day.error:.3g}{unit} a slot;"
            f" the mean square error is {plan.day.ratio:.2f} times that with one θ"
        )
    for sentence in plan.warnings:
        console.print(sentence)
    if plan.wanted is not None:
        needed = "more than 10^9" if plan.devices_needed is None else f"{plan.devices_needed:,}"
        dear = "ε above 8" if plan.epsilon_needed is None else f"ε = {plan.epsilon_needed:g}"
        console.print(
            f"an error of {plan.wanted:.3g}{unit} for a slot in the column truncated needs {needed} devices at"
            f" ε = {shown(plan.epsilon)}, or {dear} with {plan.devices} devices (Hybrid)"
        )
    of = plan.traffic
    console.print(
        f"traffic of a device in a day: {of.reports} reports of 24 bytes, {of.mqtt_bytes:,} bytes of MQTT with"
        f" acknowledgements, {of.bytes:,} with TLS and TCP/IP in {of.packets} packets; a device that stays"
        f" connected all day also gets {of.campaign_bytes:,} bytes of hourly copies of the campaign, and"
        f" {of.ping_bytes:,} bytes of pings"
    )
    for sentence in plan.sentences:
        console.print(sentence)


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
    console = Console(highlight=False)
    console.print(shown)
    what = "a slot's mean" if plan.query == "slot" else f"a sum over {plan.query.removeprefix('range:')} slots"
    console.print(
        f"variance: divided by that of the paper's method; raw, smoothed: root mean square error of {what} from noise,"
        " in shares of the range"
    )
    console.print("clipping adds bias, which depends on the data: see docs/cgm.md")
    console.print(f"smoothed: the mean is assumed to move by {plan.movement:g} of the range per slot (1 sd)")
    for sentence in plan.guarantees:
        console.print(sentence)
    best = next(line for line in plan.lines if line.method == plan.recommended)
    share = "" if best.share is None else f" and stream.share = {best.share:g}"
    console.print(
        f"recommended: {plan.recommended}; a campaign runs it with stream.mechanism = {best.mechanism}{share}"
    )
    if plan.best != plan.recommended:
        console.print(f"least error of all: {plan.best}, which no campaign can run")


def _show_window(plan: "WindowPlan") -> None:
    """Print the ways of collecting side by side, their errors in shares of the mean."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table("way", "reports a day", "θ", "noise", "bias", "error", "filtered", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for way in plan.ways:
        parts = tuple(map(plan.text, (way.noise, way.bias, way.raw, way.filtered)))
        ends = f"{way.bottom} to {way.theta}" if way.bottom else str(way.theta)
        table.add_row(way.name, f"{way.reports_per_day:.3g}", ends, *parts)
    for column in table.columns[1:]:
        column.justify = "right"
    kind = "" if plan.far_from_zero else ", in shares of the mean"
    console.print(f"{plan.devices} devices; errors of a slot's mean{kind}, with a mechanism designed for the readings")
    console.print(table)
    console.print(
        "error: noise and bias of a slot's mean without a filter; filtered: the error of the mean that undertone query"
        " shows, to which a model adds what truncation removed"
    )
    for way in plan.ways:
        console.print(f"{way.name}: {way.guarantee}{'' if way.same else ' (another guarantee, for comparison)'}")
    for sentence in plan.sentences:
        console.print(sentence)

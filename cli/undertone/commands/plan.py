"""``undertone plan``: what a campaign would give, before anybody deploys it."""

import json
from dataclasses import asdict
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated

import typer

from undertone.commands.plan_fleet import fleet
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.design.stream import StreamPlan

_LARGEST_TEXT = 32


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(no_args_is_help=False)
    group.callback(invoke_without_command=True)(fleet)
    group.command("stream")(stream)
    app.add_typer(group, name="plan")


def stream(
    devices: Annotated[int, typer.Option(help="devices whose mean is asked for")],
    slots: Annotated[int, typer.Option(help="reports of one stream, l")],
    epsilon: Annotated[float, typer.Option(help="ε of the whole stream (user level)")],
    delta: Annotated[float, typer.Option(help="δ of the whole stream")],
    slew: Annotated[str, typer.Option(help="C, the largest step between reports as a share of the range, as in 0.05")],
    query: Annotated[str, typer.Option(help="slot, or range:M for sums over M slots")] = "slot",
    chains: Annotated[int, typer.Option(help="chains of one stream: 1, and 1 more for each reboot allowed")] = 1,
    movement: Annotated[
        float | None, typer.Option(help="assumed standard deviation of the mean's step per slot; a quarter of the slew")
    ] = None,
    per_report: Annotated[
        bool, typer.Option("--per-report", help="ε and δ are of each report by itself, as in the paper's Kaggle run")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Compare stream mechanisms at equal privacy: predicted error of the fleet's mean, raw and smoothed."""
    from undertone_aggregator.design.stream import plan_stream

    plan = plan_stream(
        devices=devices,
        slots=slots,
        epsilon=epsilon,
        delta=delta,
        slew=parse_share("slew", slew),
        query=query,
        chains=chains,
        movement=movement,
        per_report=per_report,
    )
    if as_json:
        print(json.dumps(asdict(plan), ensure_ascii=False))
        return
    _show(plan)


def parse_share(name: str, text: str) -> Fraction:
    """The exact fraction that ``text`` is written as: 0.05 is 1/20. Raises Invalid."""
    try:
        # As a double first: an exponent that is out of range never becomes a large integer.
        if len(text) <= _LARGEST_TEXT and ("/" in text or 1e-6 < float(text) < 1e6):
            return Fraction(text)
    except (ValueError, ZeroDivisionError):
        pass
    raise Invalid(f"{name} is {text!r}, expected a decimal number or a fraction such as 0.05 or 1/20")


def _show(plan: "StreamPlan") -> None:
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
        f"variance: over the paper's; raw, smoothed: root mean square error of {what} from noise, the range being 1"
    )
    console.print("clipping adds bias, which depends on the data: see docs/cgm.md")
    console.print(f"smoothed: the mean is assumed to move by {plan.movement:g} of the range per slot (1 sd)")
    for sentence in plan.guarantees:
        console.print(sentence)
    console.print(f"recommended: {plan.recommended} (a device can check it against its policy)")
    if plan.best != plan.recommended:
        console.print(f"least error of all: {plan.best}")

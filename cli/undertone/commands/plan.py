"""``undertone plan``: predicts the result of a campaign before anything is deployed."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from undertone.commands.plan_pages import show
from undertone.options import with_options
from undertone.progress import Progress
from undertone_simulator.planning.options import PlanOptions


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("plan")(plan)


@with_options(PlanOptions)
def plan(
    options: PlanOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Predict what a campaign would give before anybody deploys it: errors, θ and mechanism, traffic, privacy.

    Without --window, ε protects each reading (event level); with --collect stream, the command compares the stream
    methods at equal privacy. With --window, it compares all ways of collecting that spend ε in any time of this length.
    """
    from undertone_aggregator.base.plain import STEADY, plain
    from undertone_simulator.planning import plan as planner

    with Progress("campaigns") as progress:
        planned = planner.plan(options, progress=progress.show)
    if as_json:
        print(json.dumps(plain(asdict(planned), STEADY), ensure_ascii=False))
    else:
        show(planned)

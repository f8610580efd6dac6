"""``undertone certify``: the proof of what one report costs, recomputed from a mechanism's integer weights."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from undertone_aggregator.design.certificate import Certificate

NAMES = "stochastic-rounding, piecewise, piecewise-optimal, hybrid, optimal, square-wave"
_MOST_LEVELS = 9


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("certify")(certify)


def certify(
    epsilon: Annotated[str, typer.Option(help="the cap on one reading's privacy loss, 0.05 to 8")],
    mechanism: Annotated[str | None, typer.Option(help=f"one of {NAMES}")] = None,
    table: Annotated[Path | None, typer.Option(help="a file with one mechanism as JSON, such as a table")] = None,
    campaign: Annotated[Path | None, typer.Option(help="a campaign's body, or the retained message")] = None,
    levels: Annotated[int, typer.Option(help="levels less one that a reading is rounded to")] = 256,
    bins: Annotated[int, typer.Option(help="bins of square-wave")] = 128,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Check a mechanism's privacy, bias and variance from its integer weights; exit code 1 if a check fails.

    Name a mechanism, or give a table or a campaign file that is held to the cap e^EPSILON.
    """
    from undertone import api
    from undertone_aggregator.design import audit

    try:
        certificates = api.certify(mechanism, epsilon=epsilon, table=table, campaign=campaign, levels=levels, bins=bins)
    except audit.NotCertified as failed:
        typer.echo(f"refused: {failed}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        shown = [certificate.as_json() for certificate in certificates]
        typer.echo(json.dumps(shown[0] if campaign is None else shown, indent=2))
        return
    for certificate in certificates:
        for line in lines(certificate):
            typer.echo(line)


def lines(certificate: "Certificate") -> list[str]:
    """The certificate in words and a small table."""
    from undertone_aggregator.design.certificate import REPORTS_PER_DAY

    ratio = certificate.ratio
    achieved = certificate.epsilon_achieved
    integers = ", ".join(f"{name} {value}" for name, value in certificate.summary().items() if name != "kind")
    mechanism = certificate.mechanism
    out = [
        f"mechanism    {certificate.name}: {integers}",
        f"size         {certificate.cells:,} cells, levels 0 to {mechanism.levels}, "
        f"each row of weights sums to {mechanism.row_total():,}",
        f"certificate  {ratio.numerator}/{ratio.denominator} <= e^{certificate.epsilon:g}, "
        f"so epsilon = {achieved:.9f} is achieved",
        f"guarantee    event level: one reading costs {achieved:.6g}; {REPORTS_PER_DAY} reports a day add up to "
        f"{REPORTS_PER_DAY * achieved:.6g} for the household (user level, per day)",
    ]
    if certificate.levels is None:
        return [
            *out,
            "moments      none: no unbiased decode; its reports feed an estimate of the distribution",
            "",
        ]
    baseline = certificate.baseline
    step = max(1, len(certificate.levels) // (_MOST_LEVELS - 1))
    out.append("moments      exact, by summation over the weights, readings in [-1, 1]; the closed forms agree")
    out.append(f"             {'level':>5} {'mean':>12} {'variance':>12}" + f" {baseline:>12} {'ratio':>9}")
    for level in certificate.levels[::step]:
        row = f"             {level.level:>5} {float(level.mean):>12.6f} {float(level.variance):>12.6f}"
        if certificate.formula is not None:
            continuous = certificate.formula(float(level.reading))
            row += f" {continuous:>12.6f} {float(level.variance) / continuous:>9.6f}"
        out.append(row)
    worst = f"             worst variance {certificate.variance_worst:.6f}"
    if certificate.variance_ratio_worst is not None:
        worst += f", worst ratio {certificate.variance_ratio_worst:.6f}"
    return [*out, worst, ""]

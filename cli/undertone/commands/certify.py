"""``undertone certify``: proof of a report's privacy loss, computed from a mechanism's integer weights."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertone.applies import refuse

if TYPE_CHECKING:
    from undertone_aggregator.design.published import Published

NAMES = "stochastic-rounding, hybrid, piecewise, piecewise-optimal, optimal, square-wave"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("certify")(certify)


def certify(
    context: typer.Context,
    epsilon: Annotated[
        str, typer.Option(help="The cap on the privacy loss of one report, or of a whole stream: 0.05 to 8.")
    ],
    mechanism: Annotated[str | None, typer.Option(help=f"Mechanism to certify: one of {NAMES}.")] = None,
    table: Annotated[Path | None, typer.Option(help="A JSON file with one mechanism.")] = None,
    message: Annotated[Path | None, typer.Option(help="A file with a campaign's body or its retained message.")] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            help="Probability δ of the guarantee of a stream campaign (default 1e-5), or of the published numbers"
            " (default 1e-6)."
        ),
    ] = None,
    signer: Annotated[
        str | None, typer.Option(help="The public key in hex that must have signed the retained message.")
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="Show what the published numbers alone reveal; needs --reports.")
    ] = False,
    reports: Annotated[
        int | None, typer.Option(help="With --published: the least number of reports behind a published number.")
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(help="With --published: how many published numbers of a day one household is in (default 48)."),
    ] = None,
    fakes: Annotated[
        float | None, typer.Option(help="With --published: share of the reports that may be fake (default 0).")
    ] = None,
    levels: Annotated[
        int | None,
        typer.Option(
            help="Number of steps between the levels that readings are rounded to (default 256; for optimal at most"
            " 24)."
        ),
    ] = None,
    bins: Annotated[int | None, typer.Option(help="Number of bins of square-wave (default 128).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a mechanism's privacy, bias and variance from its integer weights; exit code 1 if a check fails.

    Give --mechanism a name, or --table or --message a file. The command checks that one report changes odds by a
    factor of at most e^EPSILON; in a stream campaign, that all reports of a device in a window together keep
    (EPSILON, DELTA).
    With --published, it shows what the published numbers alone reveal over a slot, a day and a year.
    """
    from undertone import api
    from undertone_aggregator.design import audit
    from undertone_aggregator.design.certificate import described

    if not published:
        refuse(context, ["reports", "slots", "fakes"], "without --published")
    else:
        refuse(context, ["table", "message", "signer", "levels", "bins"], "with --published")
        guarantees = api.certify_published(
            mechanism or "hybrid",
            epsilon=epsilon,
            reports=reports,
            slots=48 if slots is None else slots,
            fakes=fakes or 0.0,
            delta=delta,
        )
        _show_published(guarantees, as_json)
        return
    try:
        certificates = api.certify(
            mechanism,
            epsilon=epsilon,
            table=table,
            message=message,
            delta=delta,
            signer=signer,
            levels=levels,
            bins=bins,
        )
    except audit.NotCertified as failed:
        typer.echo(f"refused: {failed}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        shown = [certificate.as_json() for certificate in certificates]
        typer.echo(json.dumps(shown[0] if message is None else shown, indent=2))
        return
    if message is not None:
        typer.echo(f"campaign     {described(message.read_bytes())}")
    for certificate in certificates:
        for line in certificate.lines():
            typer.echo(line)


def _show_published(guarantees: "dict[str, Published]", as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({span: each.as_json() for span, each in guarantees.items()}, indent=2))
        return
    for span, each in guarantees.items():
        typer.echo(f"{span:<12} {each.sentence(span)}")
    typer.echo(
        "the server   knows which device sent each report: from the server's operator, a reading is protected only by"
        " the ε of its own report"
    )

"""``undertone plan``: what a fleet would see and what it would cost, for readings perturbed one by one."""

import json
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_simulator.planning import FleetPlan, Known


def fleet(
    context: typer.Context,
    devices: Annotated[int, typer.Option(help="how many devices")] = 1000,
    epsilon: Annotated[str, typer.Option(help="privacy of one reading (event level), 0.05 to 8")] = "1",
    error: Annotated[
        str | None, typer.Option(help="wanted error of a slot's mean, in the unit or as in 5%: what would reach it")
    ] = None,
    population: Annotated[
        str, typer.Option(help="synthetic: households, phones, time-in-state or heavy-tail")
    ] = "households",
    data: Annotated[Path | None, typer.Option(help="readings to plan for instead: .npz, .csv or .parquet")] = None,
    unit: Annotated[str | None, typer.Option(help="unit of the readings where the file does not say")] = None,
    bound: Annotated[int | None, typer.Option(help="public upper bound of a reading, in whole units")] = None,
    mechanism: Annotated[str, typer.Option(help="auto, hybrid, piecewise or optimal")] = "auto",
    cohort_share: Annotated[float, typer.Option(help="share of reports that keep the threshold fresh")] = 0.05,
    days: Annotated[int, typer.Option(help="length of the campaign")] = 365,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """What a campaign would give, before anybody deploys it: errors, θ and mechanism, traffic, privacy.

    Without a command, for readings that are perturbed one by one (event level).
    """
    if context.invoked_subcommand is not None:
        return
    from undertone_simulator.planning import plan_fleet

    if not 0 <= cohort_share < 1:
        raise Invalid(f"cohort_share is {cohort_share!r}, expected a share from 0, below 1")
    if not 1 <= days <= 100 * 366:
        raise Invalid(f"days is {days}, expected 1 to {100 * 366}")
    known = _known(population, data, unit, bound)
    plan = plan_fleet(
        known,
        devices,
        epsilon,
        kind=mechanism,
        cohort_share=cohort_share,
        wanted=None if error is None else _wanted(error, known.mean),
        slots=days * known.per_day,
    )
    if as_json:
        print(json.dumps(asdict(plan), ensure_ascii=False))
        return
    _show(plan)


def _known(population: str, data: Path | None, unit: str | None, bound: int | None) -> "Known":
    from undertone_simulator.bounds import public_bound
    from undertone_simulator.loaders import load
    from undertone_simulator.planning import SAMPLE_DAYS, Known
    from undertone_simulator.populations import population as synthetic

    if data is None:
        source = synthetic(population, 1)
        return Known.of(source, source.bound if bound is None else bound)
    readings = load(data, unit)
    most, _ = public_bound(readings, bound)
    days = max(1, min(SAMPLE_DAYS, readings.slots // readings.per_day))
    return Known.of(readings, most, readings.households, days)


def _wanted(error: str, mean: float) -> float:
    try:
        share = error.endswith("%")
        value = float(Fraction(error.rstrip("%")))
    except (ValueError, ZeroDivisionError):
        value, share = 0.0, False
    if not value > 0:
        raise Invalid(f"error is {error!r}, expected a positive number or percentage")
    return mean * value / 100 if share else value


def _show(plan: "FleetPlan") -> None:
    from rich.console import Console
    from rich.table import Table

    unit, console = plan.unit, Console(highlight=False)
    table = Table("mean over", "noise ±", "error ±", "of the mean", box=None, pad_edge=False)
    for span in plan.spans:
        table.add_row(
            span.name, f"{span.standard_error:.3g}", f"{span.error:.3g} {unit}", f"{span.error / plan.mean:.1%}"
        )
    for column in table.columns[1:]:
        column.justify = "right"
    console.print(
        f"{plan.devices} devices, ε = {plan.epsilon:g} per reading; mean reading {plan.mean:.3g} {unit},"
        f" {plan.per_day} a day"
    )
    console.print(table)
    console.print(
        f"noise: standard error over {plan.reports} reports a slot; error: with the bias of {plan.bias:.3g} {unit} that"
        " truncation leaves, which the wider interval models"
    )
    gain = f", {plan.gain:.1%} less variance than the Hybrid" if plan.mechanism != "hybrid" else ""
    console.print(f"best: θ = {plan.theta} {unit}, mechanism {plan.mechanism}{gain}")
    for sentence in plan.warnings:
        console.print(sentence)
    if plan.wanted is not None:
        needed = "more than 10^9" if plan.devices_needed is None else f"{plan.devices_needed:,}"
        dear = "above 8" if plan.epsilon_needed is None else f"{plan.epsilon_needed:g}"
        console.print(
            f"for an error of {plan.wanted:.3g} {unit} a slot: {needed} devices at ε = {plan.epsilon:g},"
            f" or ε = {dear} with {plan.devices} devices (Hybrid)"
        )
    of = plan.traffic
    console.print(
        f"a device and day: {of.reports} reports of 16 bytes, {of.mqtt_bytes:,} bytes of MQTT with acknowledgements,"
        f" {of.bytes:,} with TLS and TCP/IP in {of.packets} packets; while connected,"
        f" {of.campaign_bytes:,} bytes of hourly campaign copies"
    )
    for sentence in plan.sentences:
        console.print(sentence)

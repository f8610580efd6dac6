"""The plan of a configured campaign: what `undertone plan` predicts for its options."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from undertone_aggregator.base.plural import many
from undertone_aggregator.settings.config import Config
from undertone_shared.errors import Invalid
from undertone_simulator.planning.fleet_plan import FleetPlan
from undertone_simulator.planning.options import PlanOptions
from undertone_simulator.planning.plan import Plan, Progress, plan, silent
from undertone_simulator.planning.window_plan import WindowPlan
from undertone_simulator.readings.chosen import open_source

_DAY = 86400


def plan_campaign(
    config: Config,
    devices: int,
    *,
    population: str | None = None,
    data: Path | None = None,
    progress: Progress = silent,
) -> Plan:
    """Return the plan of a campaign with ``devices`` devices, for readings like those of a population or a file.

    The times in the plan are numbers of the readings' slots. If the campaign's slots have another length, `in_slots`
    says how to read them. Raises Invalid for readings of another unit, a binary sensor or an offset if reports are
    collected, and for readings that are given for a stream. ``progress``: as for `plan`.
    """
    readings = {"population": population, "data": data}
    return plan(_OPTIONS[config.kind](config, devices, readings), config.campaign.rounds, progress)


def in_slots(config: Config, planned: Plan) -> str:
    """Return a sentence about how to read the plan if the campaign's slots differ from the readings' slots, else ""."""
    if not isinstance(planned, FleetPlan | WindowPlan) or planned.per_day * config.campaign.slot_seconds == _DAY:
        return ""
    slots = many(planned.per_day, "slot")
    return (
        f"the campaign's slots last {config.campaign.slot_seconds} s, but the prediction's readings have"
        f" {slots} a day: below, a day means {slots}"
    )


def _report_options(config: Config, devices: int, readings: dict[str, Any]) -> PlanOptions:
    campaign = config.campaign
    source = open_source(PlanOptions(bound=campaign.bound, **readings), 1, 1).source
    if source.unit != campaign.unit:
        raise Invalid(
            f"the readings are in {source.unit or 'no unit'}, but the campaign is in {campaign.unit}: choose"
            f" readings in {campaign.unit} with --data or --population"
        )
    if campaign.bound == 1 or campaign.offset:
        raise Invalid(
            "there is no prediction for a binary sensor or an offset, expected a bound of 2 or more, and offset 0"
        )
    if campaign.window is not None:
        own: dict[str, Any] = {"window": f"{-(-campaign.window // campaign.slot_seconds) * _DAY // source.per_day}s"}
    else:
        own = {
            "as_papers": campaign.as_papers,
            "query": campaign.query,
            "mechanism": campaign.mechanism,
            "reach": campaign.reach,
            "cohort_share": campaign.cohort_share,
            "days": max(campaign.report_slots // source.per_day, 1),
        }
    return PlanOptions(devices=devices, epsilon=campaign.epsilon, bound=campaign.bound, **readings, **own)


def _stream_options(config: Config, devices: int, readings: dict[str, Any]) -> PlanOptions:
    given = [name for name, value in readings.items() if value is not None]
    stream = config.stream
    if given or not stream:
        raise Invalid(f"{', '.join(given)} cannot be given for a stream, whose prediction needs no readings")
    return PlanOptions(
        devices=devices,
        epsilon=config.campaign.epsilon,
        collect="stream",
        slots=stream.reports,
        delta=stream.delta,
        slew=str(stream.slew),
        chains=stream.chains,
    )


# Kind of the campaign's rule -> function that returns the options of its plan.
_OPTIONS: dict[str, Callable[[Config, int, dict[str, Any]], PlanOptions]] = {
    "scalar": _report_options,
    "stream": _stream_options,
}

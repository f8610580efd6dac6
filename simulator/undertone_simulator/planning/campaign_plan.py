"""The plan of a configured campaign: what `undertone plan` predicts for its options."""

from pathlib import Path
from typing import Any

from undertone_aggregator.settings.config import Config
from undertone_shared.errors import Invalid
from undertone_simulator.planning.options import PlanOptions
from undertone_simulator.planning.plan import Plan, plan
from undertone_simulator.readings.chosen import open_source

_DAY = 86400


def plan_campaign(
    config: Config, devices: int, *, population: str | None = None, data: Path | None = None, unit: str | None = None
) -> Plan:
    """Return the plan of a campaign with so many devices, for readings like those of a population or a file.

    ``unit``: that of the file's readings. Raises Invalid for readings that are not like the campaign's: of another
    unit, or of slots of another length.
    """
    campaign, stream = config.campaign, config.stream
    if campaign.bound == 1 or campaign.offset:
        raise Invalid("there is no prediction for a binary sensor or an offset, expected a bound from 2 and offset 0")
    readings: dict[str, Any] = {"population": population, "data": data, "unit": unit}
    fields: dict[str, Any] = {"devices": devices, "epsilon": campaign.epsilon}
    if stream is not None:
        given = [name for name, value in readings.items() if value is not None]
        if given:
            raise Invalid(f"{', '.join(given)}: not an option of a stream, whose prediction needs no readings")
        fields |= {"slots": stream.reports, "delta": stream.delta, "slew": str(stream.slew), "chains": stream.chains}
        return plan(PlanOptions(collect="stream", **fields))
    fields |= {"bound": campaign.bound, **readings}
    if campaign.window is None:
        fields |= {"mechanism": campaign.mechanism, "cohort_share": campaign.cohort_share}
        fields |= {"days": max(campaign.report_slots * campaign.slot_seconds // _DAY, 1)}
    else:
        fields |= {"window": f"{campaign.window}s"}
    options = PlanOptions(**fields)
    source = open_source(options, 1, 1).source
    if source.unit != campaign.unit or source.per_day * campaign.slot_seconds != _DAY:
        raise Invalid(
            f"the readings are {source.per_day} a day in {source.unit}, but the campaign takes"
            f" {_DAY / campaign.slot_seconds:g} in {campaign.unit}: name readings like them with --data or --population"
        )
    return plan(options, campaign.rounds)

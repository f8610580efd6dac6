"""Planning from options: predicts the result of a campaign."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from undertone_aggregator.base.durations import seconds_of
from undertone_aggregator.design.stream import StreamComparison, plan_stream
from undertone_aggregator.settings import plan_checks as check
from undertone_aggregator.settings.config import TABLES, CampaignPlan
from undertone_aggregator.settings.options import ROUNDS, parse
from undertone_shared.errors import Invalid
from undertone_simulator.planning.fleet_plan import FleetPlan, plan_fleet
from undertone_simulator.planning.known import SAMPLE_DAYS, SAMPLE_DEVICES, KnownPopulation
from undertone_simulator.planning.options import (
    CHAINS,
    COHORT_SHARE,
    DAYS,
    DELTA,
    QUERY,
    SLEW,
    STREAM_SLOTS,
    PlanOptions,
)
from undertone_simulator.planning.window_plan import WindowPlan, plan_window
from undertone_simulator.readings.begin import cycle_of
from undertone_simulator.readings.chosen import open_source
from undertone_simulator.readings.day_slots import DAYS as WINDOW_DAYS
from undertone_simulator.readings.day_slots import DEVICES

Plan = FleetPlan | StreamComparison | WindowPlan

_SEED = 1


def plan(options: PlanOptions, rounds: Sequence[int] | None = None) -> Plan:
    """Return what the planner of these options predicts. Raises Invalid, or OSError for a file of readings.

    ``rounds``: for a campaign that collects reports in every slot, the slots of each threshold round; None for the
    default.
    """
    return _reports(options, rounds) if options.planner == "reports" else _PLANNERS[options.planner](options)


def _reports(options: PlanOptions, rounds: Sequence[int] | None) -> FleetPlan:
    kind, reach = options.mechanism or ("hybrid" if options.as_papers else "auto"), options.reach
    if reach is not None:
        reach = check.reach("reach", reach)
        if kind not in TABLES:
            raise Invalid(
                f"reach is {reach:g}, but mechanism is {kind!r}, which is no table: expected one of {', '.join(TABLES)}"
            )
    population, notes = _known(options)
    ways = _ways(options, population, rounds)
    planned = plan_fleet(
        population,
        options.devices,
        options.epsilon,
        kind=kind,
        reach=reach,
        query=ways.query,
        as_papers=ways.as_papers,
        cohort_share=ways.cohort_share,
        wanted=None if options.error is None else _wanted(options.error, population),
        slots=(options.days or DAYS) * population.per_day,
        rounds=ways.rounds,
    )
    return replace(planned, warnings=(*notes, *planned.warnings))


def _ways(options: PlanOptions, population: KnownPopulation, rounds: Sequence[int] | None) -> CampaignPlan:
    """Return the campaign's plan with these options. Raises Invalid for options that contradict each other."""
    cycle = cycle_of(population.source)
    table: dict[str, Any] = {
        "name": "plan",
        "sensor": "load",
        "unit": population.unit or "units",
        "bound": population.bound,
        "cycle": cycle,
        "epsilon": options.epsilon,
        "as_papers": options.as_papers,
    }
    if not options.as_papers:
        table |= {"cohort_share": COHORT_SHARE, "rounds": [cycle] * len(ROUNDS)}
    if rounds is not None:
        table["rounds"] = rounds
    given = options.given(["mechanism", "query", "cohort_share"])
    return parse(CampaignPlan, "campaign", table | {name: getattr(options, name) for name in given})


def _stream(options: PlanOptions) -> StreamComparison:
    return plan_stream(
        devices=options.devices,
        slots=STREAM_SLOTS if options.slots is None else options.slots,
        epsilon=options.epsilon,
        delta=DELTA if options.delta is None else options.delta,
        slew=SLEW if options.slew is None else options.slew,
        query=QUERY if options.query is None else options.query,
        chains=CHAINS if options.chains is None else options.chains,
        movement=options.movement,
        per_report=options.per_report,
    )


def _window(options: PlanOptions) -> WindowPlan:
    assert options.window is not None
    seconds = seconds_of("window", options.window)
    readings = open_source(options, DEVICES, _SEED)
    days = WINDOW_DAYS if readings.days is None else min(WINDOW_DAYS, readings.days)
    delta = DELTA if options.delta is None else options.delta
    planned = plan_window(
        readings.source, readings.bound, options.devices, options.epsilon, seconds, delta=delta, days=days
    )
    return replace(planned, sentences=(*planned.sentences, *readings.notes))


_PLANNERS: dict[str, Callable[[PlanOptions], Plan]] = {"stream": _stream, "window": _window}


def _known(options: PlanOptions) -> tuple[KnownPopulation, list[str]]:
    """Return the population, and sentences about its readings."""
    readings = open_source(options, 1, _SEED)
    devices = SAMPLE_DEVICES if readings.households is None else readings.households
    days = SAMPLE_DAYS if readings.days is None else max(1, min(SAMPLE_DAYS, readings.days))
    return KnownPopulation.of(readings.source, readings.bound, devices, days, readings.days), readings.notes


def _wanted(error: float | str, population: KnownPopulation) -> float:
    """Return the wanted error in the unit of the readings, from a number or a text such as "5%". Raises Invalid."""
    try:
        share = isinstance(error, str) and error.endswith("%")
        value = float(Fraction(error.rstrip("%") if isinstance(error, str) else error))
    except (ValueError, ZeroDivisionError):
        value, share = 0.0, False
    if not value > 0:
        raise Invalid(f"error is {error!r}, expected a positive number or percentage")
    if share and population.far_from_zero:
        raise Invalid(f"error is {error!r}, expected a number of {population.unit}: these readings are far from zero")
    return population.mean * value / 100 if share else value

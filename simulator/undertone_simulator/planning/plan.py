"""Planning from options: predicts the result of a campaign."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

from undertone_aggregator.base.durations import seconds_of
from undertone_aggregator.design.stream import StreamComparison, plan_stream
from undertone_aggregator.settings import plan_checks as check
from undertone_aggregator.settings.config import TABLES, CampaignPlan
from undertone_aggregator.settings.options import ROUNDS, parse
from undertone_shared.errors import Invalid
from undertone_simulator.fast.options import SimulateOptions
from undertone_simulator.planning.fleet_plan import FleetPlan, plan_fleet
from undertone_simulator.planning.headline import DAYS, Headline
from undertone_simulator.planning.known import SAMPLE_DAYS, SAMPLE_DEVICES, KnownPopulation
from undertone_simulator.planning.options import (
    CAMPAIGNS,
    CHAINS,
    COHORT_SHARE,
    DELTA,
    QUERY,
    SLEW,
    STREAM_SLOTS,
    YEAR,
    PlanOptions,
)
from undertone_simulator.planning.window_plan import WindowPlan, plan_window, with_filtered
from undertone_simulator.readings.begin import cycle_of
from undertone_simulator.readings.chosen import open_source
from undertone_simulator.readings.day_slots import DAYS as WINDOW_DAYS
from undertone_simulator.readings.day_slots import DEVICES
from undertone_simulator.readings.options import FleetOptions

Plan = FleetPlan | StreamComparison | WindowPlan

# Function that is called with numbers of simulated campaigns: (done, planned).
Progress = Callable[[int, int], None]

_SEED = 1


def silent(done: int, planned: int) -> None:
    """Ignore the progress."""


def plan(options: PlanOptions, rounds: Sequence[int] | None = None, progress: Progress = silent) -> Plan:
    """Return what the planner of these options predicts. Raises Invalid, or OSError for a file of readings.

    ``rounds``: for a campaign that collects reports in every slot, the slots of each threshold round; None for the
    default. ``progress(done, planned)`` gets numbers of simulated campaigns.
    """
    planners: dict[str, Callable[[], Plan]] = {
        "reports": lambda: _reports(options, rounds, progress),
        "stream": lambda: _stream(options),
        "window": lambda: _window(options, progress),
    }
    return planners[options.planner]()


def _reports(options: PlanOptions, rounds: Sequence[int] | None, progress: Progress) -> FleetPlan:
    kind, reach = options.mechanism or ("hybrid" if options.as_papers else "auto"), options.reach
    if reach is not None:
        reach = check.reach("reach", reach)
        if kind not in TABLES:
            raise Invalid(
                f"reach is {reach:g}, but mechanism is {kind!r}, which is no table:"
                f" expected mechanism {' or '.join(TABLES)}, or no reach"
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
        slots=(options.days or YEAR) * population.per_day,
        rounds=ways.rounds,
    )
    planned = replace(planned, warnings=(*notes, *planned.warnings))
    return planned if options.as_papers else _with_shown(planned, options, ways, progress)


def _with_shown(planned: FleetPlan, options: PlanOptions, ways: CampaignPlan, progress: Progress) -> FleetPlan:
    """Return the plan with the errors of the numbers that people read."""
    campaigns = _campaigns(options)
    given = options.given(["mechanism", "reach", "query", "cohort_share"])
    simulated = SimulateOptions(
        **_readings(options),
        rounds=tuple(slots / planned.per_day for slots in ways.rounds),
        **{name: getattr(options, name) for name in given},
    )
    headline = Headline(simulated, campaigns, options.workers or 1, lambda done: progress(done, campaigns))
    # Two days at least, because a campaign that begins at any time of day then has a whole day.
    days = DAYS if options.days is None else max(2, min(DAYS, options.days))
    errors = headline.errors([span.slots for span in planned.spans], days=days)
    spans = [replace(span, shown=error) for span, error in zip(planned.spans, errors, strict=True)]
    return replace(planned, spans=tuple(spans))


def _campaigns(options: PlanOptions) -> int:
    return CAMPAIGNS if options.campaigns is None else options.campaigns


def _readings(options: PlanOptions) -> dict[str, Any]:
    """Return the options that a plan shares with the campaigns that it simulates."""
    return {field.name: getattr(options, field.name) for field in fields(FleetOptions) if field.name != "collect"}


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


def _window(options: PlanOptions, progress: Progress) -> WindowPlan:
    assert options.window is not None
    seconds = seconds_of("window", options.window)
    readings = open_source(options, DEVICES, _SEED)
    days = WINDOW_DAYS if readings.days is None else min(WINDOW_DAYS, readings.days)
    delta = DELTA if options.delta is None else options.delta
    planned = plan_window(
        readings.source, readings.bound, options.devices, options.epsilon, seconds, delta=delta, days=days
    )
    planned = with_filtered(
        planned, SimulateOptions(**_readings(options)), _campaigns(options), options.workers or 1, progress
    )
    return replace(planned, sentences=(*planned.sentences, *readings.notes))


def _known(options: PlanOptions) -> tuple[KnownPopulation, list[str]]:
    """Return the population, and sentences about its readings."""
    readings = open_source(options, 1, _SEED)
    devices = SAMPLE_DEVICES if readings.households is None else readings.households
    days = SAMPLE_DAYS if readings.days is None else max(1, min(SAMPLE_DAYS, readings.days))
    return KnownPopulation.of(readings.source, readings.bound, devices, days), readings.notes


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
        raise Invalid(
            f"error is {error!r}, expected a number in {population.unit or 'the unit of the readings'}, not a share:"
            " these readings are far from zero"
        )
    return population.mean * value / 100 if share else value

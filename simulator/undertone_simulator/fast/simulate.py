"""Simulation of a whole campaign on a simulated fleet, from its options."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from undertone_aggregator.server.folder import CAMPAIGNS, SERVER, Home
from undertone_aggregator.settings.config import CampaignPlan, Config, StreamPlan, read_config
from undertone_aggregator.settings.groups import read_groups
from undertone_aggregator.settings.options import ROUNDS, parse
from undertone_aggregator.settings.papers import papers_sentence
from undertone_shared.errors import Invalid
from undertone_simulator.fast.options import LATE_SLOTS, SLOTS, SimulateOptions
from undertone_simulator.fast.parallel import workers
from undertone_simulator.fast.simulated import Simulated
from undertone_simulator.fast.simulation import Simulation
from undertone_simulator.readings.begin import begin, cycle_of
from undertone_simulator.readings.behaviour import Behaviour
from undertone_simulator.readings.chosen import ChosenReadings, open_source


def simulate(options: SimulateOptions, progress: Callable[[int, int], None] = lambda done, planned: None) -> Simulated:
    """Return the server's estimates of a simulated campaign, and the truth that only a simulation knows.

    ``progress(done, planned)`` gets numbers of device-slots. Raises Invalid, or OSError for a file.
    """
    return simulate_readings(options, open_source(options, options.devices, options.seed), progress)


def simulate_readings(
    options: SimulateOptions,
    readings: ChosenReadings,
    progress: Callable[[int, int], None] = lambda done, planned: None,
    groups: Mapping[str, str] | None = None,
    crowd: int | None = None,
) -> Simulated:
    """Simulate as `simulate` does, with these ``readings`` in place of those that the options name.

    ``groups``: device -> group, for a campaign whose groups are not in a file. ``crowd``: as for `Simulation`.
    """
    plan, stream, named = _configured(options) if options.plan is not None else _planned(options, readings)
    late_slots = LATE_SLOTS if options.late_slots is None else options.late_slots
    with workers(options.workers) as pool:
        simulated = Simulation(
            plan,
            readings.source,
            options.devices,
            options.seed,
            stream=stream,
            behaviour=Behaviour(options.seed, options.drop_out, options.late, late_slots, options.liars),
            groups=named or groups,
            chunk=options.chunk,
            workers=pool,
            crowd=crowd,
            progress=progress,
        ).run()
    simulated.notes += [*readings.notes, *filter(None, [papers_sentence(plan)])]
    return simulated


# Type of a triple: a campaign's plan, its stream or None, and each device's group or None.
_Campaign = tuple[CampaignPlan, StreamPlan | None, dict[str, str] | None]


def _configured(options: SimulateOptions) -> _Campaign:
    """Return the campaign of a campaign's file."""
    assert options.plan is not None
    config = _config_in(Path(options.plan).absolute())
    plan = config.campaign
    if options.slots is not None:
        plan = replace(plan, report_slots=options.slots)
    return plan, config.stream, None if plan.groups is None else dict(read_groups(config.path(plan.groups)))


def _config_in(file: Path) -> Config:
    """Return the configuration in a file; names in the file of a server's campaign are relative to server.toml."""
    home = file.parent.parent
    if file.parent.name == CAMPAIGNS and (home / SERVER).is_file():
        return Home(home).config(file.stem)
    return read_config(file)


def _planned(options: SimulateOptions, readings: ChosenReadings) -> _Campaign:
    """Return the campaign that the options describe."""
    source, bound = readings.source, readings.bound
    per_day, cycle = source.per_day, cycle_of(source)
    seconds = 86400 // per_day
    slots = SLOTS if options.slots is None else options.slots
    table: dict[str, Any] = {
        "name": "simulation",
        "sensor": "load",
        "unit": source.unit or "units",
        "bound": bound,
        "slot_seconds": seconds,
        "cycle": cycle,
        "epsilon": "1" if options.epsilon is None else options.epsilon,
        "report_slots": slots,
        "start": -(-begin(source) // seconds) * seconds,
    }
    if options.collect == "stream":
        fields = {"theta": bound, "reports": slots}
        names = options.given(["mechanism", "delta", "slew", "theta", "dimension"])
        fields |= {name: getattr(options, name) for name in names}
        return _parsed(table | {"collect": "stream"}), parse(StreamPlan, "stream", fields), None
    table["epoch_slots"] = 7 * cycle
    if options.as_papers:
        table["as_papers"] = True
    if options.rounds is not None or not options.as_papers:
        days = [cycle / per_day] * len(ROUNDS) if options.rounds is None else _days(options.rounds)
        table["rounds"] = [max(1, round(day * per_day)) for day in days]
    names = options.given(["method", "query", "cohort_share", "mechanism", "reach", "blocks", "window"])
    return _parsed(table | {name: getattr(options, name) for name in names}), None, None


def _parsed(table: dict[str, Any]) -> CampaignPlan:
    return parse(CampaignPlan, "campaign", table)


def _days(rounds: tuple[float, ...] | str) -> tuple[float, ...]:
    """Return the days of each threshold round, from numbers or a text such as "1,1,3". Raises Invalid."""
    try:
        days = tuple(float(text) for text in rounds.split(",")) if isinstance(rounds, str) else rounds
    except ValueError:
        days = ()
    if not days or not all(0 < day <= 1000 for day in days):
        raise Invalid(f"rounds is {rounds!r}, expected days of each round such as 1,1,3")
    return days

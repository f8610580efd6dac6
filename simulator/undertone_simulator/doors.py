"""What `undertone simulate` and `undertone plan` do, as functions: Python values in, results out."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from undertone_aggregator.settings.config import COLLECT, CampaignPlan, Config, StreamPlan, read_config
from undertone_aggregator.settings.groups import read_groups
from undertone_aggregator.settings.options import parse
from undertone_aggregator.settings.plan_checks import seconds_of
from undertone_shared.errors import Invalid
from undertone_simulator.fast.simulated import Simulated
from undertone_simulator.fast.simulation import CHUNK, Simulation
from undertone_simulator.fast.spread import workers as crew
from undertone_simulator.planning import window_plan
from undertone_simulator.planning.predict import SAMPLE_DAYS, FleetPlan, Known, plan_fleet
from undertone_simulator.readings.behaviour import Behaviour
from undertone_simulator.readings.bounds import check_bound, public_bound
from undertone_simulator.readings.day_slots import DAYS, DEVICES
from undertone_simulator.readings.loaders import load
from undertone_simulator.readings.populations import population as synthetic
from undertone_simulator.readings.readings import Readings, Source

SLOTS = 48
ROUNDS = (1.0, 1.0, 1.0)


def simulate(
    *,
    devices: int = 20_000,
    slots: int | None = None,
    epsilon: Fraction | float | str | None = None,
    seed: int = 1,
    population: str = "households",
    data: Path | str | None = None,
    unit: str | None = None,
    bound: int | None = None,
    campaign: Path | str | None = None,
    rounds: tuple[float, ...] | None = None,
    collect: str | None = None,
    mechanism: str | None = None,
    cohort_share: float | None = None,
    blocks: int | None = None,
    window: str | None = None,
    delta: float | None = None,
    slew: float | None = None,
    theta: int | None = None,
    dimension: int | None = None,
    drop_out: float = 0.0,
    late: float = 0.0,
    late_slots: int = 48,
    liars: float = 0.0,
    chunk: int = CHUNK,
    workers: int = 1,
    dask: str | None = None,
    progress: Callable[[int, int], None] = lambda done, planned: None,
) -> Simulated:
    """A whole campaign on a simulated fleet: the server's estimates, and the truth that only a simulation knows.

    Readings come from a synthetic ``population`` or from the file ``data``; the campaign from the options, whose
    defaults are ε = 1, 48 report slots, three threshold rounds of a day each (``rounds`` in days) and a cohort of 5 %,
    or from an aggregator's configuration file ``campaign``, of which ``slots`` replaces report_slots alone.
    ``collect``: reports or stream. ``blocks``: at most so many of the day have a θ of their own.
    ``window``: as "24h", ε is then of all readings in any window of this length, and
    devices report in turns. ``progress(done, planned)``: in device-slots. Raises Invalid, or OSError.
    """
    source, most, notes = _source(population, data, unit, bound, devices, seed)
    chosen = {
        "epsilon": epsilon,
        "rounds": rounds,
        "collect": collect,
        "mechanism": mechanism,
        "cohort_share": cohort_share,
        "blocks": blocks,
        "window": window,
        "delta": delta,
        "slew": slew,
        "theta": theta,
        "dimension": dimension,
    }
    given = {name: value for name, value in chosen.items() if value is not None}
    groups = None
    if campaign is not None:
        config = _configured(Path(campaign), slots, given)
        plan, stream = config.campaign, config.stream
        groups = None if plan.groups is None else read_groups(config.path(plan.groups))
    else:
        plan, stream = _planned(source, most, SLOTS if slots is None else slots, given)
    with crew(workers, dask) as hands:
        simulated = Simulation(
            plan,
            source,
            devices,
            seed,
            stream=stream,
            behaviour=Behaviour(seed, drop_out, late, late_slots, liars),
            groups=groups,
            chunk=chunk,
            workers=hands,
            progress=progress,
        ).run()
    simulated.notes += notes
    return simulated


def plan(
    *,
    devices: int = 1000,
    epsilon: Fraction | float | str = "1",
    error: float | str | None = None,
    population: str = "households",
    data: Path | str | None = None,
    unit: str | None = None,
    bound: int | None = None,
    mechanism: str = "auto",
    cohort_share: float = 0.05,
    days: int = 365,
) -> FleetPlan:
    """What a campaign of reports would give: errors, θ and mechanism, traffic, privacy.

    ``error``: the wanted error of a slot's mean, in the unit or as text like "5%". Raises Invalid, or OSError.
    """
    if not 0 <= cohort_share < 1:
        raise Invalid(f"cohort_share is {cohort_share!r}, expected a share from 0, below 1")
    if not 1 <= days <= 100 * 366:
        raise Invalid(f"days is {days}, expected 1 to {100 * 366}")
    known = _known(population, data, unit, bound)
    return plan_fleet(
        known,
        devices,
        epsilon,
        kind=mechanism,
        cohort_share=cohort_share,
        wanted=None if error is None else _wanted(error, known.mean),
        slots=days * known.per_day,
    )


def plan_window(
    *,
    window: str = "24h",
    devices: int = 1000,
    epsilon: Fraction | float | str = "1",
    population: str = "households",
    data: Path | str | None = None,
    unit: str | None = None,
    bound: int | None = None,
    delta: float = 1e-5,
) -> window_plan.WindowPlan:
    """Every way of collecting at ``epsilon`` for any ``window`` ("24h", "90m"), raw and filtered, and which to take.

    Raises Invalid, or OSError.
    """
    seconds = seconds_of("window", window)
    if bound is not None:
        check_bound(bound)
    source, most, _ = _source(population, data, unit, bound, DEVICES, 1)
    days = DAYS if data is None else min(DAYS, source.slots // source.per_day)  # type: ignore[attr-defined]
    return window_plan.plan_window(source, most, devices, epsilon, seconds, delta=delta, days=days)


def _source(
    population: str, data: Path | str | None, unit: str | None, bound: int | None, devices: int, seed: int
) -> tuple[Source, int, list[str]]:
    """The readings, their public bound, and what there is to say about them."""
    if data is None:
        _check_unit(unit)
        source = synthetic(population, seed)
        return source, source.bound if bound is None else bound, []
    readings: Readings = load(Path(data), unit, devices)
    most, note = public_bound(readings, bound)
    return readings, most, [*readings.notes, *([note] if note else [])]


def _check_unit(unit: str | None) -> None:
    if unit is not None:
        raise Invalid(f"unit is {unit!r}, expected none: a synthetic population has its own")


def _configured(path: Path, slots: int | None, given: dict[str, Any]) -> Config:
    config = read_config(path)
    if given:
        raise Invalid(f"{', '.join(given)} and a campaign exclude each other: {path} says what they are")
    if slots is None:
        return config
    # In its own words, so that the file's checks hold.
    parse(CampaignPlan, "campaign", {"name": "a", "sensor": "a", "unit": "a", "bound": 2, "epsilon": 1,
                                     "report_slots": slots})  # fmt: skip
    return replace(config, campaign=replace(config.campaign, report_slots=slots))


def _planned(source: Source, bound: int, slots: int, given: dict[str, Any]) -> tuple[CampaignPlan, StreamPlan | None]:
    per_day = source.per_day
    collect = given.get("collect", "reports")
    if collect not in COLLECT:
        raise Invalid(f"collect is {collect!r}, expected one of {', '.join(COLLECT)}")
    table: dict[str, Any] = {
        "name": "simulation",
        "sensor": "load",
        "unit": source.unit or "units",
        "bound": bound,
        "slot_seconds": 86400 // per_day,
        "cycle": per_day,
        "epsilon": given.get("epsilon", "1"),
        "report_slots": slots,
    }
    if collect == "stream":
        _refuse(given, ("rounds", "cohort_share", "blocks", "window"), collect)
        fields = {"theta": bound, "reports": slots}
        fields |= {name: given[name] for name in ("mechanism", "delta", "slew", "theta", "dimension") if name in given}
        return parse(CampaignPlan, "campaign", table | {"collect": collect}), parse(StreamPlan, "stream", fields)
    _refuse(given, ("delta", "slew", "theta", "dimension"), collect)
    days = given.get("rounds", ROUNDS)
    if not days or not all(0 < day <= 1000 for day in days):
        raise Invalid(f"rounds is {days!r}, expected days of each round such as 1, 1, 3")
    table |= {
        "rounds": [max(1, round(day * per_day)) for day in days],
        "epoch_slots": 7 * per_day,
        "cohort_share": given.get("cohort_share", 0.05),
        "mechanism": given.get("mechanism", "auto"),
    }
    table |= {name: given[name] for name in ("blocks", "window") if name in given}
    return parse(CampaignPlan, "campaign", table), None


def _refuse(given: dict[str, Any], names: tuple[str, ...], collect: str) -> None:
    strangers = [name for name in names if name in given]
    if strangers:
        raise Invalid(f"{', '.join(strangers)}: not an option where collect is {collect}")


def _known(population: str, data: Path | str | None, unit: str | None, bound: int | None) -> Known:
    if data is None:
        _check_unit(unit)
        source = synthetic(population, 1)
        return Known.of(source, source.bound if bound is None else check_bound(bound))
    readings = load(Path(data), unit)
    most, _ = public_bound(readings, bound)
    days = max(1, min(SAMPLE_DAYS, readings.slots // readings.per_day))
    return Known.of(readings, most, readings.households, days)


def _wanted(error: float | str, mean: float) -> float:
    try:
        share = isinstance(error, str) and error.endswith("%")
        value = float(Fraction(error.rstrip("%") if isinstance(error, str) else error))
    except (ValueError, ZeroDivisionError):
        value, share = 0.0, False
    if not value > 0:
        raise Invalid(f"error is {error!r}, expected a positive number or percentage")
    return mean * value / 100 if share else value

"""Experiment: the error of a half-hour's mean that `undertone plan` predicts, by size of the fleet and by ε."""

from undertone_simulator.fast.parallel import Tick, workers
from undertone_simulator.planning.fleet_plan import FleetPlan
from undertone_simulator.planning.options import PlanOptions
from undertone_simulator.planning.plan import plan
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.registry import StudyOptions

TITLE = "The error of a half-hour's mean, by size of the fleet"
PARAGRAPH = (
    "The table has the errors that `undertone plan --devices N --epsilon E` predicts for synthetic households, in per "
    "cent of the mean. ε is for one reading (event level)."
)
FLEETS = (100, 500, 5_000, 50_000, 500_000)
EPSILONS = ("0.5", "1", "2", "4")


def run(options: StudyOptions) -> Outcome:
    """Plan for each size of fleet and each ε."""
    fleets, epsilons = (FLEETS[1:2], EPSILONS[1:2]) if options.quick else (FLEETS, EPSILONS)
    tasks = [(devices, epsilon) for devices in fleets for epsilon in epsilons]
    with workers(options.workers or 1) as hands:
        errors = list(hands.bind(_error, 1 if options.quick else None)(tasks, lambda _: None))
    rows: list[tuple[Cell, ...]] = [
        (devices, *errors[i * len(epsilons) : (i + 1) * len(epsilons)]) for i, devices in enumerate(fleets)
    ]
    return Outcome(TITLE, ("homes", *(f"ε = {epsilon}" for epsilon in epsilons)), rows, [], [])


def _error(campaigns: int | None, task: tuple[int, str], tick: Tick) -> float:
    """Return the error in per cent, to two digits."""
    devices, epsilon = task
    planned = plan(PlanOptions(devices=devices, epsilon=epsilon, campaigns=campaigns))
    assert isinstance(planned, FleetPlan)
    shown = planned.spans[0].shown
    assert shown is not None
    return float(f"{100 * shown / planned.mean:.2g}")

"""θ's regret, as an experiment of the results page."""

from undertone_studies.experiments import theta
from undertone_studies.experiments.outcome import Outcome, Panel
from undertone_studies.experiments.registry import Options


def regret(options: Options) -> Outcome:
    """MSE at the chosen θ over the least of any candidate; see `theta`."""
    runs = theta.SHORT if options.quick else options.repeats or theta.RUNS
    # A quick run is too short to be shared out.
    workers = 1 if options.quick else None
    tasks = theta.protocol(options.data, options.quick, options.seed, runs, options.only)
    rows = theta.run(tasks, workers)
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in rows:
        if row.mode == "paper":
            points = curves.setdefault(row.method, {}).setdefault(row.population, [])
            points.append((float(row.epsilon), row.median))
    panels = [
        Panel(
            f"{method}: median regret",
            "ε of the threshold's reports",
            "MSE over the least",
            {name: ([x for x, _ in points], [y for _, y in points]) for name, points in found.items()},
        )
        for method, found in curves.items()
    ]
    columns, lines = theta.table(rows)
    notes = [
        f"{runs} runs, each cell: median / 90 % / worst (runs above 3). ε is of one reading (event level). A regret of"
        " 1 is the best θ that the true frequencies would give."
    ]
    return Outcome("Threshold: regret of the chosen θ", columns, lines, notes, panels)

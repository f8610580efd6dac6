"""What filtering a published series buys, on real data and on populations, for each way of collecting."""

from collections.abc import Callable
from pathlib import Path

from undertone_studies.filtering import (
    DAYS,
    FLEETS,
    Result,
    Truth,
    Way,
    daily,
    edrp,
    event,
    measure,
    stream,
    synthetic,
    turns,
)
from undertone_studies.outcome import Cell, Outcome, Panel
from undertone_studies.registry import Options

TITLE = "The filter: error and coverage of filtered series"
PARAGRAPH = (
    "Filtering is post-processing and costs no privacy. A season that drifts, a short memory and a slow level are"
    " fitted to the published series alone, whose noise is known slot by slot. Each cell says the error over raw's when"
    " all slots are known (smoothed) and when only those up to each slot are (causal, refitted as data come), and how"
    " often the 95 % intervals hold the mean of the truncated readings. The truth of a large fleet of a small data set"
    " is that data set's mean: as rough as so few devices are, which a real fleet is not."
)

WAYS: dict[str, Way] = {
    "event ε = 1": event("1"),
    "turns ε = 1": turns("1"),
    "turns ε = 2": turns("2"),
    "turns ε = 4": turns("4"),
    "stream ε = 1": stream("1"),
}
REPEATS = 2
# The fleet of which `docs/filter.md` speaks.
LARGER = {"edrp": (100_000,)}
QUICK_DAYS = 7
POPULATIONS = ("households", "phones", "time-in-state", "heavy-tail")


def run(options: Options) -> Outcome:
    """Real data sets where ``--data`` has them, then the populations; ``--only`` picks by name."""
    rows: list[tuple[Cell, ...]] = []
    curves: dict[str, dict[str, tuple[list[float], list[float]]]] = {"smoothed": {}, "causal": {}}
    fleets = FLEETS[1:2] if options.quick else FLEETS
    seeds = range(options.seed, options.seed + (1 if options.quick else options.repeats or REPEATS))
    for name, make in _sources(options).items():
        truth = make()
        for way, publish in WAYS.items():
            for devices in (*fleets, *(() if options.quick else LARGER.get(name, ()))):
                result = measure(truth, publish, devices, seeds)
                rows.append((name, way, devices, *_cells(result)))
                for which, panel in curves.items():
                    x, y = panel.setdefault(way, ([], []))
                    x.append(result.raw)
                    y.append(getattr(result, which))
    columns = ["data", "way", "devices", "raw, %", "smoothed / raw", "held", "causal / raw", "held, causal",
               "after half, %", "seconds"]  # fmt: skip
    notes = [
        "raw: root mean square error of a slot in per cent of the mean; / raw: the filtered error over it; held: share"
        " of 95 % intervals that hold the truncated mean; after half: the causal error from the fourteenth cycle on"
        " (or from half of the series), in per cent; seconds: one fit and smoothing, one thread.",
        "event: ε for each reading. turns: ε for any 24 hours, a device in 49 reports a slot, its sampling is in the"
        " noise. stream: (ε, 1e-5) for each cycle of slots together, slew 1/20 of the range.",
    ]
    panels = [
        Panel(f"{which} error over raw", "raw error of a slot, %", "ratio", panel, logarithmic=False, joined=False)
        for which, panel in curves.items()
    ]
    return Outcome(TITLE, columns, rows, notes, panels)


def _sources(options: Options) -> dict[str, Callable[[], Truth]]:
    days = QUICK_DAYS if options.quick else DAYS
    sources: dict[str, Callable[[], Truth]] = {}
    if options.data is not None:
        data: Path = options.data
        sources |= {"edrp": lambda: edrp(data, days), "london": lambda: daily(data)}
    for name in POPULATIONS:
        sources[name] = lambda name=name: synthetic(name, options.seed, days)  # type: ignore[misc]
    return {name: make for name, make in sources.items() if not options.only or name in options.only}


def _cells(result: Result) -> list[float]:
    shown = (
        result.raw,
        result.smoothed,
        result.smoothed_held,
        result.causal,
        result.causal_held,
        result.late,
        result.seconds,
    )
    return [round(float(number), 3) for number in shown]

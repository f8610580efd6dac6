"""Experiment: a blog post's comparison of Chan et al.'s counters, T = 1000 and 10,000, ε = 1, 25 trials.

The errors are sums of absolute errors. `PARAGRAPH` says which faults of the post are corrected. The counters that the
post announces (streams without an end) and a later one (square-root factorisation) are added.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.base.plural import many
from undertone_central import Binary, Counter, HybridCounter, Simple1, Simple2, SquareRoot, TwoLevel, Unbounded
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.panel import Panel
from undertone_studies.registry import StudyOptions
from undertone_studies.tops_methods import source

TITLE = "Counting, the blog's figures"
PARAGRAPH = (
    "The study repeats the figures of a blog about the counters of Chan, Shi and Song. T is the number of items in the "
    "stream. As in the blog, the counter `simple 2` (noise on each item) has smaller errors than `simple 1` (noise on "
    "each sum), and `two-level` (noise on blocks of items) has smaller errors than both. The blog's binary mechanism "
    "has two faults, which we have corrected. The blog divides ε by log2 T, although the tree has floor(log2 T) + 1 "
    "levels. The blog's array has one place too few when T is a power of two.\n\nWith the blog's blocks of B = 10 "
    "items, `binary` has a smaller error than `two-level` at T = 10,000. Our `two-level` has blocks of √T items, as "
    "the paper suggests. With blocks of √T items, `two-level` has a smaller error than `binary`. The counter "
    "`square-root` (a factorisation that is newer than the blog) needs a δ. The counters `hybrid` and `unbounded` need "
    "not know the end of the stream."
)

TRIALS = 25
EPSILON = 1
LENGTHS = (1_000, 10_000)
BLOCKS = (10, 25, 50, 100)


def run(options: StudyOptions) -> Outcome:
    """Compute the mean over trials of Σ_t |count - truth|, and the errors over time."""
    trials = options.repeats or TRIALS
    rows: list[list[str | int | float]] = []
    panels = []
    for length in LENGTHS:
        stream = np.random.default_rng([options.seed, length]).integers(0, 2, length)
        truth = np.cumsum(stream)
        curves = {}
        for name, make in _counters(length, options.seed).items():
            errors = np.mean([np.abs(make(trial).extend(stream) - truth) for trial in range(trials)], axis=0)
            rows.append([length, name, float(errors.sum()), float(errors[-1])])
            curves[name] = _thinned(errors)
        rows.append([length, "Base", float(truth.sum()), float(truth[-1])])
        curves["Base"] = _thinned(truth.astype(float))
        four = {name: curve for name, curve in curves.items() if "B = " not in name}
        panels.append(Panel(f"T = {length:,}", "values so far, t", "mean |error| of the count", four, better="lower"))
    two_level = {name: curve for name, curve in curves.items() if name.startswith("two-level")}
    title = f"two-level, T = {LENGTHS[-1]:,}"
    panels.append(Panel(title, "values so far, t", "mean |error| of the count", two_level, better="lower"))
    notes = [
        f"The guarantee is pure ε = {EPSILON} for each item (event level); square-root also has δ = 1e-6. Each "
        f"error is the mean of {many(trials, 'trial')}. Each item is 0 or 1.",
        "The baseline Base always answers 0.",
        *notes_of(rows),
        crossing_note(panels),
    ]
    columns = ["T", "mechanism", "sum of absolute errors", "last absolute error"]
    return Outcome(TITLE, columns, rows, notes, panels)


def notes_of(rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Return what the rows say of `two-level`, `binary` and the counters without an end, as sentences."""
    of = {(row[0], row[1]): float(row[2]) for row in rows}
    long, binary = LENGTHS[-1], of[LENGTHS[-1], "binary"]
    ratios = [f"{of[length, 'binary'] / of[length, 'two-level']:.2f} at T = {length:,}" for length in LENGTHS]
    endless = [f"{of[long, name] / binary:.2f} for `{name}`" for name in ("hybrid", "unbounded", "square-root")]
    return [
        f"The sum of errors of `binary`, divided by that of `two-level` with blocks of √T, is {' and '.join(ratios)}. "
        f"With the blog's blocks of {BLOCKS[0]} items, this ratio is "
        f"{binary / of[long, f'two-level, B = {BLOCKS[0]}']:.2f} at T = {long:,}.",
        f"At T = {long:,}, the sum of errors, divided by that of `binary`, is {', '.join(endless)}.",
    ]


def crossing_note(panels: Sequence[Panel]) -> str:
    """Return a sentence: from which time t on `binary` has the least error of the blog's four counters.

    It gives two values of t: one from the errors in the panels' curves, and one from the exact variances of the
    counters, averaged over the same stretches of time.
    """
    long, block = LENGTHS[-1], f"two-level, B = {BLOCKS[0]}"
    curves = {name: curve for panel in panels[1:] for name, curve in panel.curves.items()}
    ends, binary = curves["binary"]
    others = [curves[name][1] for name in ("simple 1", "simple 2", block)]
    counters: list[Counter] = [
        Binary(1, EPSILON, long),
        Simple1(1, EPSILON, long),
        Simple2(1, EPSILON),
        TwoLevel(1, EPSILON, long, block=BLOCKS[0]),
    ]
    exact = [_thinned(np.array([each.variance(0, t) for t in range(1, long + 1)]))[1] for each in counters]
    return (
        f"At T = {long:,} and with blocks of {BLOCKS[0]} items, `binary` has the least error of the blog's four "
        f"counters from t = {_least_from(ends, binary, others):,} on in these trials, and from t = "
        f"{_least_from(ends, exact[0], exact[1:]):,} on by the counters' exact variances. (The blog says around 4000. "
        f"Errors are averaged within each of {len(ends)} stretches of time.)"
    )


def _least_from(ends: Sequence[float], curve: Sequence[float], others: Sequence[Sequence[float]]) -> int:
    """Return the first t from which on the curve stays below all others."""
    above = [i for i, values in enumerate(zip(curve, *others, strict=True)) if values[0] >= min(values[1:])]
    return 1 + (int(ends[above[-1]]) if above else 0)


def _counters(length: int, seed: int) -> dict[str, Callable[[int], Counter]]:
    def two_level(block: int) -> Callable[[int], Counter]:
        return lambda i: TwoLevel(1, EPSILON, length, source(seed, i, f"two-level {block}"), block=block)

    counters: dict[str, Callable[[int], Counter]] = {
        "simple 1": lambda i: Simple1(1, EPSILON, length, source(seed, i, "simple 1")),
        "simple 2": lambda i: Simple2(1, EPSILON, source(seed, i, "simple 2")),
        "two-level": lambda i: TwoLevel(1, EPSILON, length, source(seed, i, "two-level")),
        "binary": lambda i: Binary(1, EPSILON, length, source(seed, i, "binary")),
        "unbounded": lambda i: Unbounded(1, EPSILON, source(seed, i, "unbounded")),
        "hybrid": lambda i: HybridCounter(1, EPSILON, source(seed, i, "hybrid")),
        "square-root": lambda i: SquareRoot(1, EPSILON, length, source(seed, i, "square-root")),
    }
    if length == LENGTHS[-1]:
        counters |= {f"two-level, B = {block}": two_level(block) for block in BLOCKS}
    return counters


def _thinned(errors: NDArray[np.float64]) -> tuple[list[float], list[float]]:
    """Average the errors over 40 stretches of time, because curves of single errors would cover each other."""
    parts = np.array_split(errors, 40)
    ends = np.cumsum([len(part) for part in parts])
    return ends.tolist(), [float(part.mean()) for part in parts]

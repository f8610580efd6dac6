"""Experiment: the expected error of every counter by the length of the stream, from the variances of the noise."""

from collections.abc import Callable
from math import sqrt

import numpy as np

from undertone_central import Binary, HybridCounter, KAry, Simple1, Simple2, SquareRoot, TwoLevel, Unbounded
from undertone_central.mechanisms.factorisation import LONGEST
from undertone_central.mechanisms.k_ary import mean_draws
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.panel import Panel
from undertone_studies.registry import StudyOptions

TITLE = "Counters: the expected error by the length of the stream"
PARAGRAPH = (
    "The error of each counter is the root of the mean variance of all its counts. The counter `k-ary` is that of "
    "Andersson, Pagh, Steiner and Torkamani (*Count on Your Elders*, FORC 2025): a tree whose nodes are added and "
    "subtracted, with the fan-out that suits the length. `simple-2`, `hybrid` and `unbounded` do not use the length T; "
    "the others must know it in advance."
)

LENGTHS = (1_000, 4_416, 10_000, 65_536, 1 << 20)
EPSILON = 1
OURS = "k-ary"
COLUMNS = ("T", "counter", "fan-out", "expected RMSE", "over the best other with pure ε")


def run(options: StudyOptions) -> Outcome:
    """Compute the expected errors; there are no random runs."""
    rows: list[tuple[Cell, ...]] = []
    for length in LENGTHS[:1] if options.quick else LENGTHS:
        errors = {name: sqrt(of(length)) for name, of in COUNTERS.items() if name != "square-root" or length <= LONGEST}
        for name, error in errors.items():
            best = min(other for rival, other in errors.items() if rival not in (name, "square-root"))
            fanout: Cell = KAry(1, EPSILON, length).fanout if name == OURS else ""
            rows.append((length, name, fanout, error, error / best))
    return Outcome(TITLE, COLUMNS, rows, [*notes_of(rows), GUARANTEE], [_panel(rows)])


GUARANTEE = (
    f"The guarantee is pure ε = {EPSILON} for each item (event level); square-root also has δ = 1e-6. Each item is "
    "0 or 1. Errors are computed from the variances of the draws that are in each count, so there are no repeats."
)


def notes_of(rows: list[tuple[Cell, ...]]) -> list[str]:
    """Return what the rows say of the k-ary counter, as a sentence."""
    ratios = []
    for length in dict.fromkeys(row[0] for row in rows):
        of = {row[1]: float(row[3]) for row in rows if row[0] == length}
        best = min(error for name, error in of.items() if name not in (OURS, "square-root"))
        ratios.append(f"{of[OURS] / best:.2f} and {of[OURS] / of['binary']:.2f} at T = {length:,}")
    return [
        "The error of `k-ary` is divided by the error of the best other counter with pure ε, and by the error of "
        f"`binary`. The two ratios are {'; '.join(ratios)}."
    ]


def _simple_1(length: int) -> float:
    return sum(Simple1(1, EPSILON, length).terms(1).values())


def _simple_2(length: int) -> float:
    return Simple2(1, EPSILON).variance(0, 1) * (length + 1) / 2


def _two_level(length: int) -> float:
    made, t = TwoLevel(1, EPSILON, length), np.arange(1, length + 1)
    return sum(made.terms(1).values()) * float(np.mean(t // made.block + t % made.block))


def _binary(length: int) -> float:
    return sum(Binary(1, EPSILON, length).terms(1).values()) * float(np.mean(_ones(np.arange(1, length + 1))))


def _k_ary(length: int) -> float:
    made = KAry(1, EPSILON, length)
    return sum(made.terms(1).values()) * float(mean_draws(length, made.fanout))


def _unbounded(length: int) -> float:
    made, t = Unbounded(1, EPSILON), np.arange(1, length + 1)
    levels = range(length.bit_length())
    return sum(sum(made.terms(1 << i).values()) * float(np.mean(t >> i & 1)) for i in levels)


def _hybrid(length: int) -> float:
    made, total = HybridCounter(1, EPSILON), 0.0
    for power in range(length.bit_length()):
        base, end = 1 << power, min(2 << power, length + 1)
        whole = sum(made.terms(base).values())
        one = sum(made.terms(base + 1).values()) - whole if end > base + 1 else 0.0
        total += (end - base) * whole + one * float(_ones(np.arange(end - base)).sum())
    return total / length


def _square_root(length: int) -> float:
    made, t = SquareRoot(1, EPSILON, length), np.arange(1, length)
    f = np.concatenate([[1.0], np.cumprod((2 * t - 1) / (2 * t))])
    return made.variance(0, 1) * float(np.mean(np.cumsum(f**2)))


def _ones(numbers: np.ndarray) -> np.ndarray:
    """Return the number of ones among the binary digits of each number."""
    return np.asarray(np.sum([numbers >> i & 1 for i in range(41)], axis=0))


# Counter -> function that returns the mean variance of its counts for a length.
COUNTERS: dict[str, Callable[[int], float]] = {
    "simple-1": _simple_1,
    "simple-2": _simple_2,
    "two-level": _two_level,
    "binary": _binary,
    OURS: _k_ary,
    "unbounded": _unbounded,
    "hybrid": _hybrid,
    "square-root": _square_root,
}


def _panel(rows: list[tuple[Cell, ...]]) -> Panel:
    curves = {
        name: (
            [float(row[0]) for row in rows if row[1] == name],
            [float(row[3]) for row in rows if row[1] == name],
        )
        for name in COUNTERS
    }
    return Panel("all counts", "T", "expected RMSE of a count", curves, logarithmic_x=True, better="lower")

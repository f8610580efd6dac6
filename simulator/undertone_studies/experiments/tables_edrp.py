"""Experiment with designed tables on EDRP: mean square error of the mean of 622 meters."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from undertone_aggregator.base.plural import many
from undertone_aggregator.design.mechanisms import traits_of
from undertone_studies.outcome import Outcome
from undertone_studies.panel import Panel
from undertone_studies.registry import StudyOptions
from undertone_studies.tables import (
    BASE,
    CYCLE,
    DAYS,
    EPSILONS,
    GUARANTEE,
    METHODS,
    ROUNDS,
    SEEDS,
    Contender,
    Integers,
    _data,
    contenders,
    expected_error,
    slot_means,
)
from undertone_studies.theta_populations import in_time_order

TITLE = "EDRP: mean square error of the mean of 622 meters"
PARAGRAPH = (
    "ToPL uses the Hybrid with a threshold that is made for range queries of one stream. This study estimates the mean "
    "of 622 meters in one half-hour instead. Our campaign (`auto`) differs from ToPL in two ways. Its threshold is "
    "chosen for the mean of one slot, and its mechanism is a table that is designed for the readings that the "
    "threshold rounds showed. To separate the two gains, the study also compares `auto` with the Hybrid whose "
    "threshold is chosen in the same way (`HM at our θ`). The ratio of their errors shows the gain from the designed "
    "table. This gain grows with ε, as the expected errors predict. The rest of the gain comes from the choice of the "
    "threshold."
)


@dataclass(frozen=True)
class Trial:
    """One method in one week: θ, and the mean square errors of its slot means and of its truncated means.

    The errors of truncated means are noise only. ``expected``: `expected_error`; ``predicted``: mean of the squared
    standard errors that the method states.
    """

    theta: int
    error: float
    expected: float
    noise: float
    predicted: float


def run(options: StudyOptions) -> Outcome:
    """Compare the errors of EDRP's slot means under the four `METHODS`.

    Each seed has three threshold rounds of a day each from a random day on, then a week of slots. Every method uses the
    same days and the same number of reports. The error is the difference from the mean of the readings, so it includes
    truncation's bias.
    """
    slots = in_time_order(_data(options))
    repeats = options.repeats or SEEDS
    rows: list[tuple[str | int | float, ...]] = []
    errors: dict[str, list[float]] = {method: [] for method in METHODS}
    for epsilon in EPSILONS:
        trials: dict[str, list[Trial]] = {method: [] for method in METHODS}
        zero: list[float] = []
        reporting: Counter[str] = Counter()
        for number in range(repeats):
            seed = options.seed * 1000 + number
            first = CYCLE * int(np.random.default_rng([seed, 7]).integers(len(slots) // CYCLE - ROUNDS - DAYS))
            week = slots[first + ROUNDS * CYCLE : first + (ROUNDS + DAYS) * CYCLE]
            zero.append(float(np.mean(np.square(week.mean(axis=1)))))
            for contender in contenders(slots[first : first + ROUNDS * CYCLE], epsilon, seed):
                trials[contender.method].append(_trial(week, contender, seed))
            # After the loop, ``contender`` is the last one: the method "auto", which chooses a table or the Hybrid.
            reporting["table" if traits_of(contender.mechanism).kind == "optimal" else "hybrid"] += 1
        mean = {method: float(np.mean([trial.error for trial in of_method])) for method, of_method in trials.items()}
        for method in METHODS:
            errors[method].append(mean[method])
        auto, plain, topl = (trials[method] for method in ("auto", "HM at our θ", METHODS[0]))
        rows.append(
            (
                epsilon,
                *mean.values(),
                float(np.mean(zero)),
                mean["auto"] / mean[METHODS[0]],
                _ratio([trial.expected for trial in auto], [trial.expected for trial in topl])[0],
                *_ratio([trial.error for trial in auto], [trial.error for trial in plain]),
                *_ratio([trial.expected for trial in auto], [trial.expected for trial in plain]),
                float(np.sqrt(np.mean([trial.predicted for trial in auto]) / np.mean([trial.noise for trial in auto]))),
                ", ".join(str(int(np.median([trial.theta for trial in of_method]))) for of_method in trials.values()),
                ", ".join(f"{n} × {kind}" for kind, n in reporting.items()),
            )
        )
    return _outcome(repeats, rows, errors)


def _outcome(repeats: int, rows: list[tuple[str | int | float, ...]], errors: dict[str, list[float]]) -> Outcome:
    x = [float(epsilon) for epsilon in EPSILONS]
    return Outcome(
        f"EDRP: mean square error (Wh²) of the mean of 622 meters in one half-hour, {many(repeats, 'seed')} × "
        f"{DAYS} days",
        (
            *("ε", *METHODS, BASE, "auto / ToPL", "expected auto / ToPL", "auto / HM", "± s.e."),
            *("expected auto / HM", "± s.e. of expected", "s.e. predicted / measured", "median θ", "auto is"),
        ),
        rows,
        (
            "The expected error is for the same weeks and the same θ as the measured error. It is computed from the "
            "exact variance of the noise and from the bias of truncation.",
            "The column `s.e. predicted / measured` is for `auto`. It has the standard errors that the server "
            "gives for the mean of the truncated readings, divided by the measured errors.",
            "ToPL chooses θ for random range queries of one stream. In the column `ToPL, one slot's objective` it "
            "chooses θ for the mean of the fleet in one slot.",
            GUARANTEE,
        ),
        (
            Panel(
                "Error of one slot's mean",
                "ε",
                "MSE, Wh²",
                {method: (x, errors[method]) for method in METHODS},
                logarithmic_x=True,
                better="lower",
            ),
        ),
    )


def _trial(week: Integers, contender: Contender, seed: int) -> Trial:
    means, variances, truths, truncated = slot_means(week, contender, seed)
    return Trial(
        contender.theta,
        float(np.mean(np.square(means - truths))),
        expected_error(week, contender),
        float(np.mean(np.square(means - truncated))),
        float(np.mean(variances)),
    )


def _ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float, float]:
    """Return the ratio of two means over the same seeds, and its standard error."""
    top, bottom = np.array(above), np.array(below)
    ratio = top.mean() / bottom.mean()
    return float(ratio), float(np.std(top - ratio * bottom) / (bottom.mean() * np.sqrt(len(top))))

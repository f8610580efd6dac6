"""Experiment: Figure 1 of ToPS."""

from fractions import Fraction
from math import sqrt

import numpy as np

from undertone_central.smoothers import best_smoothing
from undertone_central.threshold import Workload, counts_above, noise_and_cap, scores
from undertone_studies.outcome import Outcome
from undertone_studies.panel import Panel
from undertone_studies.registry import StudyOptions
from undertone_studies.tops_methods import (
    SHORT,
    base_mse,
    mean_errors,
    noisy_max_threshold,
    source,
)
from undertone_studies.tops_streams import M, R, TopsStream, one_stream, range_sums
from undertone_studies.tops_threshold import (
    CHOICES,
    EVENT,
    OBJECTIVES,
    PHASE_EPSILON,
    SHOWN,
    at,
    best_candidate,
)

TITLE = "ToPS, figure 1: what θ costs"
PARAGRAPH = (
    "The figure shows for the stream DNS how the error depends on θ. It compares the measured error with three "
    "formulas. Eq. 4 is the paper's formula for the mean square error of the sum over a random range, from noise and "
    "truncation, before consistency and smoothing. Eq. 6 approximates the root of Eq. 4 by the sum of these two "
    "parts. For truncation, Eq. 6 does not use how far each value exceeds θ. It only counts the values above θ, and "
    "multiplies their number by a constant c. The paper finds that the two formulas give nearly the same error on "
    "DNS, and that their minima are at nearly the same θ. The paper calls c a rough estimate, and takes c = 60. In our "
    "part of the DNS data, no value is above 28. So with c = 60, Eq. 6 is far too large at small θ, and its minimum is "
    "at almost twice the best θ. The third formula is our default, `excess`. It needs no constant, because it "
    "estimates from the data by how much the values exceed θ. From θ = 10 on, the error that it predicts is within 15 "
    "% of the measured error; at smaller θ the prediction is too large. If θ is chosen at the minimum of this formula, "
    "the error is only a few per cent larger than at the best θ."
)


def run(options: StudyOptions) -> Outcome:
    """Compute for each θ: the root of ToPS's Eq. 4, the objectives in its units, and the release's actual error."""
    stream = one_stream(options, "DNS")
    histogram, epsilon = stream.histogram(), Fraction(PHASE_EPSILON)
    largest = int(stream.values.max())
    thetas = np.unique(np.geomspace(1, largest, 8 if options.quick else 24).astype(np.int64))
    plain, smoothed = Workload(R, 16, 5, epsilon), Workload(R, 16, 5 - best_smoothing(16, 5, epsilon), epsilon)
    truth = range_sums(stream.body)
    noise = sqrt(2 * 15 * 5**3) / float(epsilon)
    excess = _mean_excess(histogram, thetas)
    eq4 = np.sqrt((noise * thetas) ** 2 + (R / 3 * excess) ** 2)
    eq6 = noise * thetas + R / 3 * 60 / M * counts_above(histogram, thetas)
    base_rmse = sqrt(base_mse(truth))
    ours = _default_rmse(histogram, thetas, smoothed, SHOWN * base_rmse)
    repeats = options.repeats or SHORT
    measured = [sqrt(mean_errors(at(stream, int(t), PHASE_EPSILON, options.seed), truth, repeats).mse) for t in thetas]
    rows = [[int(t), *map(float, line)] for t, *line in zip(thetas, eq4, eq6, ours, measured, strict=True)]
    best = {
        "Eq. 4": int(thetas[np.argmin(eq4)]),
        "Eq. 6, c = 60": best_candidate(histogram, plain, stream.bound, "count"),
        "excess": best_candidate(histogram, smoothed, stream.bound, "excess"),
        "measured": int(thetas[np.argmin(measured)]),
        "Base (θ = 0)": 0,
    }
    notes = [
        EVENT,
        f"ε is {float(epsilon):g}. Each curve is lowest at this θ: "
        + "; ".join(f"{name}: {theta}" for name, theta in best.items())
        + ".",
        *(_regret(stream, smoothed, *objective, options) for objective in OBJECTIVES.items()),
        f"Base has the RMSE {base_rmse:.4g}. Except for the column `measured RMSE`, the figure contains no noise. It "
        "shows the error that each formula predicts for each θ. A release by ToPS turns each predicted "
        "error into a score, adds noise to the scores, and takes the θ with the best noisy score. The figure shows "
        f"the error of the default only up to {SHOWN} times the error of Base.",
    ]
    x = thetas.tolist()
    curves = {
        "Eq. 4": (x, eq4.tolist()),
        "Eq. 6, c = 60": (x, eq6.tolist()),
        "excess (default)": (x, ours.tolist()),
        "measured": (x, measured),
        "Base": (x, [base_rmse] * len(x)),
    }
    panel = Panel(f"{stream.name}, ε = {float(epsilon):g}", "θ", "RMSE of a range's sum", curves, better="lower")
    columns = ["θ", "root of Eq. 4", "Eq. 6, c = 60", "excess (default)", "measured RMSE"]
    return Outcome(f"ToPS, figure 1 ({stream.name}): what θ costs", columns, rows, notes, [panel])


def _regret(stream: TopsStream, workload: Workload, name: str, objective: str, options: StudyOptions) -> str:
    """Return a sentence about noisy choices of θ: their error against the best θ's, on the 200 ranges."""
    points, choices = (30, 20) if options.quick else (150, CHOICES)
    thetas = np.unique(np.geomspace(1, stream.bound, points).astype(np.int64))
    bias = [np.mean(range_sums(np.maximum(stream.body - theta, 0)) ** 2) for theta in thetas]
    mse = (workload.root_k * thetas / float(workload.epsilon)) ** 2 + bias
    chosen = [
        noisy_max_threshold(stream, PHASE_EPSILON, source(options.seed, number, "theta"), objective)
        for number in range(choices)
    ]
    ratio = np.exp(np.interp(np.log(chosen), np.log(thetas), np.log(mse))) / mse.min()
    median, most = np.quantile(ratio, [0.5, 0.9])
    return (
        f"With the objective {name}, the study repeats the noisy maximum {choices} times. The median of the chosen "
        f"θ is {np.median(chosen):g}. Take the MSE with a chosen θ, without the error from smoothing, and divide it by "
        f"the MSE with the best θ. This ratio has the median {median:.3g} and the 90 % quantile {most:.3g}, and is at "
        f"most 2 in {100 * np.mean(ratio <= 2):.0f} % of choices."
    )


def _default_rmse(histogram: np.ndarray, thetas: np.ndarray, workload: Workload, most: float) -> np.ndarray:
    """Return the root mean square error at each θ that the objective ``excess`` stands for: sqrt(K) θ/ε e^(g/2).

    It follows from the score -(A/κ) (2 ln θ + g); `undertone_central.threshold` defines K, A, κ and g.
    """
    noise = workload.root_k / float(workload.epsilon)
    a, cap = noise_and_cap(M, workload, workload.epsilon)
    logarithm = np.log(noise) - scores(histogram, thetas, workload, workload.epsilon) * cap / (2 * a)
    return np.asarray(np.exp(np.minimum(logarithm, np.log(most))))


def _mean_excess(histogram: np.ndarray, thetas: np.ndarray) -> np.ndarray:
    """Return E[(v - θ)⁺]."""
    above = histogram.sum() - np.cumsum(histogram)
    tail = np.concatenate([np.cumsum(above[::-1])[::-1], [0]])
    return np.asarray(tail[thetas] / histogram.sum())

"""Experiment: Figure 1 of ToPS."""

from collections.abc import Sequence
from fractions import Fraction
from math import sqrt

import numpy as np

from undertone_central.mechanisms.smoothers import best_smoothing
from undertone_central.mechanisms.threshold import Workload, counts_above, noise_and_cap, scores
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.panel import Curve, Panel
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
    "The figure shows for the stream DNS how the error of a sum over a random range depends on θ. It compares the "
    "measured error with the predictions of three formulas. The first formula is the root of the paper's Eq. 4. Eq. 4 "
    "is the mean square error from noise and truncation, before consistency and smoothing. The second formula is the "
    "paper's Eq. 6, which approximates the root of Eq. 4: it is the error from noise plus the error from truncation. "
    "Eq. 6 does not use how far each value exceeds θ. It only counts the values above θ, and multiplies their number "
    "by a constant c. The paper finds that Eq. 4 and Eq. 6 give nearly the same error on DNS, and that their minima "
    "are at nearly the same θ. The paper calls c a rough estimate, and takes c = 60. In our part of the DNS data, no "
    "value is above 28. So with c = 60, Eq. 6 is far too large at small θ, and its minimum is at almost twice the best "
    "θ.\n\nThe third formula is our default, `excess`. It needs no constant, because it estimates from the data by how "
    "much the values exceed θ. From θ = 10 on, the error that it predicts is within 15 % of the measured error; at "
    "smaller θ the prediction is too large. If θ is chosen at the minimum of `excess`, without noise, the error is "
    "only a few per cent larger than at the best θ."
)


def run(options: StudyOptions) -> Outcome:
    """Compute for each θ the root of ToPS's Eq. 4, objectives in the same units, and the release's actual error."""
    stream = one_stream(options, "DNS")
    histogram, epsilon = stream.histogram(), Fraction(PHASE_EPSILON)
    largest = int(stream.values.max())
    thetas = np.unique(np.geomspace(1, largest, 8 if options.quick else 24).astype(np.int64))
    plain, smoothed = Workload(R, 16, 5, epsilon), Workload(R, 16, 5 - best_smoothing(16, 5, epsilon), epsilon)
    truth = range_sums(stream.body)
    noise = _noise(PHASE_EPSILON)
    excess = _mean_excess(histogram, thetas)
    eq4 = np.sqrt(equation_4(thetas, excess, epsilon))
    eq6 = noise * thetas + R / 3 * 60 / M * counts_above(histogram, thetas)
    base_rmse = sqrt(base_mse(truth))
    ours = _default_rmse(histogram, thetas, smoothed, SHOWN * base_rmse)
    repeats, choices = options.repeats or SHORT, 20 if options.quick else CHOICES
    measured = [sqrt(mean_errors(at(stream, int(t), PHASE_EPSILON, options.seed), truth, repeats).mse) for t in thetas]
    rows = [[int(t), *map(float, line)] for t, *line in zip(thetas, eq4, eq6, ours, measured, strict=True)]
    of_excess = best_candidate(histogram, smoothed, stream.bound, "excess")
    notes = [
        EVENT,
        f"ε is {float(epsilon):g}. Of the θ in the table, `Eq. 4` is lowest at θ = {thetas[np.argmin(eq4)]}, `excess "
        f"(default)` at θ = {thetas[np.argmin(ours)]}, and `measured` at θ = {thetas[np.argmin(measured)]}. Of all θ "
        "that a release can choose, `Eq. 6, c = 60` is lowest at θ = "
        f"{best_candidate(histogram, plain, stream.bound, 'count')}, and `excess (default)` at θ = {of_excess}.",
        f"Base has the RMSE {base_rmse:.4g}. Only the column `measured RMSE` comes from noisy releases. The other "
        "columns show the error that each formula predicts for each θ. The error of the default is shown only up to "
        f"{SHOWN} times the error of Base.",
        "A release by ToPS turns each predicted error into a score, adds noise to the scores, and takes the θ with the "
        f"best noisy score. The study makes this choice {choices} times with each of two formulas. It divides the MSE "
        "with each chosen θ by the MSE with the best θ. Both MSE leave out the error from smoothing.",
        *(_regret(stream, smoothed, *objective, options, choices) for objective in OBJECTIVES.items()),
    ]
    columns = ["θ", "root of Eq. 4", "Eq. 6, c = 60", "excess (default)", "measured RMSE"]
    panel = panel_of(rows, base_rmse, f"{stream.name}, ε = {float(epsilon):g}")
    return Outcome(f"ToPS, figure 1 ({stream.name}): what θ costs", columns, rows, notes, [panel])


def panel_of(rows: Sequence[Sequence[Cell]], base_rmse: float, title: str) -> Panel:
    """Return the panel of the rows, with the two terms of Eq. 6: the noise, and the error by truncation."""
    thetas, eq4, eq6, ours, measured = ([float(cell) for cell in column] for column in zip(*rows, strict=True))
    noise = [_noise(PHASE_EPSILON) * theta for theta in thetas]
    # If no value is above θ, the error by truncation is 0. It is left out, because a logarithmic axis cannot show 0.
    costs = [(theta, all_of - part) for theta, all_of, part in zip(thetas, eq6, noise, strict=True)]
    shown = [(theta, cost) for theta, cost in costs if cost > 1e-6 * eq6[0]]
    curves: dict[str, Curve] = {
        "Eq. 4": (thetas, eq4),
        "Eq. 6, c = 60": (thetas, eq6),
        "noise of Eq. 6": (thetas, noise),
        "bias of Eq. 6": ([theta for theta, _ in shown], [cost for _, cost in shown]),
        "excess (default)": (thetas, ours),
        "measured": (thetas, measured),
        "Base": (thetas, [base_rmse] * len(thetas)),
    }
    return Panel(title, "θ", "RMSE of a range's sum", curves, better="lower")


def equation_4(thetas: np.ndarray, excess: np.ndarray, epsilon: Fraction) -> np.ndarray:
    """Return ToPS's Eq. 4 for b = 16 and r = 2^20: (b - 1) log_b³(r) 2θ²/ε² + (r/3 E[(v - θ)⁺])².

    ``excess``: E[(v - θ)⁺].
    """
    return np.asarray((_noise(epsilon) * thetas) ** 2 + (R / 3 * excess) ** 2)


def _noise(epsilon: str | Fraction) -> float:
    """Return the standard deviation of a range's sum for θ = 1, released by a hierarchy of fan-out 16 and height 5."""
    return sqrt(2 * 15 * 5**3) / float(Fraction(epsilon))


def _regret(
    stream: TopsStream, workload: Workload, name: str, objective: str, options: StudyOptions, choices: int
) -> str:
    """Return sentences about noisy choices of θ.

    They give the median θ, and the distribution of the ratio of the two mean square errors on the 200 ranges: that of
    the chosen θ, divided by that of the best θ.
    """
    thetas = np.unique(np.geomspace(1, stream.bound, 30 if options.quick else 150).astype(np.int64))
    bias = [np.mean(range_sums(np.maximum(stream.body - theta, 0)) ** 2) for theta in thetas]
    mse = (workload.root_k * thetas / float(workload.epsilon)) ** 2 + bias
    chosen = [
        noisy_max_threshold(stream, PHASE_EPSILON, source(options.seed, number, "theta"), objective)
        for number in range(choices)
    ]
    ratio = np.exp(np.interp(np.log(chosen), np.log(thetas), np.log(mse))) / mse.min()
    median, most = np.quantile(ratio, [0.5, 0.9])
    return (
        f"With the formula `{name}`, the median of the chosen θ is {np.median(chosen):g}. The ratio of the two "
        f"MSE has the median {median:.3g} and the 90 % quantile {most:.3g}. It is at most 2 in "
        f"{100 * np.mean(ratio <= 2):.0f} % of choices."
    )


def _default_rmse(histogram: np.ndarray, thetas: np.ndarray, workload: Workload, most: float) -> np.ndarray:
    """Return the root mean square error that the objective ``excess`` implies at each θ: sqrt(K) θ/ε e^(g/2).

    Errors above ``most`` are replaced by ``most``. The formula follows from the score -(A/κ) (2 ln θ + g);
    `undertone_central.mechanisms.threshold` defines K, A, κ and g.
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

"""Shared code of Figures 1, 6 and 7 of ToPS: the error with a given threshold θ, and the ways to choose θ."""

from fractions import Fraction
from math import ceil

import numpy as np
from scipy.stats import laplace

from undertone_aggregator.base.plural import many
from undertone_central.mechanisms.pak import PERCENTILE
from undertone_central.mechanisms.smooth_sensitivity import smooth_sensitivity, smoothing_parameters
from undertone_central.mechanisms.threshold import Workload, candidates, scores
from undertone_studies.registry import StudyOptions
from undertone_studies.tops_methods import (
    EPSILONS,
    SHORT,
    Answers,
    Trial,
    noisy_max_threshold,
    quantile_threshold,
    source,
    tops_answers,
)
from undertone_studies.tops_streams import QUERIES, M, TopsStream

EVENT = (
    "The guarantee is for each value (event level). S-P and S-PAK have (ε, δ) with δ = 1/m², where m is the number of "
    "values from which θ is chosen. NM-E has pure ε."
)
NOISE_FREE_EPSILONS = (".01", ".02", ".05", ".1", ".2")
PERCENTILES = (0.85, 0.9, 0.95, 0.99, 0.995, 0.999)
PHASE_EPSILON = "0.05"
CHOICES = 400
# The predicted error of the default objective grows without bound if bias dominates, so figures show it only up to this
# multiple of Base's error.
SHOWN = 10
OBJECTIVES = {"excess (default)": "excess", "Eq. 6, c = 60": "count"}


def at(stream: TopsStream, theta: int, epsilon: str, seed: int) -> Trial:
    """Return a trial of the smoothed hierarchy with this θ."""
    return lambda i: tops_answers(stream, theta, epsilon, source(seed, i, "publish"))


def choosing(stream: TopsStream, name: str, epsilon: str, publishing: str, seed: int, chosen: list[int]) -> Trial:
    """Return a trial that chooses θ at ``epsilon``, appends it to ``chosen``, and publishes at the ε ``publishing``."""

    def trial(number: int) -> Answers:
        bytes_ = source(seed, number, "theta")
        if name.startswith("NM-E"):
            theta = noisy_max_threshold(stream, epsilon, bytes_, "count" if "60" in name else "excess")
        else:
            theta = quantile_threshold(stream, epsilon, bytes_, name.lower())
        chosen.append(theta)
        return at(stream, theta, publishing, seed)(number)

    return trial


def clamped(stream: TopsStream, epsilon: str) -> tuple[float, float]:
    """Return (P(θ = 1), P(θ = B)) for S-P, in closed form: θ is x_P + (S/α) Z for Laplace Z, clamped to [1, B].

    x_P is the percentile of the readings, and S its smooth sensitivity (`smooth_sensitivity.py`); α belongs to ε and δ
    (`smoothing_parameters`).

    p is 99.5 % and δ = 1/m², as in `quantile_threshold`.
    """
    alpha, beta = smoothing_parameters("laplace", Fraction(epsilon), Fraction(1, M * M))
    ordered = np.sort(stream.head)
    rank = ceil(PERCENTILE * len(ordered))
    unit = float(smooth_sensitivity(ordered, rank, stream.bound, beta) / alpha)
    place = float(ordered[rank - 1])
    # The drawn number is rounded down to θ.
    return float(laplace.cdf((2 - place) / unit)), float(laplace.sf((stream.bound - place) / unit))


def clamped_note(stream: TopsStream) -> str:
    """Return the two probabilities of `clamped` at each ε, as a sentence."""
    at_epsilon = (f"{low:.2f} and {high:.2f} at ε = {e}" for e in EPSILONS for low, high in [clamped(stream, e)])
    return (
        f"{stream.name}: S-P chooses θ = 1 and the public bound {stream.bound} with the probabilities "
        f"{'; '.join(at_epsilon)}."
    )


def best_candidate(histogram: np.ndarray, workload: Workload, bound: int, objective: str) -> int:
    thetas = candidates(bound, objective)
    return int(thetas[np.argmax(scores(histogram, thetas, workload, workload.epsilon, objective))])


def protocol(options: StudyOptions) -> str:
    return (
        f"Each error is from {len(QUERIES)} random ranges and {many(options.repeats or SHORT, 'repeat')} (the "
        "paper has 100 repeats). Base always answers 0."
    )

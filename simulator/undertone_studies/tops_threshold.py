"""Shared code of Figures 1, 6 and 7 of ToPS: the cost of a threshold, percentiles, and the ways to choose it."""

import numpy as np

from undertone_central.threshold import Workload, candidates, scores
from undertone_studies.registry import StudyOptions
from undertone_studies.tops_methods import (
    SHORT,
    Answers,
    Trial,
    noisy_max_threshold,
    quantile_threshold,
    source,
    tops_answers,
)
from undertone_studies.tops_streams import QUERIES, TopsStream

EVENT = (
    "The guarantee is for each value (event level). S-P and S-PAK have (ε, δ) with δ = 1/m², where m is the number of "
    "values from which θ is chosen. NM-E has pure ε."
)
NOISE_FREE_EPSILONS = (".01", ".02", ".05", ".1", ".2")
PERCENTILES = (0.85, 0.9, 0.95, 0.99, 0.995, 0.999)
PHASE_EPSILON = "0.05"
CHOICES = 400
# The default objective rises without bound where bias dominates; it is shown up to this multiple of Base's error.
SHOWN = 10
OBJECTIVES = {"excess (default)": "excess", "Eq. 6, c = 60": "count"}


def at(stream: TopsStream, theta: int, epsilon: str, seed: int) -> Trial:
    """Return the trial of the smoothed hierarchy under a given θ."""
    return lambda i: tops_answers(stream, theta, epsilon, source(seed, i, "publish"))


def choosing(stream: TopsStream, name: str, epsilon: str, publishing: str, seed: int, chosen: list[int]) -> Trial:
    """Return the trial that chooses θ at ``epsilon``, appends it to ``chosen``, and publishes at ε ``publishing``."""

    def trial(number: int) -> Answers:
        bytes_ = source(seed, number, "theta")
        if name.startswith("NM-E"):
            theta = noisy_max_threshold(stream, epsilon, bytes_, "count" if "60" in name else "excess")
        else:
            theta = quantile_threshold(stream, epsilon, bytes_, name.lower())
        chosen.append(theta)
        return at(stream, theta, publishing, seed)(number)

    return trial


def best_candidate(histogram: np.ndarray, workload: Workload, bound: int, objective: str) -> int:
    thetas = candidates(bound, objective)
    return int(thetas[np.argmax(scores(histogram, thetas, workload, workload.epsilon, objective))])


def protocol(options: StudyOptions) -> str:
    return (
        f"Each error is from {len(QUERIES)} random ranges and {options.repeats or SHORT} repeats (the paper has 100 "
        "repeats). Base always answers 0."
    )

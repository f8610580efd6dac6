"""Shared code of Figures 8 and 9 of ToPL, which use the streams of the ToPS figures in the local model.

θ comes from Square Wave, and reports come from the Hybrid at ε = 1.
"""

from fractions import Fraction

import numpy as np

from undertone_aggregator.design import hybrid, most_levels
from undertone_aggregator.threshold import Query, constant_variance, even_thetas
from undertone_simulator.fast.vectorised import symbols
from undertone_simulator.seeded import Seeded
from undertone_studies.theta import ROUNDS, Judge, papers, robust
from undertone_studies.tops_streams import (
    QUERIES,
    Integers,
    M,
    R,
    TopsStream,
    range_sums,
)

EPSILONS = ("0.2", "0.6", "1", "2")
REPORT_EPSILON = "1"
SHORT = 3
GUARANTEE = (
    "The guarantee is local differential privacy for each value (event level). The first m values, from which the "
    "threshold is chosen, are reported with the stated ε, and all later values with ε = 1."
)


def thresholds(stream: TopsStream, epsilon: str, seed: list[int]) -> dict[str, int]:
    """Return θ by the shipped method, by Square Wave with smoothed EM (SW), and by the paper's white box (SW-W)."""
    generator = np.random.default_rng([*seed, *epsilon.encode()])
    head = generator.permutation(stream.head)
    judge = Judge(even_thetas(stream.bound), np.zeros(0), Query.paper(R))
    parts = np.split(head, np.cumsum([round(M * share) for share in ROUNDS])[:-1])
    thresholds = {"ours": robust(parts, epsilon, stream.bound, judge, generator)}
    thresholds |= {
        {"ems": "SW", "sw-w": "SW-W"}[name]: theta
        for name, theta in papers(head, epsilon, stream.bound, judge, generator).items()
    }
    return {name: threshold.theta for name, threshold in thresholds.items()}


def expected_mse(stream: TopsStream, theta: int) -> float:
    """Return the mean of J V θ²/4 + bias² over the queries: J the range's length, V the Hybrid's variance at ε = 1."""
    variance = constant_variance(float(REPORT_EPSILON))(theta) * theta * theta / 4
    bias = range_sums(np.maximum(stream.body - theta, 0))
    return float(np.mean((QUERIES[:, 1] - QUERIES[:, 0]) * variance + bias**2))


def reports(values: Integers, theta: int, seed: int) -> np.ndarray:
    """Return the decoded Hybrid report of every value; each value counts as a separate device."""
    mechanism = hybrid(REPORT_EPSILON, most_levels(theta))
    drawn = symbols(mechanism, np.minimum(values, theta), theta, Seeded(seed).words(0, range(len(values))))
    table = np.array([float(Fraction(*mechanism.decode(s, theta))) for s in range(mechanism.symbols)])
    return np.asarray(table[drawn])

"""Methods that the ToPS figures compare: choices of a threshold, releases under it, and errors on the 200 queries.

The mechanisms are the shipped ones, except a plain hierarchy (`hierarchy_answers`): its answers need only the noise of
the nodes that cover a range, so no other noise is drawn; the joint distribution of the answers is that of the shipped
hierarchy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertone_central import FreshBytes, Pak, Tops
from undertone_central.mechanisms.hierarchy import levels_for, node_scale
from undertone_central.mechanisms.smoothers import best_smoothing
from undertone_central.mechanisms.threshold import Workload, choose_threshold
from undertone_central.mechanisms.variance import cover
from undertone_central.noise.laplace import discrete_laplace
from undertone_studies.tops_streams import QUERIES, M, R, TopsStream, range_sums

Answers = NDArray[np.float64]
EPSILONS = ("0.01", "0.02", "0.05", "0.1")
SHORT = 3
# Type of a trial: a function that maps the number of a repeat to the answers to the queries.
Trial = Callable[[int], Answers]


@dataclass(frozen=True)
class Errors:
    """Errors over the queries: mean square and mean absolute error of sums, and the same of means."""

    mse: float
    mae: float
    mmse: float
    mmae: float


def errors(answers: Answers, truth: Answers) -> Errors:
    """Compute the errors of 200 answers."""
    difference = answers - truth
    length = np.maximum(QUERIES[:, 1] - QUERIES[:, 0], 1)
    per_value = difference / length
    return Errors(
        float(np.mean(difference**2)),
        float(np.mean(np.abs(difference))),
        float(np.mean(per_value**2)),
        float(np.mean(np.abs(per_value))),
    )


def mean_errors(trial: Trial, truth: Answers, repeats: int) -> Errors:
    """Average the errors over trials number 0, 1, …"""
    of_trials = [errors(trial(number), truth) for number in range(repeats)]
    return Errors(*(float(np.mean([getattr(e, name) for e in of_trials])) for name in ("mse", "mae", "mmse", "mmae")))


def source(seed: int, number: int, label: str) -> FreshBytes:
    """Return the source of random bytes of trial ``number``, which depends only on the arguments."""
    return FreshBytes(np.random.default_rng([seed, number, *label.encode()]).bytes)


def noisy_max_threshold(stream: TopsStream, epsilon: str, bytes_: FreshBytes, objective: str = "excess") -> int:
    """Return ToPS's θ by the default objective, or by the paper's objective ``count`` with c = 60."""
    exact = Fraction(epsilon)
    levels = 5 - best_smoothing(16, 5, exact)
    return choose_threshold(stream.histogram(), Workload(R, 16, levels, exact), exact, bytes_, objective=objective)


def quantile_threshold(stream: TopsStream, epsilon: str, bytes_: FreshBytes, threshold: str) -> int:
    """Return the θ of PAK by its method ``s-pak`` or ``s-p``, at p = 99.5 % and δ = 1/m²."""
    mechanism = Pak(stream.bound, epsilon, bytes_, hold_out=M, threshold=threshold, span=2)
    mechanism.extend(stream.head)
    return mechanism.theta


def released_answers(stream: TopsStream, epsilon: str, bytes_: FreshBytes, **options: Any) -> Answers:
    """Return answers of the shipped mechanism.

    It takes θ, mean and blocks from the held-out values and publishes the rest.
    """
    mechanism = Tops(stream.bound, epsilon, bytes_, hold_out=M, span=R, **options)
    return range_sums(mechanism.extend(np.concatenate([stream.head, stream.body])))


def tops_answers(
    stream: TopsStream,
    theta: int,
    epsilon: str,
    bytes_: FreshBytes,
    smoothing: int | str = "auto",
    smoother: str = "recent",
) -> Answers:
    """Answer from a consistent fan-out-16 hierarchy, with Eq. 7's smoothing by default."""
    mechanism = Tops(
        stream.bound, epsilon, bytes_, theta=min(theta, stream.bound), smoothing=smoothing, smoother=smoother
    )
    return range_sums(mechanism.extend(stream.body))


def hierarchy_answers(stream: TopsStream, theta: int, epsilon: str, bytes_: FreshBytes, fanout: int) -> Answers:
    """Return answers of a plain hierarchy: truncated sums with the noise of the fewest nodes that cover each range."""
    levels = levels_for(fanout, R)
    covers = [cover(int(a), int(b), fanout, levels) for a, b in QUERIES]
    distinct = {node: place for place, node in enumerate({node for nodes in covers for node in nodes})}
    law = discrete_laplace(node_scale(theta, levels, Fraction(epsilon)))
    noise = law.sample(bytes_, len(distinct))
    added = [int(noise[[distinct[node] for node in nodes]].sum()) for nodes in covers]
    return np.asarray(range_sums(np.minimum(stream.body, theta)) + np.array(added))


def base_mse(truth: Answers) -> float:
    """Return the mean square error of Base, which always answers 0 and needs no data."""
    return float(np.mean(truth**2))

"""Benchmark: ToPS on 1.1 million values against a plain offline numpy implementation, and its memory."""

import tracemalloc
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from undertone_central import Tops
from undertone_central.noise.entropy import FreshBytes
from undertone_central.noise.laplace import discrete_laplace
from undertone_studies.registry import StudyOptions
from undertone_studies.row import Measured, best_seconds, duration, rate

TITLE = "ToPS, online and offline"

HELD_OUT = 1 << 16
PUBLISHED = 1 << 20
BOUND = 1657
EPSILON = 0.05
FANOUT, LEVELS = 16, 5
_DRAWS = 1 << 18

Values = NDArray[np.int64]
Floats = NDArray[np.float64]


def run(options: StudyOptions) -> list[Measured]:
    """Measure the release's time, with Eq. 7's smoothing and without, its memory, and the time of exact draws.

    The baselines use floating-point noise.
    """
    values = _values(options.quick)
    rounds = 2 if options.quick else 5
    rng = np.random.default_rng(1)
    rows = []
    for smoothing, name in (("auto", "with smoothing (s = 2)"), (0, "without smoothing (s = 0)")):
        ours, plain = best_seconds(
            [partial(online, values, smoothing), partial(offline, values, 2 if smoothing == "auto" else 0, rng)], rounds
        )
        title = f"ToPS, {len(values)} values, {name}"
        rows.append(duration(title, ours, "s", "offline numpy, floating-point noise", plain, goal=0.2))
    law, source = discrete_laplace(Fraction(51 * LEVELS * 20)), FreshBytes()
    exact, floating = best_seconds([lambda: law.sample(source, _DRAWS), lambda: rng.laplace(size=_DRAWS)], rounds)
    title, unit = "exact discrete Laplace", "million draws/s"
    rows.append(rate(title, _DRAWS / exact / 1e6, unit, "numpy's Laplace in doubles", _DRAWS / floating / 1e6))
    rows.append(duration("ToPS without smoothing: memory", _megabytes(values), "MB", "goal", 100.0, goal=1.0))
    return rows


def online(values: Values, smoothing: int | str) -> Values:
    """Run the shipped release on the values, in blocks of the size that a feed passes."""
    mechanism = Tops(BOUND, EPSILON, smoothing=smoothing)
    return np.concatenate([mechanism.extend(values[i : i + HELD_OUT]) for i in range(0, len(values), HELD_OUT)])


def offline(values: Values, smoothing: int, rng: np.random.Generator) -> Floats:
    """Compute a release like that of ToPS over stored data, with floating-point noise and without any streaming.

    θ is chosen by the paper's Eq. 6 with c = 60.
    """
    head, body = values[:HELD_OUT], values[HELD_OUT:]
    histogram = np.bincount(np.minimum(head, BOUND), minlength=BOUND + 1)
    thetas = np.arange(1, BOUND + 1)
    above = len(head) - np.cumsum(histogram)[thetas]
    price = 3 * len(head) / (60 * PUBLISHED * EPSILON) * np.sqrt(2 * (FANOUT - 1) * LEVELS**3)
    theta = int(thetas[np.argmax(-price * thetas - above + rng.laplace(scale=1 / EPSILON, size=len(thetas)))])
    group, levels = FANOUT**smoothing, LEVELS - smoothing
    truncated = np.minimum(body, theta)
    leaves = np.zeros(FANOUT**levels)
    sums = truncated.reshape(-1, group).sum(axis=1)
    leaves[: len(sums)] = sums
    consistent = _consistent(leaves, levels, theta * levels / EPSILON, rng)[: len(sums)]
    if group == 1:
        return consistent
    predicted = np.concatenate([[group * theta / 2], consistent[:-1]]) / group
    released = np.repeat(predicted, group).reshape(-1, group)
    released[:, -1] = consistent - (group - 1) * predicted
    return released.reshape(-1)


def _consistent(leaves: Floats, levels: int, scale: float, rng: np.random.Generator) -> Floats:
    """Add noise to the whole tree, make it consistent by the method of Hay et al., and return its leaves."""
    exact = [leaves]
    for _ in range(1, levels):
        exact.append(exact[-1].reshape(-1, FANOUT).sum(axis=1))
    noisy = [level + rng.laplace(scale=scale, size=len(level)) for level in exact]
    upward = [noisy[0]]
    for height in range(2, levels + 1):
        whole = FANOUT**height - 1
        own, below = (FANOUT**height - FANOUT ** (height - 1)) / whole, (FANOUT ** (height - 1) - 1) / whole
        upward.append(own * noisy[height - 1] + below * upward[-1].reshape(-1, FANOUT).sum(axis=1))
    nodes = upward[-1]
    for level in upward[-2::-1]:
        children = level.reshape(-1, FANOUT)
        nodes = (children + ((nodes - children.sum(axis=1)) / FANOUT)[:, None]).reshape(-1)
    return nodes


def _values(quick: bool) -> Values:
    published = PUBLISHED // 16 if quick else PUBLISHED
    return np.minimum(np.random.default_rng(2).lognormal(1.6, 0.8, HELD_OUT + published), 165).astype(np.int64)


def _megabytes(values: Values) -> float:
    """Return the peak memory of the release in MB, without the stream itself; released numbers are thrown away."""
    tracemalloc.start()
    try:
        mechanism = Tops(BOUND, EPSILON, smoothing=0)
        for start in range(0, len(values), HELD_OUT):
            mechanism.extend(values[start : start + HELD_OUT])
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()

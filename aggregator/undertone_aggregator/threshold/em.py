"""Expectation maximisation (EM) for a discrete distribution observed through a channel.

The log-likelihood L(f) = Σ_j h_j ln (A f)_j over counts h is concave in f. One step is f ← f ∘ D / n with D = Aᵀ(h / A
f). For every distribution f the optimum is at most n (max_k D_k / n - 1) above L(f). This number is called the
certified gap. A larger likelihood does not mean a smaller error of f, so the regulariser is explicit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from undertone_aggregator.threshold.channel import Channel, Vector
from undertone_aggregator.threshold.newton import constrained_newton, log_likelihood

# Largest number of over-relaxed steps, and the exponent ω of the first step. Over-relaxation is fast in the first
# steps; Newton's method finds the last digits.
_RELAXED_STEPS = 60
_FIRST_POWER = 3.0

Smoother = Callable[[Vector], Vector]


@dataclass(frozen=True)
class PseudoReports:
    """A Dirichlet prior: `weight` additional readings, seen without noise and distributed like `base`.

    It adds weight·Σ_k base_k ln f_k to the objective, which stays concave, so the gap stays certified. `base` has shape
    [inputs] and sums to one; None means the uniform distribution.
    """

    weight: float
    base: Vector | None = None


@dataclass(frozen=True)
class Fit:
    """Result of expectation maximisation.

    `density` [inputs] sums to one. `log_likelihood` is Σ h ln(A f) without the prior's term. `gap` is a bound on how
    far the penalised objective lies below its optimum; it is None after smoothing, because smoothing maximises no
    objective. `stopped` is "gap", "step", "likelihood" or "iterations"; `converged` is False for the last. `iterations`
    counts the steps: those of EM, and those of Newton's method.
    """

    density: Vector
    iterations: int
    log_likelihood: float
    gap: float | None
    converged: bool
    stopped: Literal["gap", "step", "likelihood", "iterations"]


def ems_step(f: Vector) -> Vector:
    """Return f smoothed: (f_{i-1} + 2 f_i + f_{i+1}) / 4; ends (2 f_0 + f_1) / 3. Shape [d] → [d], scaled to sum 1.

    This is the smoothing step of EMS (Li et al., SIGMOD 2020; used in ToPL, CCS 2021).
    """
    if len(f) < 2:
        return f
    out = np.empty_like(f)
    out[1:-1] = (f[:-2] + 2.0 * f[1:-1] + f[2:]) / 4.0
    out[0] = (2.0 * f[0] + f[1]) / 3.0
    out[-1] = (f[-2] + 2.0 * f[-1]) / 3.0
    return np.asarray(out / out.sum())


class _Problem:
    """One step of expectation maximisation, and the log-likelihood that the step raises. Both count the prior as
    reports.
    """

    def __init__(self, channel: Channel, counts: Vector, prior: PseudoReports | None) -> None:
        self.channel = channel
        self.counts = counts
        self.n = float(counts.sum())
        weight = prior.weight if prior is not None else 0.0
        base = prior.base if prior is not None else None
        uniform = np.full(channel.inputs, 1.0 / channel.inputs)
        self.pseudo = weight * (uniform if base is None else np.asarray(base, dtype=np.float64))
        self.weight = weight
        self.steps = 0

    def gradient(self, f: Vector, mixed: Vector | None = None) -> tuple[Vector, float]:
        """Return D = Aᵀ(h / A f) and, without a prior, the certified gap.

        Pass A f as `mixed` if it is already computed.
        """
        self.steps += 1
        gradient = self.channel.adjoint(self.counts / (self.channel.apply(f) if mixed is None else mixed))
        return gradient, float(np.maximum.reduce(gradient)) - self.n

    def step(self, f: Vector, mixed: Vector | None = None) -> tuple[Vector, float]:
        """Return f after one EM step, and the certified gap of f before it."""
        gradient, gap = self.gradient(f, mixed)
        if not self.weight:
            gradient *= f
            gradient *= 1.0 / self.n
            return gradient, gap
        raised = f * gradient + self.pseudo
        total = self.n + self.weight
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = gradient + np.where(self.pseudo > 0, self.pseudo / f, 0.0)
        return raised / total, float(slope.max()) - total


def expectation_maximisation(
    channel: Channel,
    counts: Vector,
    *,
    start: Vector | None = None,
    stop: Literal["gap", "paper"] = "gap",
    tolerance: float = 1e-6,
    max_iterations: int = 10_000,
    prior: PseudoReports | None = None,
    smoother: Smoother | None = None,
    accelerate: bool = True,
) -> Fit:
    """Find the distribution of input cells that explains `counts` [outputs] best.

    With `stop` "gap", the search ends at a certified gap of at most `tolerance` per report, or after `max_iterations`
    steps. With `accelerate` and without a prior, over-relaxed steps f ∘ (D / n)^ω come first, then a constrained Newton
    method on the few cells that have positive mass at the optimum. If they do not reach the wanted gap, plain EM
    continues. With `stop` "paper", plain EM (smoothed by `smoother`) ends when the likelihood or f hardly changes any
    more, as in ToPL.

    Raises ValueError for no reports, negative counts, a wrong shape or an impossible combination.
    """
    h = np.asarray(counts, dtype=np.float64)
    if h.shape != (channel.outputs,):
        raise ValueError(f"counts has the shape {h.shape}, expected {channel.outputs} counts")
    if not np.all(h >= 0) or not h.sum() > 0:
        raise ValueError(f"counts go from {h.min():g} to {h.max():g}, expected 0 or more, and one above 0")
    if smoother is not None and stop == "gap":
        raise ValueError("smoothing maximises no likelihood, so it has no certified gap: use stop='paper'")
    if stop not in ("gap", "paper"):
        raise ValueError(f"stop is {stop!r}, expected gap or paper")
    problem = _Problem(channel, h, prior)
    f = np.full(channel.inputs, 1.0 / channel.inputs) if start is None else np.array(start, dtype=np.float64)
    if stop == "gap":
        return _until_gap(problem, f, tolerance * problem.n, max_iterations, accelerate)
    return _as_the_paper(problem, f, max_iterations, smoother)


def _until_gap(problem: _Problem, f: Vector, wanted: float, limit: int, accelerate: bool) -> Fit:
    if accelerate and not problem.weight:
        f, gap = _over_relaxed(problem, f, wanted, min(limit, _RELAXED_STEPS))
        if gap > wanted and problem.steps < limit:
            refined = constrained_newton(problem.channel, problem.counts, f, wanted, limit - problem.steps)
            problem.steps += refined.steps
            if refined.log_likelihood >= log_likelihood(problem.channel, problem.counts, f):
                f = refined.density
    following, gap = problem.step(f)
    while gap > wanted and problem.steps < limit:
        f = following
        following, gap = problem.step(f)
    reached = gap <= wanted
    return Fit(
        density=f / f.sum(),
        iterations=problem.steps,
        log_likelihood=log_likelihood(problem.channel, problem.counts, f),
        gap=gap,
        converged=reached,
        stopped="gap" if reached else "iterations",
    )


def _over_relaxed(problem: _Problem, f: Vector, wanted: float, limit: int) -> tuple[Vector, float]:
    """Return the point of least gap, and that gap, among up to `limit` steps f ← f ∘ (D / n)^ω.

    ω = 1 is plain EM. ω grows while the gap shrinks, and falls otherwise. So only the gap controls the steps.
    """
    best, least, omega = f, float("inf"), _FIRST_POWER
    while problem.steps < limit:
        gradient, gap = problem.gradient(f)
        if gap < least:
            best, least, omega = f, gap, omega * 1.3
        else:
            omega = max(1.0, omega / 2.0)
        if gap <= wanted:
            break
        gradient *= 1.0 / problem.n
        np.power(gradient, omega, out=gradient)
        gradient *= f
        f = gradient / gradient.sum()
    return best, least


def _as_the_paper(problem: _Problem, f: Vector, limit: int, smoother: Smoother | None) -> Fit:
    previous = -np.inf
    stopped: Literal["gap", "step", "likelihood", "iterations"] = "iterations"
    gap = np.inf
    while problem.steps < limit:
        mixed = problem.channel.apply(f)
        likelihood = float(problem.counts @ np.log(mixed))
        if abs(likelihood - previous) < 1e-3:
            stopped = "likelihood"
            break
        previous = likelihood
        moved, gap = problem.step(f, mixed)
        if smoother is not None:
            moved = smoother(moved)
        change = float(np.abs(moved - f).sum())
        f = moved
        if change <= 1.0 / problem.n:
            stopped = "step"
            break
    return Fit(
        density=f / f.sum(),
        iterations=problem.steps,
        log_likelihood=log_likelihood(problem.channel, problem.counts, f),
        gap=None if smoother is not None else gap,
        converged=stopped != "iterations",
        stopped=stopped,
    )

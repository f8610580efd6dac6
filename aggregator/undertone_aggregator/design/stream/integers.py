"""Integers of a stream campaign for a budget ρ; a device checks them against its policy and uses them.

ρ is half of μ² for Gaussian noise (so that (ε, δ) follows from the analytic formula) and zCDP's ρ for one-bit noise.
"""

from collections.abc import Callable
from fractions import Fraction
from math import floor
from typing import Any

from undertone_aggregator.design.budget import Budget
from undertone_aggregator.design.stream.calibration import epsilon_of, mu, zcdp_epsilon, zcdp_rho
from undertone_aggregator.design.stream.filters import best_share
from undertone_aggregator.design.stream.schedule import check_length, check_slew
from undertone_shared.checks import SMALL
from undertone_shared.errors import Invalid
from undertone_shared.stream import (
    GAUSSIAN,
    LAWS,
    RHO_UNIT,
    ROUNDING_VARIANCE,
    StreamRule,
    first_step_suffices,
    least_first_variance,
    squared_bound,
    step_variance,
    swing,
)

SHIFT = 8
LEVELS = 10_000
# Least variance of the Gaussian noise, in squared steps of the integers that are drawn. The formula for (ε, δ) is that
# of continuous noise. For a discrete Gaussian with a smaller variance it would not hold. With the usual number of
# levels, the variance is far above this limit.
_LEAST_VARIANCE = 16


def rho_for(kind: str, budget: Budget) -> int:
    """Return the budget in multiples of 2^-20, rounded down: μ²/2 for gaussian, zCDP's ρ for one-bit.

    Raises Invalid.
    """
    if kind not in LAWS:
        raise Invalid(f"mechanism is {kind!r}, expected one of {', '.join(LAWS)}")
    epsilon, delta = budget.approximate
    rho = mu(epsilon, delta) ** 2 / 2 if kind == GAUSSIAN else zcdp_rho(epsilon, delta)
    # The margin of 1e-12 is far above the floating-point error.
    return floor(rho * RHO_UNIT * (1 - 1e-12))


def epsilon_spent(rule: StreamRule, delta: float) -> tuple[float, float]:
    """Return (ρ, ε at δ) of one window of a rule. ε is by the analytic formula for gaussian, by zCDP for one-bit."""
    num, den = rule.rho()
    rho = num / den
    return rho, epsilon_of((2 * rho) ** 0.5, delta) if rule.law == GAUSSIAN else zcdp_epsilon(rho, delta)


def choose(
    kind: str,
    rho: int,
    *,
    slew: Fraction,
    reports: int,
    theta: int,
    low: int = 0,
    chains: int = 1,
    dimension: int = 1,
    lag: int = 1,
    restart: int = 0,
    renewal: int = 0,
    levels: int = LEVELS,
    independent: bool = False,
    share: Fraction | None = None,
) -> StreamRule:
    """Return the rule with the least variance whose `StreamRule.charge` is at most ``rho`` (in units of
    2^-20).

    ``slew``: a share of the range theta - low, rounded down to whole levels. ``independent``: use Algorithm 1, without
    a share of the last report and without a slew limit. ``share``: r, the share of the last report that is used again,
    rounded down to a multiple of 2^-`SHIFT`; None: the best one. The other arguments are fields of `StreamRule`. Raises
    Invalid if the budget is too small or a number is out of range.
    """
    check_length(reports)
    check_slew(slew)
    width = max(theta - low, 1)
    if levels < 2 or width > (SMALL - 1) // 2:
        raise Invalid(
            f"the stream has levels = {levels} on a range of {width}, expected at least 2 levels and a range of at most"
            f" {(SMALL - 1) // 2}"
        )
    levels = min(levels, (SMALL - 1) // width) // 2 * 2
    steps = levels if independent else int(slew * levels)
    if steps < 1:
        raise Invalid(
            f"slew is {slew} of the range, less than one of its {levels} levels: choose a larger slew or more levels"
        )
    if rho < 1:
        raise Invalid(f"the budget rho is {rho}/2^20, expected at least 1/2^20: choose a larger epsilon")
    exact = Fraction(steps, levels)
    shift = 0 if independent else SHIFT
    if independent:
        reuse = 0
    else:
        again = best_share(exact, reports, max(chains, lag), SHIFT) if share is None else share
        reuse = int(again * (1 << SHIFT))
    bound = squared_bound(reports, max(chains, lag), levels, steps, shift, reuse)
    noise = (_variances if kind == GAUSSIAN else _steps)(bound, rho, levels, steps, shift, reuse)
    fields: dict[str, Any] = {
        "kind": "stream",
        "law": kind,
        "low": low,
        "theta": theta,
        "levels": levels,
        "slew": steps,
        "shift": shift,
        "reuse": reuse,
        "noise": noise,
        "dimension": dimension,
        "lag": lag,
        "reports": reports,
        "chains": max(chains, lag),
        "restart": restart,
        "renewal": renewal,
    }
    return StreamRule(fields)


def _variances(bound: int, rho: int, _levels: int, _slew: int, shift: int, reuse: int) -> list[int]:
    later = max(-(-bound * RHO_UNIT // (2 * rho)) + ROUNDING_VARIANCE, _LEAST_VARIANCE)
    return [max(least_first_variance(later, shift, reuse), _LEAST_VARIANCE), later]


def _steps(bound: int, rho: int, levels: int, slew: int, shift: int, reuse: int) -> list[int]:
    width = swing(levels, slew, shift, reuse)

    def later_suffices(step: int) -> bool:
        num, den = step_variance(step, width)
        return bound * den * RHO_UNIT <= 2 * rho * num

    later = _least(
        later_suffices, width // 2 + 1, "the budget needs more noise than devices can draw (a step above 2^29)"
    )
    first = _least(
        lambda step: first_step_suffices(step, later, levels, slew, shift, reuse),
        levels // 2 + 1,
        "the budget needs more noise than devices can draw (a first step above 2^29)",
    )
    return [first, later]


def _least(suffices: Callable[[int], bool], low: int, wrong: str) -> int:
    """Return the least integer from ``low`` to 2^29 for which the monotone test ``suffices`` is true.

    Raises Invalid if there is no such integer; its message begins with ``wrong``.
    """
    high = SMALL // 2
    if not suffices(high):
        raise Invalid(wrong + ": choose fewer levels or a larger epsilon")
    while low < high:
        middle = (low + high) // 2
        if suffices(middle):
            high = middle
        else:
            low = middle + 1
    return low


def release_variance(rule: StreamRule, index: int | None = None) -> float:
    """Return an upper bound of the noise variance of one coordinate of a release X_i, divided by the squared range.

    ``index``: the chain index i; None for the limit in a long chain. Letters as in `undertone_shared.stream`. Gaussian
    noise has v_1 = s_1 and v_i = (s + R² v_{i-1})/A². For one-bit noise, b² takes the place of s; it is more than the
    true b² - ξ². The rounding of readings to levels adds at most 1/4 level², and the rounding of releases at most
    1/12 / (1 - (R/A)²) level².
    """
    a, r = 1 << rule.shift, rule.reuse
    first, later = (rule.noise[0], rule.noise[1]) if rule.law == GAUSSIAN else (n * n for n in rule.noise)
    steady = later / (a * a - r * r)
    ahead = 0.0 if index is None else (first - steady) * (r / a) ** (2 * (index - 1))
    return float(steady + ahead + 0.25 + 1 / 12 / (1 - (r / a) ** 2)) / rule.levels**2

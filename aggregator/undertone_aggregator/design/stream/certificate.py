"""The result of `undertone certify --message` for a stream campaign: ρ and (ε, δ) of all its reports together.

The closed form that a device checks is compared with the exact sensitivity of one chain, if the dynamic programme that
computes this sensitivity is small enough.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from undertone_aggregator.base.plural import many
from undertone_aggregator.design.audit import NotCertified
from undertone_aggregator.design.budget import Budget, shown
from undertone_aggregator.design.stream.integers import epsilon_spent
from undertone_aggregator.design.stream.schedule import Recurrence
from undertone_aggregator.design.stream.sensitivity import exact
from undertone_shared.stream import GAUSSIAN, ROUNDING_VARIANCE, StreamRule, squared_bound, step_variance

# The dynamic programme is run only if the grid points of a difference times the reports are at most this many. For
# more, it would take minutes.
_LARGEST_PROGRAMME = 60_000


@dataclass(frozen=True)
class StreamCertificate:
    """The numbers that prove that a stream's budget is within its cap.

    ``rho``: ρ of all reports together. ``chain_rho``: ρ of one chain by the closed form; ``exact_rho``: the same by the
    dynamic programme, None if that was not run. ``report_epsilon``: ε of a single report, for one-bit streams only.
    """

    rule: StreamRule
    budget: Budget
    rho: Fraction
    epsilon_achieved: float
    chain_rho: Fraction
    exact_rho: Fraction | None
    report_epsilon: float | None

    def as_json(self) -> dict[str, object]:
        """Return the documented JSON object."""
        cap, delta = self.budget.approximate
        return {
            "mechanism": f"{self.rule.law} stream",
            "epsilon_cap": cap,
            "delta": delta,
            "epsilon_achieved": self.epsilon_achieved,
            "rho": float(self.rho),
            "rho_of_one_chain": float(self.chain_rho),
            "rho_of_one_chain_exact": None if self.exact_rho is None else float(self.exact_rho),
            "epsilon_of_one_report": self.report_epsilon,
            "guarantee": f"user level: {self._span()}",
            "integers": self.rule.describe(),
        }

    def lines(self) -> list[str]:
        """Return the certificate as lines of text."""
        integers = ", ".join(
            f"{name} {value}" for name, value in self.rule.describe().items() if name not in ("kind", "law")
        )
        exact = "not computed exactly"
        if self.exact_rho is not None:
            exact = f"{float(self.exact_rho):.6f} by exact computation"
        single = (
            "no finite ε, because its noise is Gaussian"
            if self.report_epsilon is None
            else f"ε = {self.report_epsilon:.6g}"
        )
        _, delta = self.budget.approximate
        return [
            f"mechanism    {self.rule.law} stream: {integers}",
            f"certificate  rho = {float(self.rho):.6f}, so (ε, δ) = ({self.epsilon_achieved:.6f}, {delta:g})"
            f" <= ({shown(self.budget.epsilon)}, {delta:g})",
            f"guarantee    user level: {self._span()}",
            f"one chain    rho = {float(self.chain_rho):.6f} by the closed form, {exact}",
            f"one report   {single}",
            "",
        ]

    def _span(self) -> str:
        rule = self.rule
        window = f"one window of {rule.renewal} slots" if rule.renewal else "the whole campaign"
        again = "; each further window costs the same rho again" if rule.renewal else ""
        most = f"{many(rule.reports, 'report')} in {many(rule.chains, 'chain')}"
        return f"all reports of a device in {window}, up to {most}{again}"


def certify_stream(rule: StreamRule, epsilon: str, delta: float) -> StreamCertificate:
    """Certify a stream against (ε, δ). Raises Invalid, `audit.NotCertified`."""
    budget = Budget.parse(epsilon, delta)
    cap, delta = budget.approximate
    rho = Fraction(*rule.rho())
    _, achieved = epsilon_spent(rule, delta)
    if achieved > cap * (1 + 1e-9):
        raise NotCertified(
            f"the cost of {many(rule.reports, 'report')} in {many(rule.chains, 'chain')} is rho = {float(rho):.6f},"
            f" that is (ε, δ) = ({achieved:.6f}, {delta:g}), expected ε of at most {cap:g}"
        )
    variance = _variance(rule)
    top = squared_bound(rule.reports, 1, rule.levels, rule.slew, rule.shift, rule.reuse)
    chain = Fraction(top) / (2 * variance)
    exact = _exact_rho(rule, variance)
    if exact is not None and exact > chain:
        raise NotCertified(f"one chain costs rho = {float(exact):.6f}, but the closed form says {float(chain):.6f}")
    ratio = None if rule.law == GAUSSIAN else math.log(report_ratio(rule))
    return StreamCertificate(rule, budget, rho, achieved, chain, exact, ratio)


def report_ratio(rule: StreamRule) -> Fraction:
    """Return the largest ratio of the probabilities of a single report of a one-bit stream.

    It is (1 + τ)/(1 - τ). Here τ is half the width of the range of ξ (`undertone_shared.stream`), divided by b.
    """
    first, later = rule.noise
    return max(
        Fraction(2 * step + width, 2 * step - width) for step, width in ((first, rule.levels), (later, rule.swing))
    )


def _variance(rule: StreamRule) -> Fraction:
    """Return the variance V of a later report's noise for which ρ = S²/(2V), where S is the sensitivity."""
    if rule.law == GAUSSIAN:
        return Fraction(rule.noise[1] - ROUNDING_VARIANCE)
    return Fraction(*step_variance(rule.noise[1], rule.swing))


def _exact_rho(rule: StreamRule, variance: Fraction) -> Fraction | None:
    """Compute ρ of one chain of all reports.

    Return None if the programme would be too large, if chains take turns, or if the slew is half the range or more.
    """
    slew = Fraction(rule.slew, rule.levels)
    share = Fraction(rule.reuse, 1 << rule.shift)
    if not share:
        # If no share of the last report's noise is kept, reports are independent, and the slew does not change the
        # sensitivity. Any slew will do.
        slew = Fraction(1, 4)
    if rule.lag > 1 or not 0 < slew < Fraction(1, 2) or rule.reports / slew > _LARGEST_PROGRAMME:
        return None
    if rule.law == GAUSSIAN:
        first = Fraction(rule.noise[0] - ROUNDING_VARIANCE)
    else:
        first = Fraction(*step_variance(rule.noise[0], rule.levels))
    # The weight of the first report is the variance of later reports' noise, divided by the variance of its own noise.
    # Later noise is counted in units that are smaller by a factor of 2^shift.
    start = Recurrence((), variance / (first * (1 << 2 * rule.shift)))
    later = Recurrence((share,) if share else (), Fraction(1))
    schedule = (start, *[later] * (rule.reports - 1))
    return exact(schedule, slew) * (rule.levels << rule.shift) ** 2 / (2 * variance)

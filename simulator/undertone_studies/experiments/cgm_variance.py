"""Experiment: a report's variance with correlated noise, relative to the paper's at equal (ε, δ)."""

from fractions import Fraction

from undertone_aggregator.design.budget import Budget
from undertone_aggregator.design.stream import filters, integers
from undertone_aggregator.design.stream.schedule import paper, paper_variance
from undertone_aggregator.design.stream.sensitivity import exact
from undertone_shared.stream import GAUSSIAN, ONE_BIT
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.registry import StudyOptions

TITLE = "Correlated noise: variance of a report, divided by that of Algorithm 3"
PARAGRAPH = (
    "The paper bounds the sensitivity of each step separately, which gives the factor √l, where l is the number of "
    "reports. The square of the exact sensitivity is about half of the sum of the squares of these bounds. The "
    "variance of the noise is proportional to the square of the sensitivity. The table compares four ways to set the "
    "noise, which the page [Streams](../cgm.md) explains. Devices use the closed form, because a device can check it "
    "by itself. The filter with two taps has the smallest variance. In this filter, each report uses a share of the "
    "noise of each of the two reports before it."
)

SLEWS = (Fraction(1, 40), Fraction(1, 20), Fraction(1, 10))
LENGTHS = (48, 550)


def run(options: StudyOptions) -> Outcome:
    """Compute the mean variance of a report relative to Algorithm 3 with its √l calibration, at equal (ε, δ)."""
    rows: list[tuple[Cell, ...]] = []
    for slew in SLEWS[2:] if options.quick else SLEWS:
        for slots in LENGTHS[:1] if options.quick else LENGTHS:
            reference = float(sum(paper_variance(slew, number) for number in range(1, slots + 1)))
            ships = float(filters.shipped(slew, slots).variance)
            rows.append(
                (
                    float(slew),
                    slots,
                    ships / reference,
                    float(exact(paper(slew, slots, 40), slew)) / slots,
                    float(filters.optimised(slew, slots).variance) / reference,
                    float(filters.optimised(slew, slots, 2).variance) / reference,
                    100 * (float(filters.shipped(slew, slots, 2).variance) / ships - 1),
                    *_one_bit(slew, slots),
                )
            )
    return Outcome(
        TITLE,
        (
            *("C", "l", "closed form: what ships", "Algorithm 3, exact S²", "constant r, exact S²"),
            *("filter with 2 taps", "second chain, %", "one bit at equal ρ, %", "one bit at equal (ε, δ), %"),
        ),
        rows,
        (
            "Each variance is divided by the variance of Algorithm 3 with its √l calibration, for one chain of l "
            "reports. The columns in per cent show by how much the variance of the closed form grows at ε = 1 and δ = "
            "1e-5, if there is a second chain (after one reboot), or if each report has one bit.",
            "There are no random runs, because all figures follow from C and l. (ε, δ) is for all l reports "
            "together (user level).",
        ),
    )


def _one_bit(slew: Fraction, slots: int) -> tuple[float, float]:
    """Return the increase of the variance in per cent by one-bit reports, at equal ρ and at equal (ε, δ)."""
    budget = Budget.parse(1, 1e-5)
    variances = [
        integers.release_variance(
            integers.choose(kind, integers.rho_for(same, budget), slew=slew, reports=slots, theta=10_000, chains=1)
        )
        for kind, same in ((GAUSSIAN, GAUSSIAN), (ONE_BIT, GAUSSIAN), (ONE_BIT, ONE_BIT))
    ]
    return 100 * (variances[1] / variances[0] - 1), 100 * (variances[2] / variances[0] - 1)

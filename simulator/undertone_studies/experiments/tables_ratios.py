"""Experiment with designed tables: their variance relative to the Hybrid's."""

import numpy as np

from undertone_aggregator.design import square_wave
from undertone_aggregator.design.continuous import hybrid_variance
from undertone_aggregator.design.population import Population
from undertone_aggregator.threshold import CohortCounts, first_edges
from undertone_aggregator.threshold.choose import next_range
from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions
from undertone_studies.tables import EPSILONS, GUARANTEE, RUNS, _data, jointly
from undertone_studies.theta import FLEET, READINGS, perturbed
from undertone_studies.theta import ROUNDS as SHARES
from undertone_studies.theta_populations import CountedReadings as Frequencies
from undertone_studies.theta_populations import real

TITLE = "Mean variance of designed tables, divided by the variance of the Hybrid"
PARAGRAPH = (
    "Most published mechanisms do not depend on how the readings are distributed; a designed table does. The page "
    "[Papers](../papers.md#what-is-new-here) names two papers that find mechanisms by optimisation. The ratio is the "
    "table's mean variance over the readings, divided by the largest variance of the Hybrid at the same threshold. The "
    "study designs each table for frequencies that are estimated from private reports. The variance of the table is "
    "almost the same for the true frequencies as for the estimated ones, so the server can predict it well. At ε = 0.5 "
    "the mean variance of a table is only a little smaller than the variance of the Hybrid. At ε = 4 it is less than "
    "half of the variance of the Hybrid. In return, the variance for the worst reading may be larger with a table than "
    "with the Hybrid."
)


def run(options: StudyOptions) -> Outcome:
    """Compute the mean variance of tables, divided by the Hybrid's largest, on densities estimated at ε.

    The worst-case variance of a table, without the noise of rounding to levels, is at most 1.25 times that of the
    Hybrid Mechanism (HM).
    """
    repeats = options.repeats or RUNS
    rows: list[tuple[str | int | float, ...]] = []
    for population in real(_data(options)):
        if population.name not in ("EDRP", "London daily", "POS"):
            continue
        true = Population(population.counts / population.counts.sum(), range(population.bound + 2))
        for epsilon in EPSILONS:
            estimated, actual, worst, thetas = [], [], [], []
            for number in range(repeats):
                generator = np.random.default_rng([options.seed, number, *epsilon.encode()])
                rounds = _sampled_rounds(population, epsilon, generator)
                design = jointly(rounds, population.bound, epsilon, "optimal", FLEET)
                theta, table = design.threshold.theta, design.mechanism
                unit = max(hybrid_variance(float(epsilon), x) for x in (0, 1))
                believed = Population(design.threshold.density, design.threshold.edges)
                estimated.append(believed.mean_variance(table, theta) / unit)
                actual.append(true.mean_variance(table, theta) / unit)
                worst.append(float(Population.even(theta).variances(table, theta).max()) / unit)
                thetas.append(theta)
            rows.append(
                (population.name, epsilon, max(estimated), max(actual), max(worst), int(np.median(thetas)), repeats)
            )
    return Outcome(
        TITLE,
        ("population", "ε", "estimated", "true", "worst reading", "median θ", "runs"),
        rows,
        (
            "Each ratio is the largest of the runs. In each run, the server gets 65,536 readings in three rounds, "
            "and chooses θ and the table together.",
            "The columns `estimated` and `true` are for the same table. The column `estimated` has its mean variance "
            "under the frequencies that were estimated from private reports. The column `true` has its mean variance "
            "under the true frequencies.",
            "The column `worst reading` includes the noise of rounding to 25 levels. Without this noise, a cap limits "
            "the variance for the worst reading to 1.25 times the largest variance of the Hybrid.",
            GUARANTEE,
        ),
    )


def _sampled_rounds(population: Frequencies, epsilon: str, generator: np.random.Generator) -> list[CohortCounts]:
    """Sample the threshold experiment's rounds: disjoint shares of `READINGS` readings."""
    readings = np.repeat(
        np.arange(len(population.counts)),
        generator.multivariate_hypergeometric(population.counts, READINGS, method="marginals"),
    )
    generator.shuffle(readings)
    edges = first_edges(population.bound)
    rounds: list[CohortCounts] = []
    for part in np.split(readings, np.cumsum([round(READINGS * share) for share in SHARES])[:-1]):
        mechanism = square_wave(epsilon, edges)
        rounds.append(CohortCounts(mechanism, perturbed(mechanism, part, generator)))
        edges = next_range(rounds, bound=population.bound)
    return rounds

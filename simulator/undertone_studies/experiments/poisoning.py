"""Experiment: the effect of fake devices on a mean, and on a median over groups."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.base.plural import many
from undertone_aggregator.design import hybrid, most_levels, piecewise
from undertone_aggregator.design.mechanisms import Mechanism
from undertone_aggregator.estimate.reconstruct import Decoder
from undertone_shared.scalar import ReportRule
from undertone_simulator.fast.vectorised import symbols
from undertone_simulator.planning.fleet_plan import Predictor
from undertone_simulator.planning.known import KnownPopulation
from undertone_simulator.readings.behaviour import Behaviour
from undertone_simulator.readings.populations import population
from undertone_simulator.seeded import Seeded
from undertone_simulator.wire.liar import largest_lie
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.panel import Panel
from undertone_studies.registry import StudyOptions

TITLE = "Poisoning: what fake devices can do"
PARAGRAPH = (
    "A fake device can send any symbol that an honest one may draw. In this study θ is fixed, and the mean is below "
    "the middle of the range, so the largest symbol moves the mean most. If all fakes send this symbol, the mean moves "
    "by about s (d - m): s is the share of fakes, d the decoded value of the symbol, and m the mean. This is the "
    "figure in the column `bound`.\n\nWith a smaller ε, decoded values are larger, so each false report shifts the "
    "mean more. The Hybrid at ε = 0.5 is an exception: it is stochastic rounding alone, so the server refuses the "
    "larger symbols of the piecewise mechanism. With the piecewise mechanism by itself (the rows `piecewise`), fakes "
    "move the mean at this ε about twice as far as with the Hybrid.\n\nThe median of the means of random groups helps "
    "if most groups have no fakes. In this study every group has fakes, so the median does not help. To keep fakes "
    "out, let in only known devices."
)

DEVICES = 20_000
EPSILONS = ("0.5", "1", "4")
SHARES = (0.0, 0.01, 0.02, 0.05, 0.1)
GROUPS = 25
REPEATS = 20
ATTACKED: dict[str, Callable[[str, int], Mechanism]] = {"hybrid": hybrid, "piecewise": piecewise}


def run(options: StudyOptions) -> Outcome:
    """Let liars send the largest symbol; compare the shift of the mean, in per cent of the range, with the bound."""
    source = population("households", options.seed)
    summary = KnownPopulation.of(source, source.bound, 1024, 1)
    readings = source.part(0, DEVICES, [36])[0][0]
    rows: list[tuple[Cell, ...]] = []
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for epsilon in EPSILONS:
        theta = Predictor(summary, Fraction(epsilon), "hybrid").design(DEVICES).threshold.theta
        truncated = np.minimum(readings, theta)
        for name, make in ATTACKED.items():
            mechanism = make(epsilon, most_levels(theta))
            decoder = Decoder(ReportRule(0, theta, mechanism), 0)
            for share in SHARES:
                mean, median = _measured(mechanism, decoder, truncated, theta, share, options)
                rows.append((name, epsilon, share, mean, median, _bound(mechanism, truncated, theta, share)))
                x, y = curves.setdefault(f"{name}, ε = {epsilon}", ([], []))
                x.append(100 * share)
                y.append(mean)
    notes = [
        f"The readings are those of {DEVICES} households in the evening, and each shift is the mean of "
        f"{many(options.repeats or REPEATS, 'repeat')}. For the median, the devices are divided into {GROUPS} "
        "random groups, and the median of the groups' means is taken. Shifts and bound are in % of θ.",
        "ε is for one reading (event level). Fake devices (liars) do not reduce anybody's privacy.",
    ]
    columns = ("mechanism", "ε", "share of liars", "shift of the mean, %", "shift of the median, %", "bound, %")
    panel = Panel(
        "Shift of the mean", "% of devices that lie", "shift, % of the range", curves, logarithmic=False, better="lower"
    )
    return Outcome(TITLE, columns, rows, notes, [panel])


def _measured(
    mechanism: Mechanism,
    decoder: Decoder,
    truncated: NDArray[np.int64],
    theta: int,
    share: float,
    options: StudyOptions,
) -> tuple[float, float]:
    devices, truth = np.arange(len(truncated)), float(truncated.mean())
    liars = Behaviour(options.seed, liars=share).lying(devices)
    means, medians = [], []
    for slot in range(options.repeats or REPEATS):
        drawn = symbols(mechanism, truncated, theta, Seeded(options.seed).words(slot, devices))
        drawn[liars] = largest_lie(mechanism)
        group = np.random.default_rng([options.seed, slot]).integers(GROUPS, size=len(drawn))
        counts = [np.bincount(drawn[group == g], minlength=mechanism.symbols) for g in range(GROUPS)]
        means.append(decoder.mean(np.sum(counts, axis=0))[0] - truth)
        medians.append(float(np.median([decoder.mean(histogram)[0] for histogram in counts])) - truth)
    return float(100 * np.mean(means) / theta), float(100 * np.mean(medians) / theta)


def _bound(mechanism: Mechanism, truncated: NDArray[np.int64], theta: int, share: float) -> float:
    """Return share · (largest decoded value - mean of the truncated readings), in % of θ."""
    top = float(Fraction(*mechanism.decode(largest_lie(mechanism), theta)))
    return 100 * share * (top - float(truncated.mean())) / theta

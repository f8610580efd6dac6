"""Benchmark: expectation maximisation by window sums against dense matrices, and the whole choice of θ."""

from collections.abc import Callable

import numpy as np

from undertone_aggregator.design import best_fraction
from undertone_aggregator.design.continuous import square_wave_half_width
from undertone_aggregator.threshold import MatrixChannel, Query, WindowChannel, expectation_maximisation
from undertone_shared.mechanism import WindowMechanism
from undertone_studies.registry import StudyOptions
from undertone_studies.row import Measured, best_seconds, duration
from undertone_studies.theta import Judge, robust
from undertone_studies.theta_populations import CountedReadings

TITLE = "Expectation maximisation"

BINS = 1024
REPORTS = 1_000_000
# Plain dense EM needs about 10^5 steps for the smaller gap. Its time is computed as steps times the time of one step.
_PLAIN_LIMIT = 400_000
_BLOCK = 20


def run(options: StudyOptions) -> list[Measured]:
    """Measure one iteration, the time to two certified gaps, and one choice of θ. Baseline: numpy on one BLAS thread.

    The dense EM's time to a gap is the number of plain steps, counted with the window sums that give the same iterates,
    times the time of one dense step. ``options.quick`` leaves the smaller gap out. Set OPENBLAS_NUM_THREADS=1.
    """
    channel, counts = _problem()
    dense = MatrixChannel(channel.matrix())
    f, g = np.full(channel.inputs, 1.0 / channel.inputs), counts / counts.sum()
    ours, pair, step = (
        seconds / _BLOCK
        for seconds in best_seconds(
            [
                _block(lambda: (channel.apply(f), channel.adjoint(g))),
                _block(lambda: (dense.apply(f), dense.adjoint(g))),
                _block(lambda: f * dense.adjoint(counts / dense.apply(f))),
            ],
            3 if options.quick else 20,
        )
    )
    rows = [
        duration(
            f"one product with the channel and one with its transpose, {BINS} bins",
            ours * 1e6,
            "µs",
            "dense matrices",
            pair * 1e6,
            25.0,
        )
    ]
    for tolerance in (1e-3,) if options.quick else (1e-3, 1e-6):
        plain = expectation_maximisation(
            channel, counts, tolerance=tolerance, accelerate=False, max_iterations=_PLAIN_LIMIT
        )
        (taken,) = best_seconds(
            [lambda t=tolerance: expectation_maximisation(channel, counts, tolerance=t)],  # type: ignore[misc]
            3 if options.quick else 10,
        )
        least = "" if plain.converged else "at least "
        rows.append(
            duration(
                f"EM to a likelihood gap of {tolerance:g} per report, 10^6 reports",
                taken * 1e3,
                "ms",
                f"plain dense EM, {least}{plain.iterations} steps",
                plain.iterations * step * 1e3,
                100.0,
            )
        )
    rows.append(Measured("choice of θ from three simulated rounds, 65,536 reports in all", _choice(options.quick), "s"))
    return rows


def _block(call: Callable[[], object]) -> Callable[[], None]:
    """Return a function that makes the call 20 times, so that its data stay in the cache as in a real iteration."""

    def repeated() -> None:
        for _ in range(_BLOCK):
            call()

    return repeated


def _problem() -> tuple[WindowChannel, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    a, b = best_fraction("1")
    window = 2 * int(square_wave_half_width(1.0) * BINS) + 1
    channel = WindowChannel(WindowMechanism(a, b, window, 1, BINS - 1))
    generator = np.random.default_rng(1)
    readings = np.minimum(150 * generator.weibull(1.2, REPORTS), BINS - 1).astype(np.int64)
    law = channel.apply(np.bincount(readings, minlength=BINS) / REPORTS)
    return channel, generator.multinomial(REPORTS, law / law.sum()).astype(np.float64)


def _choice(quick: bool) -> float:
    """Return the processor seconds for simulating the reports of three rounds and choosing the ranges and θ from them.

    The three rounds together have 65,536 reports.
    """
    generator = np.random.default_rng(2)
    readings = np.minimum(200 * generator.weibull(0.8, 65_536), 10_000).astype(np.int64)
    population = CountedReadings("Weibull", np.bincount(readings, minlength=10_001))
    judge = Judge.of(population, Query.paper(2**20))
    parts = np.split(readings, [16_384, 32_768])
    return best_seconds([lambda: robust(parts, "1", population.bound, judge, generator)], 2 if quick else 5)[0]

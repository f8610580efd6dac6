"""`undertone plan` against simulation: predicted over simulated standard error, for means, ranges and streams."""

from collections.abc import Iterator
from fractions import Fraction
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design.stream import choose, rho_for
from undertone_aggregator.design.stream.plan import plan_stream
from undertone_aggregator.reconstruct import Decoder
from undertone_shared.campaign import ReportRule
from undertone_shared.stream import GAUSSIAN, StreamRule
from undertone_simulator.experiments.outcome import Cell, Outcome, Panel
from undertone_simulator.experiments.registry import Options
from undertone_simulator.planning import Known, Predictor
from undertone_simulator.populations import population
from undertone_simulator.seeded import Seeded
from undertone_simulator.vectorised import histogram

Errors = NDArray[np.float64]

POPULATIONS = ("households", "phones", "heavy-tail")
# Devices, and slots' means simulated for so many.
FLEETS = {1_000: 48 * 400, 10_000: 48 * 400, 100_000: 48 * 60}
EPSILONS = ("0.5", "1", "2", "4")
RANGE = 48
DELTA = 1e-5
SLEW = Fraction(1, 20)
STREAM_SLOTS = 48
# A quick run takes few slots, and of small fleets only.
QUICK_SLOTS = 48 * 5
# Devices whose streams are simulated per cell, in all groups together.
STREAMS = 400_000
QUICK_STREAMS = 20_000
_POOL = 1024


def predictions(options: Options) -> Outcome:
    """Each cell: n × ε × population × {mean, range of 48, stream}, with the error of the ratio itself."""
    rows: list[tuple[Cell, ...]] = []
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for name in POPULATIONS:
        source = population(name, options.seed)
        known = Known.of(source, source.bound, _POOL, 1)
        pool = source.part(0, _POOL, range(source.per_day))[0].ravel()
        for epsilon in EPSILONS:
            for devices in list(FLEETS)[:1] if options.quick else FLEETS:
                for what, predicted, errors in (
                    *_means(known, pool, devices, epsilon, options),
                    _stream(known, pool, devices, epsilon, options),
                ):
                    # Their mean is known to be 0.
                    simulated = sqrt(float(np.mean(np.square(errors))))
                    ratio, doubt = predicted / simulated, 1 / sqrt(2 * len(errors))
                    rows.append((name, what, devices, epsilon, predicted, simulated, ratio, doubt))
                    x, y = curves.setdefault(f"{what}, ε = {epsilon}", ([], []))
                    x.append(float(devices))
                    y.append(ratio)
    columns = ("population", "what", "devices", "ε", "predicted", "simulated", "ratio", "± of the ratio")
    worst = max(abs(float(row[6]) - 1) for row in rows)
    notes = [
        f"Largest distance of a ratio from 1: {worst:.1%}; the last column is one standard deviation of it by chance.",
        f"mean and range: ε per reading (event level), Hybrid; stream: (ε, {DELTA:g}) for {STREAM_SLOTS} reports"
        f" together (user level), slew {float(SLEW):g}, in units of the range, noise only.",
    ]
    panel = Panel("Predicted over simulated standard error", "devices", "ratio", curves, logarithmic=False)
    return Outcome("Predictions of undertone plan", columns, rows, notes, [panel])


def _means(
    known: Known, pool: NDArray[np.int64], devices: int, epsilon: str, options: Options
) -> Iterator[tuple[str, float, Errors]]:
    """(what, predicted standard error, simulated errors) of a slot's mean, and of the mean over `RANGE` slots."""
    predictor = Predictor(known, Fraction(epsilon), "hybrid")
    threshold, mechanism, _ = predictor.design(devices)
    theta = threshold.theta
    readings = np.minimum(np.random.default_rng(options.seed).choice(pool, devices), theta)
    decoder, seeded = Decoder(ReportRule(0, theta, mechanism), 0), Seeded(options.seed)
    numbers, truth = np.arange(devices), float(readings.mean())
    errors = np.array(
        [
            decoder.mean(histogram(mechanism, readings, theta, seeded.words(slot, numbers)))[0] - truth
            for slot in range(QUICK_SLOTS if options.quick else FLEETS[devices])
        ]
    )
    yield "mean", predictor.span("a slot", 1, devices).standard_error, errors
    yield (
        f"range of {RANGE}",
        predictor.span("a day", RANGE, devices).standard_error,
        errors.reshape(-1, RANGE).mean(axis=1),
    )


def _stream(
    known: Known, pool: NDArray[np.int64], devices: int, epsilon: str, options: Options
) -> tuple[str, float, Errors]:
    plan = plan_stream(devices=devices, slots=STREAM_SLOTS, epsilon=float(Fraction(epsilon)), delta=DELTA, slew=SLEW)
    predicted = next(line.raw for line in plan.lines if line.method == "closed-form")
    rule = choose(
        GAUSSIAN,
        rho_for(GAUSSIAN, float(Fraction(epsilon)), DELTA),
        slew=SLEW,
        reports=STREAM_SLOTS,
        theta=known.bound,
    )
    groups = max((QUICK_STREAMS if options.quick else STREAMS) // devices, 4)
    rng = np.random.default_rng(options.seed)
    errors = []
    for _ in range(groups):
        readings = rng.choice(pool, (STREAM_SLOTS, min(devices, 10_000)))
        # A mean over more devices is a mean of independent means.
        parts = [released_errors(rule, readings, rng) for _ in range(-(-devices // 10_000))]
        errors.append(np.mean(parts, axis=0))
    return "stream", predicted, np.concatenate(errors)


def released_errors(rule: StreamRule, readings: NDArray[np.int64], rng: np.random.Generator) -> Errors:
    """Mean over the devices of release less clipped reading, by slot, in units of the range; readings [slots, devices].

    The device's integer recursion; its discrete Gaussian is drawn as a rounded normal, for simulation only.
    """
    scale = 1 << rule.shift
    points = np.clip(readings, rule.low, rule.theta) - rule.low
    points = np.rint(points * (rule.levels / rule.width)).astype(np.int64) - rule.levels // 2
    clipped = released = points[0]
    errors = np.empty(len(points))
    for i, point in enumerate(points):
        noise = np.rint(rng.normal(0.0, sqrt(rule.noise[min(i, 1)]), len(point))).astype(np.int64)
        if i == 0:
            clipped, released = point, point + noise
        else:
            before = clipped
            clipped = np.clip(point, before - rule.slew, before + rule.slew)
            drawn = scale * clipped - rule.reuse * before + noise + rule.reuse * released
            released = (2 * drawn + scale) // (2 * scale)
        errors[i] = float(np.mean(released - clipped)) / rule.levels
    return errors

"""Experiment: `undertone plan` against simulation, by the ratio of predicted to simulated standard error.

Devices draw independently, so the error of a fleet is the average of its blocks' errors, and its variance is that of a
block's error divided by the number of blocks. So the same number of blocks is simulated for every size of fleet, and
the server's code decodes each of them.
"""

from fractions import Fraction
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design.budget import Budget
from undertone_aggregator.design.stream import choose, rho_for
from undertone_aggregator.design.stream.plan import plan_stream
from undertone_aggregator.estimate.reconstruct import Decoder
from undertone_shared.scalar import ReportRule
from undertone_shared.stream import GAUSSIAN, StreamRule
from undertone_simulator.fast.vectorised import symbols
from undertone_simulator.fast.vectorised_stream import Streams
from undertone_simulator.planning.fleet_plan import Predictor
from undertone_simulator.planning.known import KnownPopulation
from undertone_simulator.readings.populations import population
from undertone_simulator.seeded import Seeded
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.panel import Panel
from undertone_studies.registry import StudyOptions

TITLE = "Predicted errors against simulated ones"
PARAGRAPH = (
    "This table checks the predictions of `undertone plan`. The ratio is the predicted standard error, divided by the "
    "standard error in simulations. A ratio of 1 means that the prediction is right. The rows `range of 48` are for "
    "the mean of 48 slots. The simulations have fewer such means than slots, so chance moves the ratios of these rows "
    "further from 1."
)

# Type of an array of errors, of shape [independent repeats, errors that may depend on each other].
Errors = NDArray[np.float64]

POPULATIONS = ("households", "phones", "heavy-tail")
FLEETS = (1_000, 10_000, 100_000)
EPSILONS = ("0.5", "1", "2", "4")
RANGE = 48
DELTA = 1e-5
SLEW = Fraction(1, 20)
STREAM_SLOTS = 48
# Number of devices of a block; number of blocks, each of which reports in `RANGE` slots; number of streams.
BLOCK = 250
BLOCKS = 4000
STREAMS = 1 << 13
QUICK_BLOCKS = 200
QUICK_STREAMS = 1 << 11
_POOL = 1024
_BATCH = 8


def run(options: StudyOptions) -> Outcome:
    """Compute planned error / simulated error for each n, ε and population: a slot's mean, 48 slots' mean, a stream."""
    rows: list[tuple[Cell, ...]] = []
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for name in POPULATIONS:
        source = population(name, options.seed)
        summary = KnownPopulation.of(source, source.bound, _POOL, 1)
        pool = source.part(0, _POOL, range(source.per_day))[0].ravel()
        for epsilon in EPSILONS:
            predictor = Predictor(summary, Fraction(epsilon), "hybrid")
            rule = _rule(summary, epsilon)
            # All fleets use the same streams: only the number of devices in the average differs.
            streams = stream_errors(rule, pool, QUICK_STREAMS if options.quick else STREAMS, options.seed)
            for devices in FLEETS:
                blocks = block_errors(predictor, devices, pool, QUICK_BLOCKS if options.quick else BLOCKS, options.seed)
                for what, predicted, errors, size in (
                    ("mean", predictor.prediction(devices).over(1)[0], blocks.reshape(-1, 1), BLOCK),
                    (
                        f"range of {RANGE}",
                        predictor.prediction(devices).over(RANGE)[0],
                        blocks.mean(axis=1, keepdims=True),
                        BLOCK,
                    ),
                    ("stream", _predicted_stream(devices, epsilon), streams, 1),
                ):
                    simulated, doubt = _standard_error(errors, devices / size)
                    ratio = predicted / simulated
                    rows.append((name, what, devices, epsilon, predicted, simulated, ratio, doubt))
                    x, y = curves.setdefault(f"{what}, ε = {epsilon}", ([], []))
                    x.append(float(devices))
                    y.append(ratio)
    columns = ("population", "what", "devices", "ε", "predicted", "simulated", "ratio", "± of the ratio")
    worst = max(rows, key=lambda row: abs(float(row[6]) - 1))
    notes = [
        f"Of the {len(rows)} ratios, the one farthest from 1 is {float(worst[6]):.3f} ({worst[0]}, {worst[1]}, "
        f"{worst[2]} devices, ε = {worst[3]}). The last column is the standard deviation that the ratio has by "
        "chance alone, because the number of simulations is limited.",
        f"The study simulates {QUICK_BLOCKS if options.quick else BLOCKS} blocks of {BLOCK} devices over {RANGE} "
        f"slots, and {QUICK_STREAMS if options.quick else STREAMS} streams. The study computes the error of a fleet "
        "from the errors of these blocks or, in the rows `stream`, from the errors of these streams. The errors of "
        "two blocks are independent of each other, and so are the errors of two streams.",
        f"The rows `mean` and `range of {RANGE}` are for the Hybrid, with ε for each reading (event level). The rows "
        f"`stream` have (ε, {DELTA:g}) for {STREAM_SLOTS} reports together (user level), and steps of at most "
        f"{float(SLEW):g} of the range. The errors in the rows `stream` are shares of the range of readings, and "
        "contain the noise only.",
    ]
    panels = [
        Panel(
            f"{what}: predicted over simulated standard error",
            "devices",
            "ratio",
            {f"ε = {epsilon}": curves[f"{what}, ε = {epsilon}"] for epsilon in EPSILONS}
            | {"as predicted": ([float(FLEETS[0]), float(FLEETS[-1])], [1.0, 1.0])},
            logarithmic=False,
            joined=False,
            logarithmic_x=True,
            baseline="as predicted",
        )
        for what in ("mean", f"range of {RANGE}", "stream")
    ]
    return Outcome("Predictions of undertone plan", columns, rows, notes, panels)


def _standard_error(errors: Errors, parts: float) -> tuple[float, float]:
    """Return the standard error of an average of ``parts`` independent errors, and how accurately it is known.

    ``errors`` are examples of such errors, whose mean is 0. The accuracy is the standard deviation of the returned
    standard error, divided by it.
    """
    squares = np.square(errors).mean(axis=1)
    mean = float(squares.mean())
    return sqrt(mean / parts), float(squares.std()) / mean / sqrt(len(squares)) / 2


def block_errors(predictor: Predictor, devices: int, pool: NDArray[np.int64], blocks: int, seed: int) -> Errors:
    """Return estimate minus truth of every block and slot, [blocks, RANGE], under the design for ``devices``."""
    design = predictor.design(devices)
    threshold, mechanism = design.threshold, design.mechanism
    theta, rng, seeded = threshold.theta, np.random.default_rng([seed, devices]), Seeded(seed)
    decoder = Decoder(ReportRule(0, theta, mechanism), 0)
    # The estimated mean is linear in the histogram: ``says`` is the decoded value of one report of each symbol.
    says = np.array([decoder.mean(histogram)[0] for histogram in np.eye(mechanism.symbols, dtype=np.int64)])
    # For the random words, each (block, slot, device) of a batch counts as a separate device.
    numbers = np.arange(_BATCH * RANGE * BLOCK)
    errors = []
    for batch in range(blocks // _BATCH):
        readings = np.minimum(rng.choice(pool, len(numbers)), theta)
        drawn = symbols(mechanism, readings, theta, seeded.words(batch, numbers))
        errors.append((says[drawn] - readings).reshape(_BATCH, RANGE, BLOCK).mean(axis=2))
    return np.concatenate(errors)


def _rule(population: KnownPopulation, epsilon: str) -> StreamRule:
    rho = rho_for(GAUSSIAN, Budget.parse(epsilon, DELTA))
    return choose(GAUSSIAN, rho, slew=SLEW, reports=STREAM_SLOTS, theta=population.bound)


def _predicted_stream(devices: int, epsilon: str) -> float:
    plan = plan_stream(devices=devices, slots=STREAM_SLOTS, epsilon=float(Fraction(epsilon)), delta=DELTA, slew=SLEW)
    return next(line.raw for line in plan.lines if line.method == "closed-form")


def stream_errors(rule: StreamRule, pool: NDArray[np.int64], devices: int, seed: int) -> Errors:
    """Return release minus clipped reading of every device and report, [devices, reports], in units of the range."""
    rng, seeded, everybody = np.random.default_rng(seed), Seeded(seed), np.ones(devices, dtype=np.bool_)
    streams = Streams(rule, devices, 0)
    errors = np.empty((devices, rule.reports))
    for slot in range(rule.reports):
        streams.draw(slot, rng.choice(pool, (1, devices)), everybody, seeded.buffers(slot, np.arange(devices)))
        errors[:, slot] = (streams.released[0, 0] - streams.point[0, 0]) / rule.levels
    return errors

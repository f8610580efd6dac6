"""Figures 1, 6 and 7 of ToPS: what the threshold costs, percentiles, and the ways to choose it."""

from fractions import Fraction
from math import sqrt

import numpy as np

from undertone_central.smoothers import best_smoothing
from undertone_central.threshold import Workload, candidates, counts_above, scores
from undertone_studies.experiments.outcome import Outcome, Panel
from undertone_studies.experiments.registry import Options
from undertone_studies.experiments.tops_methods import (
    EPSILONS,
    SHORT,
    Answers,
    Trial,
    base_mse,
    mean_errors,
    noisy_max_threshold,
    quantile_threshold,
    source,
    tops_answers,
)
from undertone_studies.experiments.tops_streams import QUERIES, M, R, Stream, one_stream, range_sums, streams

EVENT = "Guarantee: event level, ε per value; S-P and S-PAK are (ε, δ) with δ = 1/m², NM-E is pure ε."
NOISE_FREE_EPSILONS = (".01", ".02", ".05", ".1", ".2")
PERCENTILES = (0.85, 0.9, 0.95, 0.99, 0.995, 0.999)
PHASE_EPSILON = "0.05"
CHOICES = 400
# The default objective rises without bound where bias rules: shown up to so many times Base's error.
SHOWN = 10
OBJECTIVES = {"excess (default)": "excess", "Eq. 6, c = 60": "count"}


def fig1(options: Options) -> Outcome:
    """Over θ: the root of Eq. 4, the objectives in its units, and the error that the release really has."""
    stream = one_stream(options, "DNS")
    histogram, epsilon = stream.histogram(), Fraction(PHASE_EPSILON)
    largest = int(stream.values.max())
    thetas = np.unique(np.geomspace(1, largest, 8 if options.quick else 24).astype(np.int64))
    plain, smoothed = Workload(R, 16, 5, epsilon), Workload(R, 16, 5 - best_smoothing(16, 5, epsilon), epsilon)
    truth = range_sums(stream.body)
    noise = sqrt(2 * 15 * 5**3) / float(epsilon)
    excess = _mean_excess(histogram, thetas)
    eq4 = np.sqrt((noise * thetas) ** 2 + (R / 3 * excess) ** 2)
    eq6 = noise * thetas + R / 3 * 60 / M * counts_above(histogram, thetas)
    base_rmse = sqrt(base_mse(truth))
    ours = _default_rmse(histogram, thetas, smoothed, SHOWN * base_rmse)
    repeats = options.repeats or SHORT
    measured = [sqrt(mean_errors(_at(stream, int(t), PHASE_EPSILON, options.seed), truth, repeats).mse) for t in thetas]
    rows = [[int(t), *map(float, line)] for t, *line in zip(thetas, eq4, eq6, ours, measured, strict=True)]
    best = {
        "Eq. 4": int(thetas[np.argmin(eq4)]),
        "Eq. 6, c = 60": _argmax(histogram, plain, stream.bound, "count"),
        "excess": _argmax(histogram, smoothed, stream.bound, "excess"),
        "measured": int(thetas[np.argmin(measured)]),
        "Base (θ = 0)": 0,
    }
    notes = [
        EVENT,
        f"ε = {float(epsilon):g}. Least at θ: " + ", ".join(f"{name} {theta}" for name, theta in best.items()) + ".",
        *(_regret(stream, smoothed, *objective, options) for objective in OBJECTIVES.items()),
        f"Base: RMSE {base_rmse:.4g}. Not a release: these are the functions that the noisy maximum is over; the "
        f"default one is shown up to {SHOWN} times Base.",
    ]
    x = thetas.tolist()
    curves = {
        "Eq. 4": (x, eq4.tolist()),
        "Eq. 6, c = 60": (x, eq6.tolist()),
        "excess (default)": (x, ours.tolist()),
        "measured": (x, measured),
        "Base": (x, [base_rmse] * len(x)),
    }
    panel = Panel(f"{stream.name}, ε = {float(epsilon):g}", "θ", "RMSE", curves)
    columns = ["θ", "root of Eq. 4", "Eq. 6, c = 60", "excess (default)", "measured RMSE"]
    return Outcome(f"ToPS, figure 1 ({stream.name}): what θ costs", columns, rows, notes, [panel])


def fig6(options: Options) -> Outcome:
    """True percentiles as θ, beside the noisy maximum: no percentile is good everywhere."""
    rows: list[list[str | float]] = []
    panels = []
    for stream in streams(options):
        truth = range_sums(stream.body)
        curves: dict[str, list[float]] = {}
        for epsilon in EPSILONS:
            methods = {f"p{100 * p:g}": _at(stream, stream.percentile(p), epsilon, options.seed) for p in PERCENTILES}
            methods["NM-E"] = _chosen(stream, "NM-E", epsilon, epsilon, options.seed, [])
            mse = {name: mean_errors(trial, truth, options.repeats or SHORT).mse for name, trial in methods.items()}
            for name, error in {**mse, "Base": base_mse(truth)}.items():
                rows.append([stream.name, float(epsilon), name, error])
                curves.setdefault(name, []).append(error)
        x = [float(epsilon) for epsilon in EPSILONS]
        panels.append(Panel(stream.name, "ε", "MSE", {name: (x, y) for name, y in curves.items()}))
    notes = [EVENT, "Percentiles are the true ones, which no private method knows.", _protocol(options)]
    return Outcome("ToPS, figure 6: percentiles as threshold (MSE)", ["stream", "ε", "θ", "MSE"], rows, notes, panels)


def fig7(options: Options) -> Outcome:
    """Ways to choose θ at ε, then the same smoothed hierarchy at ε = 0.05."""
    rows: list[list[str | float]] = []
    panels = []
    notes = [EVENT, _protocol(options)]
    for stream in streams(options):
        truth = range_sums(stream.body)
        curves: dict[str, list[float]] = {}
        for epsilon in EPSILONS:
            for name in ("NM-E", "NM-E, paper's c = 60", "S-PAK", "S-P"):
                chosen: list[int] = []
                trial = _chosen(stream, name, epsilon, PHASE_EPSILON, options.seed, chosen)
                error = mean_errors(trial, truth, options.repeats or SHORT).mse
                rows.append([stream.name, float(epsilon), name, float(np.median(chosen)), error])
                curves.setdefault(name, []).append(error)
            rows.append([stream.name, float(epsilon), "Base", 0.0, base_mse(truth)])
            curves.setdefault("Base", []).append(base_mse(truth))
        x = [float(epsilon) for epsilon in EPSILONS]
        panels.append(Panel(stream.name, "ε of the threshold", "MSE", {name: (x, y) for name, y in curves.items()}))
        workloads = [Workload(R, 16, 5, Fraction(epsilon)) for epsilon in NOISE_FREE_EPSILONS]
        exact = "/".join(str(_argmax(stream.histogram(), w, stream.bound, "count")) for w in workloads)
        notes.append(f"{stream.name}: c = 60 without noise gives θ {exact} at ε {'/'.join(NOISE_FREE_EPSILONS)}.")
    columns = ["stream", "ε of the threshold", "method", "median θ", "MSE"]
    return Outcome("ToPS, figure 7: choosing θ (MSE)", columns, rows, notes, panels)


def _at(stream: Stream, theta: int, epsilon: str, seed: int) -> Trial:
    """The smoothed hierarchy under a given θ."""
    return lambda i: tops_answers(stream, theta, epsilon, source(seed, i, "publish"))


def _chosen(stream: Stream, name: str, epsilon: str, publishing: str, seed: int, chosen: list[int]) -> Trial:
    """The smoothed hierarchy at ε ``publishing`` under a θ chosen at ``epsilon``, which is noted in ``chosen``."""

    def trial(number: int) -> Answers:
        bytes_ = source(seed, number, "theta")
        if name.startswith("NM-E"):
            theta = noisy_max_threshold(stream, epsilon, bytes_, "count" if "60" in name else "excess")
        else:
            theta = quantile_threshold(stream, epsilon, bytes_, name.lower())
        chosen.append(theta)
        return _at(stream, theta, publishing, seed)(number)

    return trial


def _regret(stream: Stream, workload: Workload, name: str, objective: str, options: Options) -> str:
    """How far noisy choices of θ are from the best: noise after consistency, and truncation of the 200 ranges."""
    points, choices = (30, 20) if options.quick else (150, CHOICES)
    thetas = np.unique(np.geomspace(1, stream.bound, points).astype(np.int64))
    bias = [np.mean(range_sums(np.maximum(stream.body - theta, 0)) ** 2) for theta in thetas]
    mse = (workload.root_k * thetas / float(workload.epsilon)) ** 2 + bias
    chosen = [
        noisy_max_threshold(stream, PHASE_EPSILON, source(options.seed, number, "theta"), objective)
        for number in range(choices)
    ]
    ratio = np.exp(np.interp(np.log(chosen), np.log(thetas), np.log(mse))) / mse.min()
    median, most = np.quantile(ratio, [0.5, 0.9])
    return (
        f"{name}: {choices} noisy choices have median θ {np.median(chosen):g}; their MSE (without smoothing's error) "
        f"over that of the best θ: median {median:.3g}, 90 % quantile {most:.3g}, "
        f"{100 * np.mean(ratio <= 2):.0f} % within twice."
    )


def _default_rmse(histogram: np.ndarray, thetas: np.ndarray, workload: Workload, most: float) -> np.ndarray:
    """What the default objective is the logarithm of: sqrt(K) θ/ε e^(g/2), from its score -A (2 ln θ + g)."""
    noise = workload.root_k / float(workload.epsilon)
    a = M * sqrt(6) * noise / workload.span
    logarithm = np.log(noise) - scores(histogram, thetas, workload) / (2 * a)
    return np.asarray(np.exp(np.minimum(logarithm, np.log(most))))


def _mean_excess(histogram: np.ndarray, thetas: np.ndarray) -> np.ndarray:
    """E[(v - θ)⁺]."""
    above = histogram.sum() - np.cumsum(histogram)
    tail = np.concatenate([np.cumsum(above[::-1])[::-1], [0]])
    return np.asarray(tail[thetas] / histogram.sum())


def _argmax(histogram: np.ndarray, workload: Workload, bound: int, objective: str) -> int:
    thetas = candidates(bound, objective)
    return int(thetas[np.argmax(scores(histogram, thetas, workload, objective))])


def _protocol(options: Options) -> str:
    return f"{len(QUERIES)} random ranges, {options.repeats or SHORT} repeats (the paper: 100); Base answers 0."

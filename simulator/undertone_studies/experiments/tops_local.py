"""Figures 8 and 9 of ToPL: the same streams in the local model, θ by Square Wave, reports by the Hybrid at ε = 1."""

from fractions import Fraction

import numpy as np

from undertone_aggregator.design import hybrid, most_levels
from undertone_aggregator.threshold import Query, constant_variance, even_thetas
from undertone_simulator.seeded import Seeded
from undertone_simulator.vectorised import symbols
from undertone_studies.experiments.outcome import Curve, Outcome, Panel
from undertone_studies.experiments.registry import Options
from undertone_studies.experiments.theta import ROUNDS, Judge, papers, robust
from undertone_studies.experiments.tops_methods import base_mse
from undertone_studies.experiments.tops_streams import (
    QUERIES,
    Integers,
    M,
    R,
    Stream,
    one_stream,
    range_sums,
    streams,
)

EPSILONS = ("0.2", "0.6", "1", "2")
REPORT_EPSILON = "1"
SHORT = 3
_WINDOW = 4096
GUARANTEE = "Guarantee: event-level local DP, ε of the threshold for the first m values, ε = 1 for each report."


def fig8(options: Options) -> Outcome:
    """MSE over the ε that the threshold is chosen with, expected over the reports' noise."""
    rows: list[list[str | float]] = []
    panels = []
    repeats = options.repeats or SHORT
    epsilons = EPSILONS[:1] if options.quick else EPSILONS
    for stream in streams(options):
        curves: dict[str, list[float]] = {}
        for epsilon in epsilons:
            chosen: dict[str, list[int]] = {}
            for number in range(repeats):
                for name, theta in thresholds(stream, epsilon, [options.seed, number]).items():
                    chosen.setdefault(name, []).append(theta)
            for name, thetas in chosen.items():
                mse = float(np.mean([expected_mse(stream, theta) for theta in thetas]))
                rows.append([stream.name, float(epsilon), name, float(np.median(thetas)), mse])
                curves.setdefault(name, []).append(mse)
            base = base_mse(range_sums(stream.body))
            rows.append([stream.name, float(epsilon), "Base", 0.0, base])
            curves.setdefault("Base", []).append(base)
        x = [float(epsilon) for epsilon in epsilons]
        panels.append(Panel(stream.name, "ε of the threshold", "MSE", {name: (x, y) for name, y in curves.items()}))
    notes = [GUARANTEE, f"200 random ranges, {repeats} repeats (the paper: 100); Base answers 0."]
    columns = ["stream", "ε of the threshold", "method", "median θ", "MSE"]
    return Outcome("ToPL, figure 8: choosing θ (MSE)", columns, rows, notes, panels)


def fig9(options: Options) -> Outcome:
    """One run on DNS at ε = 1: means over windows of 4096 reports."""
    stream = one_stream(options, "DNS")
    curves: dict[str, Curve] = {"truth": _windows(stream.body.astype(float))}
    truth = np.asarray(curves["truth"][1])
    rows: list[list[str | float]] = []
    for number, (name, theta) in enumerate(thresholds(stream, REPORT_EPSILON, [options.seed, 0]).items()):
        curves[f"{name}, θ = {theta}"] = _windows(reports(stream.body, theta, options.seed + number))
    curves["Base"] = (curves["truth"][0], [0.0] * len(truth))
    for name, (_, y) in curves.items():
        rows.append([name, float(np.sqrt(np.mean((np.asarray(y) - truth) ** 2)))])
    panel = Panel(stream.name, "value number", "mean of 4096 reports", curves, logarithmic=False)
    columns = ["method", "RMSE of a window's mean"]
    return Outcome(f"ToPL, figure 9 ({stream.name})", columns, rows, [GUARANTEE], [panel])


def thresholds(stream: Stream, epsilon: str, seed: list[int]) -> dict[str, int]:
    """θ by the product's method, by Square Wave with smoothed EM (SW), and by the paper's white box (SW-W)."""
    generator = np.random.default_rng([*seed, *epsilon.encode()])
    head = generator.permutation(stream.head)
    judge = Judge(even_thetas(stream.bound), np.zeros(0), Query.paper(R))
    parts = np.split(head, np.cumsum([round(M * share) for share in ROUNDS])[:-1])
    found = {"ours": robust(parts, epsilon, stream.bound, judge, generator)}
    found |= {
        {"ems": "SW", "sw-w": "SW-W"}[name]: theta
        for name, theta in papers(head, epsilon, stream.bound, judge, generator).items()
    }
    return {name: threshold.theta for name, threshold in found.items()}


def expected_mse(stream: Stream, theta: int) -> float:
    """Mean over the queries of J V θ²/4 + bias², J the range's length, V the Hybrid's variance at ε = 1."""
    variance = constant_variance(float(REPORT_EPSILON))(theta) * theta * theta / 4
    bias = range_sums(np.maximum(stream.body - theta, 0))
    return float(np.mean((QUERIES[:, 1] - QUERIES[:, 0]) * variance + bias**2))


def reports(values: Integers, theta: int, seed: int) -> np.ndarray:
    """The decoded Hybrid report of every value, each a device of its own."""
    mechanism = hybrid(REPORT_EPSILON, most_levels(theta))
    drawn = symbols(mechanism, np.minimum(values, theta), theta, Seeded(seed).words(0, range(len(values))))
    table = np.array([float(Fraction(*mechanism.decode(s, theta))) for s in range(mechanism.symbols)])
    return np.asarray(table[drawn])


def _windows(values: np.ndarray) -> Curve:
    whole = values[: len(values) // _WINDOW * _WINDOW].reshape(-1, _WINDOW).mean(axis=1)
    return (np.arange(len(whole)) * _WINDOW).tolist(), whole.tolist()

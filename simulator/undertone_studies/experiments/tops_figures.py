"""Figures 2 to 5 and 10 of ToPS: end to end, smoothers, hierarchies."""

from collections.abc import Callable

import numpy as np

from undertone_central import FreshBytes, Pak, Tops
from undertone_central.hierarchy import levels_for
from undertone_central.smoothers import SMOOTHERS
from undertone_central.variance import consistent_variance, cover_size
from undertone_studies.experiments.outcome import Curve, Outcome, Panel
from undertone_studies.experiments.registry import Options
from undertone_studies.experiments.tops_methods import (
    EPSILONS,
    SHORT,
    Answers,
    Trial,
    base_mse,
    hierarchy_answers,
    mean_errors,
    noisy_max_threshold,
    quantile_threshold,
    source,
    tops_answers,
)
from undertone_studies.experiments.tops_streams import QUERIES, R, Stream, one_stream, range_sums, streams

EVENT = "Guarantee: event level, ε per value; methods with S-PAK are (ε, δ) with δ = 1/m², all others pure ε."
_WINDOW = 4096


def fig2(options: Options) -> Outcome:
    """One run each on DNS: ToPS at small ε, PAK at a larger one, as means over windows of 4096 values."""
    stream = one_stream(options, "DNS")
    body = stream.body[: R // 8] if options.quick else stream.body
    curves: dict[str, Curve] = {"truth": _windows(body)}
    rows: list[list[str | float]] = []
    truth = np.asarray(curves["truth"][1])
    for epsilon in ("0.01", "0.05"):
        mechanism = Tops(stream.bound, epsilon, source(options.seed, 0, "fig2"))
        released = mechanism.extend(np.concatenate([stream.head, body]))
        curves[f"ToPS, ε = {epsilon}"] = _windows(released)
    for epsilon in ("0.1", "1"):
        pak = Pak(stream.bound, epsilon, source(options.seed, 1, "fig2"), fanout=2)
        pak.extend(stream.head)
        flat = pak.extend(body)
        nodes = flat[_leaf_places(len(body), 20)]
        curves[f"PAK, ε = {epsilon} (θ = {pak.theta})"] = _windows(nodes)
    curves["Base"] = (curves["truth"][0], [0.0] * len(truth))
    for name, (_, y) in curves.items():
        rows.append([name, float(np.sqrt(np.mean((np.asarray(y) - truth) ** 2)))])
    panels = [
        Panel(
            f"{method}, {stream.name}",
            "value number",
            f"mean of {_WINDOW} values",
            {name: curve for name, curve in curves.items() if name.startswith((method, "truth", "Base"))},
            logarithmic=False,
        )
        for method in ("ToPS", "PAK")
    ]
    return Outcome(f"ToPS, figure 2 ({stream.name})", ["method", "RMSE of a window's mean"], rows, [EVENT], panels)


def fig3(options: Options) -> Outcome:
    """End to end: MSE of 200 random range queries over ε."""
    return _end_to_end(options, ("mse",), "ToPS, figure 3: MSE, end to end")


def fig10(options: Options) -> Outcome:
    """End to end in other metrics: mean absolute error, and both errors of means instead of sums."""
    return _end_to_end(options, ("mae", "mmae", "mmse"), "ToPS, figure 10: MAE, MMAE, MMSE, end to end")


def fig4(options: Options) -> Outcome:
    """Smoothers, at the 95 % quantile, against the truncated truth."""

    def trials(stream: Stream, theta: int, epsilon: str) -> dict[str, Trial]:
        def smoothed(name: str) -> Trial:
            return lambda i: tops_answers(stream, theta, epsilon, source(options.seed, i, "fig4"), None, name)

        return {name: smoothed(name) for name in SMOOTHERS}

    return _at_quantile(options, trials, "ToPS, figure 4: smoothers (MSE)")


def fig5(options: Options) -> Outcome:
    """Hierarchies, at the 95 % quantile, against the truncated truth."""

    def trials(stream: Stream, theta: int, epsilon: str) -> dict[str, Trial]:
        def bytes_(i: int) -> FreshBytes:
            return source(options.seed, i, "fig5")

        return {
            "H2": lambda i: hierarchy_answers(stream, theta, epsilon, bytes_(i), 2),
            "H16": lambda i: hierarchy_answers(stream, theta, epsilon, bytes_(i), 16),
            "H16 consistent": lambda i: tops_answers(stream, theta, epsilon, bytes_(i), 0),
            "H16 consistent, smoothed": lambda i: tops_answers(stream, theta, epsilon, bytes_(i)),
        }

    found = _at_quantile(options, trials, "ToPS, figure 5: hierarchies (MSE)")
    constants = ", ".join(f"{name} {k:.6g}" for name, k in noise_constants().items())
    notes = [*found.notes, f"Noise-only MSE = Kθ²/ε² of these queries, exact and without data: K = {constants}."]
    return Outcome(found.title, found.columns, found.rows, notes, found.panels)


def noise_constants() -> dict[str, float]:
    """K: twice the squared levels times the mean number of node variances in the answer to a query."""
    queries = QUERIES.tolist()
    found = {}
    for fanout in (2, 16):
        levels = levels_for(fanout, R)
        plain = np.mean([cover_size(a, b, fanout, levels) for a, b in queries])
        consistent = np.mean([consistent_variance(a, b, fanout, levels) for a, b in queries])
        found[f"H{fanout}"] = float(2 * levels**2 * plain)
        found[f"H{fanout} consistent"] = float(2 * levels**2 * consistent)
    return found


def _end_to_end(options: Options, metrics: tuple[str, ...], title: str) -> Outcome:
    rows: list[list[str | float]] = []
    panels = []
    for stream in streams(options):
        truth = range_sums(stream.body)
        curves: dict[str, dict[str, list[float]]] = {metric: {} for metric in metrics}
        for epsilon in EPSILONS:
            for name, trial in _methods(options, stream, epsilon, truth).items():
                found = mean_errors(trial, truth, 1 if name == "Base" else options.repeats or SHORT)
                rows.append([stream.name, float(epsilon), name, *(getattr(found, metric) for metric in metrics)])
                for metric in metrics:
                    curves[metric].setdefault(name, []).append(getattr(found, metric))
        x = [float(epsilon) for epsilon in EPSILONS]
        for metric, lines in curves.items():
            panels.append(Panel(stream.name, "ε", metric.upper(), {name: (x, y) for name, y in lines.items()}))
    columns = ["stream", "ε", "method", *(metric.upper() for metric in metrics)]
    return Outcome(title, columns, rows, [EVENT, _protocol(options)], panels)


def _methods(options: Options, stream: Stream, epsilon: str, truth: Answers) -> dict[str, Trial]:
    def under(theta: Callable[[int], int], publish: Callable[[int, int], Answers]) -> Trial:
        return lambda i: publish(theta(i), i)

    def nm(i: int) -> int:
        return noisy_max_threshold(stream, epsilon, source(options.seed, i, "theta"))

    def nm_paper(i: int) -> int:
        return noisy_max_threshold(stream, epsilon, source(options.seed, i, "theta"), "count")

    def s_pak(i: int) -> int:
        return quantile_threshold(stream, epsilon, source(options.seed, i, "theta"), "s-pak")

    def consistent(theta: int, i: int) -> Answers:
        return tops_answers(stream, theta, epsilon, source(options.seed, i, "publish"))

    def binary(theta: int, i: int) -> Answers:
        return hierarchy_answers(stream, theta, epsilon, source(options.seed, i, "publish"), 2)

    return {
        "ToPS": under(nm, consistent),
        "ToPS, paper's c = 60": under(nm_paper, consistent),
        "NM-E + H2": under(nm, binary),
        "S-PAK + H16 consistent, smoothed": under(s_pak, consistent),
        "PAK": under(s_pak, binary),
        "Base": lambda _: np.zeros_like(truth),
    }


def _at_quantile(options: Options, trials: Callable[[Stream, int, str], dict[str, Trial]], title: str) -> Outcome:
    rows: list[list[str | float]] = []
    panels = []
    for stream in streams(options):
        theta = stream.percentile(0.95)
        truth = range_sums(np.minimum(stream.body, theta))
        curves: dict[str, list[float]] = {}
        for epsilon in EPSILONS:
            for name, trial in trials(stream, theta, epsilon).items():
                mse = mean_errors(trial, truth, options.repeats or SHORT).mse
                rows.append([stream.name, float(epsilon), name, mse])
                curves.setdefault(name, []).append(mse)
            rows.append([stream.name, float(epsilon), "Base", base_mse(truth)])
            curves.setdefault("Base", []).append(base_mse(truth))
        x = [float(epsilon) for epsilon in EPSILONS]
        panels.append(Panel(f"{stream.name}, θ = {theta}", "ε", "MSE", {name: (x, y) for name, y in curves.items()}))
    note = "θ = the 95 % quantile; the truth is truncated at it."
    return Outcome(title, ["stream", "ε", "method", "MSE"], rows, [EVENT, note, _protocol(options)], panels)


def _protocol(options: Options) -> str:
    return f"200 random ranges, {options.repeats or SHORT} repeats (the paper: 100); Base answers 0."


def _windows(values: np.ndarray) -> Curve:
    whole = values[: len(values) // _WINDOW * _WINDOW].reshape(-1, _WINDOW).mean(axis=1)
    return (np.arange(len(whole)) * _WINDOW).tolist(), whole.tolist()


def _leaf_places(leaves: int, levels: int) -> np.ndarray:
    """Places of the leaves among the nodes that a binary hierarchy releases."""
    before = np.arange(leaves)
    return np.asarray(sum(before // 2**h for h in range(levels)))

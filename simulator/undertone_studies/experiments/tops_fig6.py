"""Experiment: Figure 6 of ToPS."""

from undertone_studies.outcome import Outcome, against_base
from undertone_studies.registry import StudyOptions
from undertone_studies.tops_methods import (
    EPSILONS,
    SHORT,
    base_mse,
    mean_errors,
)
from undertone_studies.tops_streams import range_sums, streams
from undertone_studies.tops_threshold import EVENT, PERCENTILES, at, choosing, protocol

TITLE = "ToPS, figure 6: percentiles as threshold (MSE)"
PARAGRAPH = (
    "The figure takes six quantiles of the values as θ. In the paper, no single quantile is good for all streams and "
    "all ε, and the paper's choice NM-E comes close to the best quantile. Here NM-E also comes close: its error is at "
    "most 2.2 times that of the best quantile. But here one quantile is good throughout: 99.9 % is the best of the six "
    "on every stream at all ε except the smallest. At the smallest ε, 99.5 % is the best, and the error with 99.9 % is "
    "at most 1.5 times the error with 99.5 %. A wrong quantile costs much: with 85 %, the error is 45 to 1,900 times "
    "that of the best quantile."
)


def run(options: StudyOptions) -> Outcome:
    """Compare true percentiles as θ with ToPS's choice by the noisy maximum."""
    rows: list[list[str | float]] = []
    panels = []
    for stream in streams(options):
        truth = range_sums(stream.body)
        curves: dict[str, list[float]] = {}
        for epsilon in EPSILONS:
            methods = {f"p{100 * p:g}": at(stream, stream.percentile(p), epsilon, options.seed) for p in PERCENTILES}
            methods["NM-E"] = choosing(stream, "NM-E", epsilon, epsilon, options.seed, [])
            mse = {name: mean_errors(trial, truth, options.repeats or SHORT).mse for name, trial in methods.items()}
            for name, error in {**mse, "Base": base_mse(truth)}.items():
                rows.append([stream.name, float(epsilon), name, error])
                curves.setdefault(name, []).append(error)
        x = [float(epsilon) for epsilon in EPSILONS]
        panels.append(against_base(stream.name, "ε", x, curves))
    notes = [
        EVENT,
        "The percentiles are computed from the held-out values without noise. A private method cannot do this.",
        protocol(options),
    ]
    return Outcome(TITLE, ["stream", "ε", "θ", "MSE"], rows, notes, panels)

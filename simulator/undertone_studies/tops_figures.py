"""Shared code of Figures 2 to 5 and 10 of ToPS: errors of whole releases, smoothers and hierarchies."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from undertone_aggregator.base.plural import many
from undertone_studies.outcome import Cell, Outcome, against_base
from undertone_studies.panel import Panel
from undertone_studies.registry import StudyOptions
from undertone_studies.tops_methods import (
    EPSILONS,
    SHORT,
    Answers,
    Trial,
    base_mse,
    hierarchy_answers,
    mean_errors,
    noisy_max_threshold,
    quantile_threshold,
    released_answers,
    source,
    tops_answers,
)
from undertone_studies.tops_streams import TopsStream, range_sums, streams

EVENT = (
    "The guarantee is for each value (event level). PAK and methods with S-PAK have (ε, δ) with δ = 1/m², where m is "
    "the number of values from which θ is chosen. All other methods have pure ε."
)
PURE = (
    "The guarantee is pure ε for each value that is released (event level). θ is computed from the held-out values "
    "without noise, so these held-out values have no guarantee."
)


def end_to_end(options: StudyOptions, metrics: tuple[str, ...], title: str) -> Outcome:
    rows: list[list[str | float]] = []
    for stream in streams(options):
        truth = range_sums(stream.body)
        for epsilon in EPSILONS:
            for name, trial in _methods(options, stream, epsilon, truth).items():
                error = mean_errors(trial, truth, 1 if name == "Base" else options.repeats or SHORT)
                rows.append([stream.name, float(epsilon), name, *(getattr(error, metric) for metric in metrics)])
    columns = ["stream", "ε", "method", *(metric.upper() for metric in metrics)]
    return Outcome(title, columns, rows, [EVENT, protocol(options)], end_to_end_panels(columns, rows))


def end_to_end_panels(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[Panel]:
    """Return a panel for each metric and stream of the rows of `end_to_end`."""
    panels = []
    for place, metric in enumerate(columns[3:], 3):
        for stream in dict.fromkeys(str(row[0]) for row in rows):
            of = [row for row in rows if row[0] == stream]
            x = sorted({float(row[1]) for row in of})
            curves = {
                name: [float(row[place]) for row in of if row[2] == name]
                for name in dict.fromkeys(str(row[2]) for row in of)
            }
            title = stream if len(columns) == 4 else f"{stream}, {metric}"
            panels.append(replace(against_base(title, "ε", x, curves), y=metric))
    return panels


def _methods(options: StudyOptions, stream: TopsStream, epsilon: str, truth: Answers) -> dict[str, Trial]:
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

    def shipped(i: int) -> Answers:
        return released_answers(stream, epsilon, source(options.seed, i, "release"))

    def authors(i: int) -> Answers:
        bytes_ = source(options.seed, i, "release")
        return released_answers(stream, epsilon, bytes_, smoothing="paper", smoother="recent")

    return {
        "ToPS": shipped,
        "ToPS, authors' smoothing": authors,
        "ToPS, paper's c = 60": under(nm_paper, consistent),
        "NM-E + H2": under(nm, binary),
        "S-PAK + H16 consistent, smoothed": under(s_pak, consistent),
        "PAK": under(s_pak, binary),
        "Base": lambda _: np.zeros_like(truth),
    }


def at_quantile(
    options: StudyOptions, trials: Callable[[TopsStream, int, str], dict[str, Trial]], title: str
) -> Outcome:
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
        panels.append(against_base(f"{stream.name}, θ = {theta}", "ε", x, curves))
    note = (
        "θ is the 95 % quantile of the held-out values. The answers are compared with sums of values that are cut off "
        "at θ."
    )
    return Outcome(title, ["stream", "ε", "method", "MSE"], rows, [PURE, note, protocol(options)], panels)


def protocol(options: StudyOptions) -> str:
    return (
        f"Each error is from 200 random ranges and {many(options.repeats or SHORT, 'repeat')} (the paper has 100 "
        "repeats). Base always answers 0."
    )

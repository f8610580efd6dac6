"""Experiment: Figure 2 of ToPS."""

import numpy as np

from undertone_central import Pak, Tops
from undertone_studies.outcome import Outcome
from undertone_studies.panel import Curve, Panel
from undertone_studies.registry import StudyOptions
from undertone_studies.tops_figures import EVENT
from undertone_studies.tops_methods import (
    source,
)
from undertone_studies.tops_streams import WINDOW, R, one_stream, windows

TITLE = "ToPS, figure 2: end to end on DNS"
PARAGRAPH = (
    "In the paper, the means that ToPS publishes follow the stream, and the means that PAK publishes with the same ε "
    "show nothing of the stream. Here both are true at ε = 0.1. The threshold of PAK at this ε is the public bound, "
    "which is seventy times the largest value of our part of the data."
)


def run(options: StudyOptions) -> Outcome:
    """Run ToPS at ε = 0.05 and 0.1, and PAK at ε = 0.1 and 1, once each on DNS; show means over 4096 values."""
    stream = one_stream(options, "DNS")
    body = stream.body[: R // 8] if options.quick else stream.body
    curves: dict[str, Curve] = {"truth": windows(body)}
    rows: list[list[str | float]] = []
    truth = np.asarray(curves["truth"][1])
    for epsilon in ("0.05", "0.1"):
        mechanism = Tops(stream.bound, epsilon, source(options.seed, 0, "fig2"))
        released = mechanism.extend(np.concatenate([stream.head, body]))
        curves[f"ToPS, ε = {epsilon}"] = windows(released)
    for epsilon in ("0.1", "1"):
        pak = Pak(stream.bound, epsilon, source(options.seed, 1, "fig2"), fanout=2)
        pak.extend(stream.head)
        flat = pak.extend(body)
        nodes = flat[_leaf_places(len(body), 20)]
        curves[f"PAK, ε = {epsilon} (θ = {pak.theta})"] = windows(nodes)
    curves["Base"] = (curves["truth"][0], [0.0] * len(truth))
    for name, (_, y) in curves.items():
        rows.append([name, float(np.sqrt(np.mean((np.asarray(y) - truth) ** 2)))])
    shown = {name: curve for name, curve in curves.items() if not name.startswith("PAK")}
    errors_ = {name: (x, np.abs(np.asarray(y) - truth).tolist()) for name, (x, y) in curves.items() if name != "truth"}
    panels = [
        Panel(stream.name, "value number", f"mean of {WINDOW} values", shown, logarithmic=False),
        Panel("off by", "value number", "absolute error of that mean", errors_, better="lower"),
    ]
    return Outcome(f"ToPS, figure 2 ({stream.name})", ["method", "RMSE of a window's mean"], rows, [EVENT], panels)


def _leaf_places(leaves: int, levels: int) -> np.ndarray:
    """Return the places of the leaves among the nodes that a binary hierarchy releases."""
    before = np.arange(leaves)
    return np.asarray(sum(before // 2**h for h in range(levels)))

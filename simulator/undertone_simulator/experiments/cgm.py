"""Error of the population mean against ε for every stream method: tables and figures of docs/cgm.md.

    python -m undertone_simulator.experiments.cgm DATA OUT [NAME ...]

DATA holds the data files (real populations are skipped without them), OUT gets `cgm-NAME.md` and three figures,
`cgm-NAME-epsilon.png`, `cgm-NAME.png` and `cgm-NAME-slew.png`. Clipping bias is exact, from the data; noise is exact
where raw, and drawn where it is smoothed. A fleet of another size than the data's is a scaling: the same bias, the
noise of so many devices.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design.stream.calibration import epsilon_of, mu
from undertone_aggregator.design.stream.methods import Method, all_methods, logarithmic, select
from undertone_aggregator.stream.smooth import smooth
from undertone_simulator.experiments.cgm_populations import REAL, SYNTHETIC, Streams

Array = NDArray[np.float64]

DELTA = 1e-5
EPSILONS = (0.25, 0.5, 1.0, 2.0)
# Those of the tables.
SHOWN = (0.5, 1.0, 2.0)
SCALED = (100_000, 1_000_000)
DRAWN = ("direct", "paper", "closed-form", "one-bit")
_SEED = 77
# The smallest reading that the logarithm tells apart, as a share of the range.
_LEAST = 0.01


@dataclass(frozen=True)
class Outcome:
    """Mean squared error [slots] of the raw population mean: ``bias`` squared, and ``noise`` of one device."""

    method: Method
    bias: Array
    noise: Array

    def raw(self, devices: int) -> float:
        """Root mean square error of the raw means."""
        return sqrt(float(np.mean(self.bias**2 + self.noise / devices)))


def outcome(streams: Streams, method: Method) -> Outcome:
    """Bias per window and slot, and noise; a slot that is not reported repeats the last one."""
    source = np.searchsorted(method.seen, np.arange(streams.slots), side="right") - 1
    bias = [released_mean(method, window)[source] - window.mean(axis=0) for window in streams.windows]
    return Outcome(method, np.stack(bias), np.diag(method.covariance)[source])


def released_mean(method: Method, window: Array) -> Array:
    """The expected population mean at the reported slots."""
    clipped = method.clipped(window)
    if method.transform is None:
        return np.asarray(clipped.mean(axis=0))
    # Every device's release is taken back by itself, so that its noise biases it.
    rng = np.random.default_rng(_SEED)
    factor = np.linalg.cholesky(method.covariance)
    draws = [
        method.transform[1](clipped + rng.standard_normal(clipped.shape) @ factor.T).mean(axis=0) for _ in range(3)
    ]
    return np.asarray(np.mean(draws, axis=0))


def smoothed_error(streams: Streams, method: Method, devices: int, rng: np.random.Generator) -> float:
    """Root mean square error of one smoothed run per window; slots that are not reported are interpolated."""
    noise = method.covariance / devices
    factor = np.linalg.cholesky(noise)
    squares = []
    for window in streams.windows:
        seen = released_mean(method, window) + factor @ rng.standard_normal(len(noise))
        fit = smooth(method.seen.tolist(), seen, noise, cycle=streams.cycle)
        estimate = np.interp(np.arange(streams.slots), method.seen, fit.mean)
        squares.append(np.mean((estimate - window.mean(axis=0)) ** 2))
    return sqrt(float(np.mean(squares)))


def methods_for(streams: Streams, slew: str, epsilon: float) -> list[Method]:
    """Every method and the logarithmic variant of what ships."""
    found = all_methods(Fraction(slew), streams.slots, epsilon, DELTA, per_report=streams.per_report)
    return [*found, logarithmic(select(found, "closed-form"), _LEAST)]


def table(streams: Streams) -> list[str]:
    """The Markdown table at the middle slew."""
    slew = streams.slews[1]
    fleets = (streams.devices, *SCALED)
    lines = [
        f"Root mean square error of the population mean in {streams.unit}, C = {slew} of the range {streams.range:g};"
        f" raw / smoothed. n = {streams.devices}: the data's own fleet; the others are scaled (same clipping bias,"
        " noise of so many devices).",
        "",
        "| method | clipping bias | " + " | ".join(f"ε = {e:g}, n = {n:,}" for e in SHOWN for n in fleets) + " |",
        "|---|---|" + "---|" * (len(SHOWN) * len(fleets)),
    ]
    cells: dict[str, list[str]] = {}
    biases: dict[str, str] = {}
    for epsilon in SHOWN:
        for method in methods_for(streams, slew, epsilon):
            found = outcome(streams, method)
            if method.transform is None:
                error = sqrt(float(np.mean(found.bias**2)))
                biases[method.name] = f"{streams.range * error:.3g}" if error > 1e-12 else "0"
            for devices in fleets:
                cells.setdefault(method.name, []).append(_cell(streams, found, devices))
    return lines + [
        f"| {name} | {biases.get(name, 'grows with noise')} | " + " | ".join(row) + " |" for name, row in cells.items()
    ]


def _cell(streams: Streams, found: Outcome, devices: int) -> str:
    method = found.method
    if method.transform is not None:
        error = float(np.max(np.abs(found.bias)))
        return f"{streams.range * error:.3g} (largest bias)" if error < 1 else "useless: bias above the range"
    smoothed = smoothed_error(streams, method, devices, np.random.default_rng(_SEED))
    return f"{streams.range * found.raw(devices):.3g} / {streams.range * smoothed:.3g}"


def budget(streams: Streams) -> list[str]:
    """What the budget is: of a stream, or per report and then of the stream as well."""
    if not streams.per_report:
        return [f"(ε, δ = {DELTA:g}) is of all {streams.slots} reports of a stream together (user level)."]
    total = [f"{epsilon_of(sqrt(streams.slots) * mu(e, DELTA), DELTA):.1f} for ε = {e:g}" for e in EPSILONS]
    return [
        f"(ε, δ = {DELTA:g}) is of each report by itself, as in the paper, which is no guarantee for the stream: "
        f"all {streams.slots} reports together are (ε', {DELTA:g}) with ε' = {', '.join(total)}."
    ]


def draw(streams: Streams, path: Path) -> None:
    """In the manner of the paper's Figures 1 and 2: mean squared error of the mean by slot, one panel per ε."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    for i, epsilon in enumerate(EPSILONS):
        axes = figure.add_subplot(1, len(EPSILONS), i + 1)
        found = {m.name: m for m in methods_for(streams, streams.slews[1], epsilon)}
        for name in (*DRAWN, "filter"):
            one = outcome(streams, found[name])
            axes.semilogy(streams.range**2 * np.mean(one.bias**2 + one.noise / streams.devices, axis=0), label=name)
        axes.set_title(f"ε = {epsilon:g}", fontsize=9)
        axes.set_xlabel("report")
        if i == 0:
            axes.set_ylabel(f"MSE of the mean, {streams.unit}²")
            axes.legend(fontsize=7)
    figure.suptitle(f"{streams.label}; C = {streams.slews[1]}, n = {streams.devices}", fontsize=9)
    figure.savefig(path, dpi=110)


def draw_slews(streams: Streams, path: Path) -> None:
    """In the manner of Figures 3 and 4: the effect of C, for the paper's calibration and for what ships."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    for i, epsilon in enumerate(EPSILONS):
        axes = figure.add_subplot(1, len(EPSILONS), i + 1)
        for slew, colour in zip(streams.slews, ("tab:blue", "tab:orange", "tab:green"), strict=True):
            found = {m.name: m for m in methods_for(streams, slew, epsilon)}
            for name, style in (("paper", ":"), ("closed-form", "-")):
                one = outcome(streams, found[name])
                error = streams.range**2 * np.mean(one.bias**2 + one.noise / streams.devices, axis=0)
                axes.semilogy(error, style, color=colour, label=f"{name}, C = {slew}")
        axes.set_title(f"ε = {epsilon:g}", fontsize=9)
        axes.set_xlabel("report")
        if i == 0:
            axes.set_ylabel(f"MSE of the mean, {streams.unit}²")
            axes.legend(fontsize=6)
    figure.suptitle(f"{streams.label}; n = {streams.devices}", fontsize=9)
    figure.savefig(path, dpi=110)


def draw_epsilons(streams: Streams, path: Path) -> None:
    """Root mean square error of the raw mean against ε, every method, one panel per fleet size."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    epsilons = (0.25, 0.5, 1.0, 2.0, 4.0)
    found = {e: [outcome(streams, m) for m in methods_for(streams, streams.slews[1], e)[:-1]] for e in epsilons}
    figure = Figure(figsize=(13, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    for i, devices in enumerate((streams.devices, *SCALED)):
        axes = figure.add_subplot(1, 3, i + 1)
        for number, one in enumerate(found[1.0]):
            errors = [streams.range * found[e][number].raw(devices) for e in epsilons]
            axes.loglog(epsilons, errors, marker=".", linewidth=1, label=one.method.name)
        scaled = "the data's own fleet" if i == 0 else "scaled"
        axes.set_title(f"n = {devices:,} ({scaled})", fontsize=9)
        axes.set_xlabel("ε")
        if i == 0:
            axes.set_ylabel(f"RMSE of the mean, {streams.unit}")
            axes.legend(fontsize=6, ncols=2)
    figure.suptitle(f"{streams.label}; C = {streams.slews[1]}", fontsize=9)
    figure.savefig(path, dpi=110)


def run(data: Path, out: Path, names: Sequence[str]) -> list[Path]:
    """Write the results of the named populations; those whose data file is absent are left out and said to be."""
    written = []
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        try:
            streams = REAL[name](data) if name in REAL else SYNTHETIC[name]()
        except FileNotFoundError as missing:
            print(f"{name}: left out, {missing.filename} is not here", file=sys.stderr)
            continue
        text = [f"### {streams.label}", "", *budget(streams), *table(streams), ""]
        for kind in ("-epsilon", "", "-slew"):
            text += [f"![{name}{kind}](cgm-{name}{kind}.png)", ""]
        (out / f"cgm-{name}.md").write_text("\n".join(text))
        draw(streams, out / f"cgm-{name}.png")
        draw_slews(streams, out / f"cgm-{name}-slew.png")
        draw_epsilons(streams, out / f"cgm-{name}-epsilon.png")
        written.append(out / f"cgm-{name}.md")
        print(out / f"cgm-{name}.md")
    return written


if __name__ == "__main__":
    if len(sys.argv) < 3 or not {*sys.argv[3:]} <= {*REAL, *SYNTHETIC}:
        print(f"usage: cgm DATA OUT [{' | '.join([*REAL, *SYNTHETIC])} ...]", file=sys.stderr)
        sys.exit(2)
    run(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:] or [*REAL, *SYNTHETIC])

"""Error of the population mean against ε for every stream method, on real data and on synthetic stand-ins.

Clipping bias is computed exactly from the data. The noise of raw series is computed exactly, that of smoothed series is
drawn. For a fleet of another size than the data's, the bias is the same, and the noise is for that size. The figures
show errors against ε. `undertone_studies.cgm_figures` has the figures of Bao et al. (PVLDB 2021): the error by report,
and the effect of the slew C.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design.stream.calibration import epsilon_of, mu
from undertone_aggregator.design.stream.methods import Method, all_methods, logarithmic, select
from undertone_aggregator.design.stream.smoother import fit_gaussian_process
from undertone_shared.errors import Invalid
from undertone_studies.cgm_populations import CgmStreams
from undertone_studies.outcome import Outcome
from undertone_studies.panel import Curve, Panel
from undertone_studies.registry import StudyOptions

Array = NDArray[np.float64]

DELTA = 1e-5
EPSILONS = (0.25, 0.5, 1.0, 2.0)
# Values of ε in the table and the figures of `compare`.
SHOWN = (0.5, 1.0, 2.0)
SCALED = (100_000, 1_000_000)
DRAWN = ("direct", "paper", "closed-form", "one-bit", "filter")
# The smallest reading, as a share of the range, that the logarithmic method distinguishes from smaller ones.
_LEAST = 0.01
# Largest number of slots of a short stream; smoothing a longer one takes minutes for each slew.
_SHORT = 100
# Number of reports of a quick comparison.
_QUICK = 24


def real(read: Callable[[Path], CgmStreams], options: StudyOptions) -> CgmStreams:
    if options.data is None:
        raise Invalid("this experiment needs the real data sets: name their folder with --data")
    try:
        return read(options.data)
    except FileNotFoundError as missing:
        raise Invalid(f"this experiment needs the file {missing.filename}, which does not exist") from None


@dataclass(frozen=True)
class Error:
    """Error of one method: the mean's ``bias`` [windows, slots]; ``noise`` [slots]: variance of one device's noise."""

    method: Method
    bias: Array
    noise: Array

    def raw(self, devices: int) -> float:
        """Return the root mean square error of the raw means of ``devices`` devices."""
        return sqrt(float(np.mean(self.bias**2 + self.noise / devices)))

    def by_slot(self, devices: int) -> list[float]:
        """Return the mean squared error of the raw mean [slots]."""
        return [float(x) for x in np.mean(self.bias**2 + self.noise / devices, axis=0)]


def error_of(streams: CgmStreams, method: Method, seed: int = 1) -> Error:
    """Return the error of a method; a slot that is not reported repeats the last reported slot."""
    source = np.searchsorted(method.seen, np.arange(streams.slots), side="right") - 1
    bias = [released_mean(method, window, seed)[source] - window.mean(axis=0) for window in streams.windows]
    return Error(method, np.stack(bias), np.diag(method.covariance)[source])


def released_mean(method: Method, window: Array, seed: int = 1) -> Array:
    """Return the expected population mean at the reported slots."""
    clipped = method.clipped(window)
    if method.transform is None:
        return np.asarray(clipped.mean(axis=0))
    # Each device's noisy release is transformed back from logarithms, which biases the mean. The expected value is
    # estimated from three draws of the noise.
    rng, factor = np.random.default_rng(seed), np.linalg.cholesky(method.covariance)
    noisy = (clipped + rng.standard_normal(clipped.shape) @ factor.T for _ in range(3))
    return np.asarray(np.mean([method.transform[1](release).mean(axis=0) for release in noisy], axis=0))


def smoothed_error(streams: CgmStreams, method: Method, devices: int, seed: int) -> float:
    """Return the root mean square error of one smoothed run per window; slots without reports are interpolated."""
    rng = np.random.default_rng(seed)
    noise = method.covariance / devices
    factor = np.linalg.cholesky(noise)
    squares = []
    for window in streams.windows:
        seen = released_mean(method, window) + factor @ rng.standard_normal(len(noise))
        fit = fit_gaussian_process(method.seen.tolist(), seen, noise, cycle=streams.cycle)
        estimate = np.interp(np.arange(streams.slots), method.seen, fit.mean)
        squares.append(np.mean((estimate - window.mean(axis=0)) ** 2))
    return sqrt(float(np.mean(squares)))


def methods_for(streams: CgmStreams, slew: str, epsilon: float) -> list[Method]:
    """Return all methods to compare; the last one is the logarithmic variant of the shipped method."""
    methods = all_methods(Fraction(slew), streams.slots, epsilon, DELTA, per_report=streams.per_report)
    return [*methods, logarithmic(select(methods, "closed-form"), _LEAST)]


def compare(streams: CgmStreams, options: StudyOptions) -> Outcome:
    """Return the table and the panels of the comparison. Only short streams are compared at every slew.

    A quick comparison uses only the first reports of one window, at one ε.
    """
    seed, shown = options.seed, SHOWN[1:2] if options.quick else SHOWN
    if options.quick:
        streams = replace(streams, windows=(streams.windows[0][:, :_QUICK],))
    slews = streams.slews if streams.slots <= _SHORT and not options.quick else streams.slews[1:2]
    fleets = (streams.devices, *SCALED)
    columns = ["C", "method", "clipping bias", *(f"ε = {e:g}, n = {n:,}" for e in shown for n in fleets)]
    cells: dict[tuple[str, str], list[str]] = {}
    for slew, epsilon in product(slews, shown):
        for method in methods_for(streams, slew, epsilon):
            of_method = error_of(streams, method, seed)
            row = cells.setdefault((slew, method.name), [_bias(streams, of_method)])
            row += [_cell(streams, of_method, devices, seed) for devices in fleets]
    notes = [
        "Each cell has two root mean square errors of the population mean, raw / smoothed: before smoothing, and "
        "after it. The smoothed error is from one simulated run for each window of the data. The cells of "
        "`log-closed-form` have the largest bias of a slot instead: this method computes with logarithms of the "
        "readings, so its noise biases the mean. A device clips steps of more than C, a share of the range. If n is "
        "not the number of devices in the data, the bias from clipping is that of the data, and the noise is that of "
        "n devices.",
        f"The data have {streams.devices} devices. Errors are in {streams.unit}; the range is {streams.range:g} "
        f"{streams.unit}.",
        budget(streams),
    ]
    rows = [[*names, *row] for names, row in cells.items()]
    return Outcome(streams.label, columns, rows, notes, _panels(streams, seed, shown))


def _bias(streams: CgmStreams, of_method: Error) -> str:
    if of_method.method.transform is not None:
        return "grows with noise"
    error = sqrt(float(np.mean(of_method.bias**2)))
    return f"{streams.range * error:.3g}" if error > 1e-12 else "0"


def _cell(streams: CgmStreams, of_method: Error, devices: int, seed: int) -> str:
    if of_method.method.transform is not None:
        error = float(np.max(np.abs(of_method.bias)))
        return f"{streams.range * error:.3g} (largest bias)" if error < 1 else "useless: bias above the range"
    smoothed = smoothed_error(streams, of_method.method, devices, seed)
    return f"{streams.range * of_method.raw(devices):.3g} / {streams.range * smoothed:.3g}"


def budget(streams: CgmStreams) -> str:
    """Return a sentence that says whether (ε, δ) is for a whole stream or for each report."""
    if not streams.per_report:
        return f"(ε, δ = {DELTA:g}) is for all {streams.slots} reports of a stream together (user level)."
    total = [f"{epsilon_of(sqrt(streams.slots) * mu(e, DELTA), DELTA):.1f} for ε = {e:g}" for e in EPSILONS]
    return (
        f"(ε, δ = {DELTA:g}) is for each report by itself, as in the paper. The guarantee for the stream is much "
        f"weaker: all {streams.slots} reports together have (ε', {DELTA:g}) with ε' = {', '.join(total)}."
    )


def _panels(streams: CgmStreams, seed: int, shown: Sequence[float]) -> list[Panel]:
    """Return panels of raw and of smoothed errors, for a fleet as large as the data's and for the largest fleet."""
    slew, panels = streams.slews[1], []
    errors = {e: [error_of(streams, m) for m in methods_for(streams, slew, e) if m.name in DRAWN] for e in shown}
    for devices in (streams.devices, SCALED[-1]):
        whose = "the data's own fleet" if devices == streams.devices else "scaled"
        raw: dict[str, Curve] = {}
        smoothed: dict[str, Curve] = {}
        for place, error in enumerate(errors[shown[0]]):
            name = error.method.name
            raw[name] = (shown, [streams.range * errors[e][place].raw(devices) for e in shown])
            runs = [smoothed_error(streams, errors[e][place].method, devices, seed) for e in shown]
            smoothed[name] = (shown, [streams.range * run for run in runs])
        for title, curves in (("raw", raw), ("smoothed", smoothed)):
            panels.append(
                Panel(
                    f"{title}, n = {devices:,} ({whose})",
                    "ε of a stream" if not streams.per_report else "ε of a report",
                    f"RMSE of the mean, {streams.unit}",
                    curves,
                    logarithmic_x=True,
                    better="lower",
                )
            )
    return panels

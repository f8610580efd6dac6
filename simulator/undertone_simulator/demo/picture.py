"""The demonstration's picture: the estimated stream against the truth, θ, and the cost for a household.

It also compares the errors of the papers' way of collecting and of the default.
"""

import math
from functools import singledispatch
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from undertone_aggregator.base.plural import many
from undertone_aggregator.design.budget import shown
from undertone_aggregator.estimate.estimates import Z
from undertone_simulator.demo.plan import DemoResult
from undertone_simulator.demo.reports import ReportsResult
from undertone_simulator.demo.stream import StreamResult

BLUE = "#1f5fa8"
LIGHT = "#a8c8ec"
ORANGE = "#d9601a"
GREY = "#6b6f76"
LIGHT_GREY = "#b4b8be"
INK = "#22262b"


@singledispatch
def draw(result: DemoResult, path: Path) -> None:
    """Write a picture to `path`; the suffix gives the format (.png, .svg, .pdf). Raises OSError, or ValueError."""
    raise TypeError(f"no picture is known for a {type(result).__name__}")


@draw.register
def _reports(result: ReportsResult, path: Path) -> None:
    """Draw the estimated stream against the truth, θ, the errors of both ways of collecting, and the privacy cost."""
    figure = Figure(figsize=(14.0, 8.0), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 3, height_ratios=(1.75, 1.0), width_ratios=(1.25, 1.0, 1.0))
    _stream(figure.add_subplot(grid[0, :]), result)
    _threshold(figure.add_subplot(grid[1, 0]), result)
    _ways(figure.add_subplot(grid[1, 1]), result)
    _cost(figure.add_subplot(grid[1, 2]), result)
    protected = "per reading (event level)" if result.turns is None else f"for any {result.turns.window} s (turns)"
    figure.suptitle(
        f"Undertone: {result.devices} devices, ε = {shown(result.epsilon)} {protected}",
        fontsize=15,
        fontweight="bold",
        color=INK,
    )
    figure.savefig(path, dpi=130)


@draw.register
def _streams(result: StreamResult, path: Path) -> None:
    """Draw a panel for each coordinate."""
    coordinates = sorted({slot.coordinate for slot in result.slots})
    figure = Figure(figsize=(12.0, 1.0 + 4.5 * len(coordinates)), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    for coordinate in coordinates:
        slots = [slot for slot in result.slots if slot.coordinate == coordinate]
        axes = figure.add_subplot(len(coordinates), 1, coordinate)
        x = np.array([slot.slot - result.first_slot for slot in slots], dtype=float)
        estimate, error = (np.array([getattr(slot, name) for slot in slots]) for name in ("estimate", "standard_error"))
        axes.fill_between(x, estimate - Z * error, estimate + Z * error, color=LIGHT, alpha=0.75, label="95 % interval")
        axes.plot(x, estimate, color=BLUE, linewidth=1.6, label="estimate")
        axes.plot(x, [slot.smoothed for slot in slots], color=BLUE, linewidth=2.4, label="filtered")
        axes.plot(x, [slot.truth_clipped for slot in slots], color=ORANGE, linewidth=1.8, label="truth, clipped")
        axes.plot(x, [slot.truth_raw for slot in slots], color=INK, linewidth=1.3, linestyle="--", label="truth, raw")
        others = [way for way in result.ways if not way.played]
        for way, colour in zip(others, (GREY, LIGHT_GREY), strict=False):
            axes.plot(np.arange(len(way.estimates)), way.estimates, color=colour, linewidth=1.0, label=way.name)
        which = f", coordinate {coordinate}" if len(coordinates) > 1 else ""
        _tidy(axes, f"Mean reading of the devices in each slot, in {result.unit}{which}")
        axes.set_xlabel("report slot", color=GREY)
        axes.legend(frameon=False, ncols=4, fontsize=9.5)
    figure.suptitle(f"Undertone streams: {result.mechanism}", fontsize=15, fontweight="bold", color=INK)
    figure.savefig(path, dpi=130)


def _tidy(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=11.5, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e6e8eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=GREY, labelsize=9.5)
    for spine in axes.spines.values():
        spine.set_color("#c4c8ce")


def _stream(axes: Axes, result: ReportsResult) -> None:
    slots = result.slots
    x = np.array([slot.column for slot in slots], dtype=float)

    def series(name: str) -> list[float]:
        return [getattr(slot, name) for slot in slots]

    marks = "o" if len(slots) <= 96 else ""
    axes.fill_between(x, series("low"), series("high"), color=LIGHT, alpha=0.75, label="95 % interval of the mean")
    axes.plot(x, series("estimate"), color=BLUE, linewidth=1.0, marker=marks, markersize=4, label="estimate")
    axes.plot(x, series("filtered"), color=BLUE, linewidth=2.4, label="filtered")
    axes.plot(x, series("truth_raw"), color=ORANGE, linewidth=1.8, label="truth")
    axes.plot(
        x, series("truth_truncated"), color=INK, linewidth=1.3, linestyle=(0, (4, 2)), label="truth, truncated at θ"
    )
    # The raw means of the way that was not played, in the same half-hours.
    other = next((way for way in result.ways if not way.played and not way.filtered), None)
    if other is not None:
        columns = [result.first_column + slot.estimate.slot - other.first for slot in other.slots]
        means = [slot.estimate.estimate for slot in other.slots]
        axes.plot(columns, means, ".", color=GREY, markersize=5, label=f"{other.label}, simulated")
    _tidy(axes, f"Mean reading of the devices in each slot, in {result.unit}")
    axes.text(
        0.995,
        0.03,
        f"noise of a slot: {result.measured_error:.1f} {result.unit} measured, {result.predicted_error:.1f} predicted"
        f" (ratio {result.standardised:.2f}); {result.covered} of {len(slots)} intervals hold the truth",
        transform=axes.transAxes,
        ha="right",
        fontsize=9.5,
        color=GREY,
    )
    step = max(1, len(slots) // 8)
    # Ticks are at the slots whose half-hour of the data is a multiple of the step.
    ticks = [slot for slot in slots if slot.column % step == 0]
    axes.set_xticks(
        [slot.column for slot in ticks],
        [f"{result.played(slot.column)[-5:]}\n{slot.slot}" for slot in ticks],
    )
    axes.set_xlabel("time of day in the data, and the one-second slot (Unix second) that played it", color=GREY)
    axes.margins(x=0.01)
    if min(series("low")) > 0:
        axes.set_ylim(bottom=0)
    axes.legend(frameon=False, ncols=3, loc="upper left", fontsize=9.5, borderaxespad=0.2)
    top = axes.get_ylim()[1]
    axes.set_ylim(top=top + 0.1 * (top - axes.get_ylim()[0]))


def _threshold(axes: Axes, result: ReportsResult) -> None:
    readings = np.array(result.round_readings, dtype=float)
    most = float(max(np.quantile(readings, 0.9995), 1.6 * result.theta))
    bins = np.linspace(0.0, most, 61)
    width = bins[1] - bins[0]
    axes.hist(
        readings,
        bins=bins.tolist(),
        weights=np.full(len(readings), 100.0 / len(readings)),
        color="#d7dbe0",
        label="true readings of the rounds",
    )
    edges = np.asarray(result.threshold.edges, dtype=float)
    below = np.concatenate(([0.0], np.cumsum(np.asarray(result.threshold.density))))
    fitted = 100.0 * np.diff(np.interp(bins, edges, below))
    axes.stairs(fitted, bins, color=BLUE, linewidth=1.8, label="estimated from private reports")
    axes.axvline(result.theta, color=ORANGE, linewidth=2)
    share = float(np.mean(readings > result.theta)) * 100
    axes.text(
        result.theta + width * 0.6,
        0.62 * axes.get_ylim()[1],
        f"θ = {result.theta} {result.unit}\n{share:.1f} % of readings\nare truncated",
        color=ORANGE,
        fontsize=10,
        va="top",
    )
    for theta in {way.theta for way in result.ways} - {result.theta}:
        axes.axvline(theta, color=GREY, linewidth=1.5, linestyle="--", label=f"θ of the other way, {theta}")
    _tidy(axes, "Readings and the threshold θ: % of readings per bin")
    axes.set_xlabel(result.unit, color=GREY)
    axes.set_xlim(0, most)
    axes.legend(frameon=False, fontsize=9.5, loc="upper right")


def _ways(axes: Axes, result: ReportsResult) -> None:
    """Draw the predicted and the measured error of the papers' way and of the default."""
    y = np.arange(len(result.ways))
    for offset, name, colour in ((-0.2, "predicted", LIGHT), (0.2, "measured", BLUE)):
        errors = [getattr(way, f"{name}_error") for way in result.ways]
        axes.barh(y + offset, errors, height=0.36, color=colour, label=name)
    axes.set_yticks(
        y,
        [
            f"{way.label}, θ = {way.theta}\n{way.held} of {len(way.slots)} intervals hold the truth"
            for way in result.ways
        ],
    )
    axes.invert_yaxis()
    _tidy(axes, f"Error of a slot's mean, in {result.unit}")
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    # Room for the legend below the bars.
    axes.set_ylim(len(result.ways) + 0.1, -0.6)
    axes.legend(frameon=False, fontsize=9.5, ncols=2, loc="lower right")


def _cost(axes: Axes, result: ReportsResult) -> None:
    a_day = f"a played day\n({many(result.per_day, 'reading')})", result.per_day
    if result.turns is not None:
        a_day = f"any {result.turns.window} s\n(1 report)", 1
    spent = result.readings_spent
    spans = [("one reading", 1), a_day, (f"this demo\n({many(spent, 'reading')})", spent)]
    names = [name for name, _ in spans]
    costs = [float(result.epsilon * count) for _, count in spans]
    bars = axes.barh(names, costs, color=[BLUE, "#7f93ab", "#7f93ab"], height=0.62)
    axes.set_xscale("log")
    axes.set_xlim(min(costs) / 2, max(costs) * 6)
    for bar, cost in zip(bars, costs, strict=True):
        axes.text(
            cost * 1.12, bar.get_y() + bar.get_height() / 2, f"ε = {cost:g}", va="center", fontsize=10.5, color=INK
        )
    axes.invert_yaxis()
    _tidy(axes, "What a household has spent (log scale)")
    axes.grid(visible=False)
    axes.set_xlabel(f"ε (one report: odds × {math.exp(result.epsilon):.3g} at most)", color=GREY)
    axes.tick_params(axis="y", length=0, labelcolor=INK)

"""The picture of a simulated campaign: raw and filtered estimates against the truth, a panel for each coordinate."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from undertone_simulator.fast.simulated import Compared, Simulated

BLUE, LIGHT, ORANGE, GREY, INK = "#1f5fa8", "#a8c8ec", "#d9601a", "#6b6f76", "#22262b"


def draw(simulated: Simulated, path: Path) -> None:
    """Write the picture to `path`; the suffix gives the format (.png, .svg, .pdf). Raises OSError, or ValueError."""
    raw, filtered = simulated.compared(), simulated.compared(filtered=True)
    coordinates = sorted({each.estimate.series.coordinate for each in raw})
    figure = Figure(figsize=(5.4, 0.6 + 2.9 * len(coordinates)), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    for place, coordinate in enumerate(coordinates, 1):
        axes = figure.add_subplot(len(coordinates), 1, place)
        series = [[each for each in some if each.estimate.series.coordinate == coordinate] for some in (raw, filtered)]
        _panel(axes, simulated, *series)
        if len(coordinates) > 1:
            axes.set_title(f"coordinate {coordinate}", loc="left", fontsize=11)
    plan = simulated.plan
    per = "one reading" if plan.window is None else f"all readings in any {plan.window / 3600:g} h"
    cost = "a whole stream" if simulated.kind == "stream" else per
    truncated = simulated.timeline.epochs[-1].campaign.thetas
    figure.suptitle(
        f"{raw[0].estimate.reports:,} reports a slot, {plan.budget.text} for {cost}; θ = {truncated}",
        fontsize=12,
        color=INK,
    )
    # The resolution keeps letters readable on a phone, where the picture is a third as wide as on a page.
    figure.savefig(path, dpi=200)


def _panel(axes: Axes, simulated: Simulated, raw: list[Compared], filtered: list[Compared]) -> None:
    start = raw[0].estimate.start
    hours = np.array([(each.estimate.start - start) / 3600 for each in raw])
    lows, highs = ([getattr(each.estimate, name) for each in raw] for name in ("low", "high"))
    axes.fill_between(hours, lows, highs, color=LIGHT, alpha=0.75, label="95 % interval")
    axes.plot(hours, [each.estimate.estimate for each in raw], color=BLUE, linewidth=1.0, alpha=0.7, label="estimate")
    if filtered:
        times = [(each.estimate.start - start) / 3600 for each in filtered]
        axes.plot(times, [each.estimate.estimate for each in filtered], color=BLUE, linewidth=2.2, label="filtered")
    axes.plot(hours, [each.truth_raw for each in raw], color=ORANGE, linewidth=1.6, label="truth")
    _thresholds(axes, hours, raw)
    axes.set_ylabel(simulated.plan.unit, color=GREY)
    axes.set_xlabel("hours of the report phase", color=GREY)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e6e8eb", linewidth=0.8)
    axes.margins(x=0.01, y=0.15)
    axes.legend(frameon=False, ncols=4, fontsize=9.5)


def _thresholds(axes: Axes, hours: NDArray[np.float64], raw: list[Compared]) -> None:
    """Draw θ on a scale of its own on the right, if not all slots have the same θ."""
    thetas = [each.estimate.theta or 0 for each in raw]
    if len(set(thetas)) < 2:
        return
    right = axes.twinx()
    right.step(hours, thetas, where="post", color=GREY, linewidth=1.2, linestyle=":", label="θ")
    right.set_ylim(0, 1.6 * max(thetas))
    right.set_ylabel("θ of the block", color=GREY)
    right.spines[["top"]].set_visible(False)
    right.legend(frameon=False, loc="upper right", fontsize=9.5)

"""Style of all figures of the studies: one set of rules, so that pictures can be compared.

Six of the colours are Okabe and Ito's, for colour-blind readers. Each line of fewer than `_DENSE` points has a marker
and a dash of its own, for grey print. Lines are labelled at their ends. A baseline is grey. Panels of one quantity
share one scale. No panel has more than `MOST_LINES` lines.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from undertone_studies.panel import Panel

MOST_LINES = 8
INK, GREY, GRID = "#22262b", "#8a8f96", "#e4e6e9"
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#5b3a8c", "#7a5c2e")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (6, 2, 2, 2)))
_COLOURS_OF_A_FILE = 128
_WIDE, _HIGH, _DOTS = 5.6, 3.7, 110
# With this many points or more, dashes and markers would hide a line.
_DENSE = 50
# The least distance of two labels, as a share of the panel's height.
_APART = 0.06


def check(panels: "Sequence[Panel]") -> None:
    """Check the number of lines. Raises Invalid for a panel with too many."""
    for panel in panels:
        if len(panel.curves) > MOST_LINES:
            raise Invalid(f"panel {panel.title!r} has {len(panel.curves)} lines, expected at most {MOST_LINES}")


def figure(panels: "Sequence[Panel]") -> "Figure":
    """Draw the panels, two in a row; those of one quantity share its scale. Raises Invalid."""
    from matplotlib.figure import Figure

    check(panels)
    columns = 1 if len(panels) == 1 else 2
    rows = -(-len(panels) // columns)
    picture = Figure(figsize=(_WIDE * columns + 1.2, _HIGH * rows), layout="constrained", facecolor="white")
    drawn = [(panel, picture.add_subplot(rows, columns, place)) for place, panel in enumerate(panels, 1)]
    names = list(dict.fromkeys(name for panel in panels for name in panel.shown() if name != panel.baseline))
    for panel, axes in drawn:
        # A curve of one name has the same style in all panels, if there are enough styles.
        _plot(axes, panel, names if len(names) <= MOST_LINES else [name for name in panel.shown() if name in names])
    _share(drawn)
    for panel, axes in drawn:
        _label(axes, panel)
    return picture


def save(picture: "Figure", path: Path) -> None:
    """Save a PNG with few colours. Raises OSError."""
    from PIL import Image

    whole = io.BytesIO()
    picture.savefig(whole, format="png", dpi=_DOTS)
    Image.open(whole).convert("RGB").quantize(_COLOURS_OF_A_FILE).save(path, format="png", optimize=True)


def _plot(axes: "Axes", panel: "Panel", names: list[str]) -> None:
    """Draw a panel's lines; a line's place in ``names`` determines its style."""
    for name, (x, y) in panel.shown().items():
        if name == panel.baseline:
            axes.plot(x, y, color=GREY, linewidth=2.2, zorder=1, label=name)
            continue
        place, dense = names.index(name), len(x) >= _DENSE
        axes.plot(
            x,
            y,
            color=COLOURS[place],
            linestyle=("-" if dense else _DASHES[place]) if panel.joined else "none",
            marker=None if dense else _MARKERS[place],
            markersize=4.5,
            linewidth=1.0 if dense else 1.6,
            zorder=2 + (len(names) - place) / len(names),
            label=name,
        )
    if panel.relative:
        axes.axhline(1.0, color=GREY, linewidth=2.2, zorder=1)
    axes.set_title(panel.title, loc="left", fontsize=11, color=INK, fontweight="bold")
    axes.set_xlabel(panel.x, color=INK)
    axes.set_ylabel(
        panel.quantity() + {"lower": "  (lower is better)", "higher": "  (higher is better)"}.get(panel.better, "")
    )
    axes.set_yscale("log" if panel.logarithmic else "linear")
    axes.set_xscale("log" if panel.logarithmic_x else "linear")
    axes.grid(True, which="major", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    if not panel.logarithmic_x:
        axes.ticklabel_format(axis="x", style="plain")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if panel.logarithmic_x:
        xs = sorted({value for x, _ in panel.curves.values() for value in x})
        if len(xs) <= 8:
            axes.set_xticks(xs, [f"{value:g}" for value in xs])
            axes.minorticks_off()


def _share(drawn: "Sequence[tuple[Panel, Axes]]") -> None:
    """Give panels of one quantity the same scale: the widest range, logarithmic only if all of them are."""
    for quantity in {panel.quantity() for panel, _ in drawn}:
        same = [(panel, axes) for panel, axes in drawn if panel.quantity() == quantity]
        straight = not all(panel.logarithmic for panel, _ in same)
        for _, axes in same:
            axes.set_yscale("linear" if straight else "log")
        limits = [axes.get_ylim() for _, axes in same]
        for _, axes in same:
            axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def _label(axes: "Axes", panel: "Panel") -> None:
    """Write names at the lines' right ends, moved apart; label the grey line at 1 with the name ``panel.relative``."""
    import numpy as np

    to_axes = axes.transData + axes.transAxes.inverted()
    right = axes.get_xlim()[1]
    ends: list[tuple[float, str, str]] = []
    for line in axes.get_lines():
        name, last = str(line.get_label()), np.asarray(line.get_ydata(), dtype=float)
        last = last[np.isfinite(last)]
        if len(last):
            height = float(to_axes.transform((right, last[-1]))[1])
            ends.append((height, panel.relative if name.startswith("_") else name, str(line.get_color())))
    ends.sort()
    heights: list[float] = []
    for height, _, _ in ends:
        heights.append(max(height, heights[-1] + _APART) if heights else height)
    over = max(heights[-1] - 1.0, 0.0) if heights else 0.0
    for height, (_, name, colour) in zip(heights, ends, strict=True):
        axes.text(1.015, height - over, name, transform=axes.transAxes, color=colour, fontsize=8.5, va="center")

"""What an experiment gives: a table, sentences, and the curves of its figure."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Cell = str | int | float
Curve = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True)
class Panel:
    """One diagram: named curves (x, y)."""

    title: str
    x: str
    y: str
    curves: Mapping[str, Curve]
    logarithmic: bool = True


@dataclass(frozen=True)
class Outcome:
    """``rows`` under ``columns``; ``notes`` are sentences, the guarantee among them."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    panels: Sequence[Panel] = field(default=())

    def markdown(self) -> str:
        """A heading, a table, and the notes."""
        lines = [f"**{self.title}**", "", "| " + " | ".join(self.columns) + " |", "|" + "---|" * len(self.columns)]
        lines += ["| " + " | ".join(map(_text, row)) + " |" for row in self.rows]
        return "\n".join([*lines, "", *self.notes]) + "\n"

    def document(self) -> dict[str, Any]:
        """For JSON."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"title": self.title, "rows": rows, "notes": list(self.notes)}

    def csv(self) -> str:
        """The table with a header."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        return text.getvalue()

    def write(self, folder: Path, name: str) -> None:
        """``name``.csv, ``name``.json, and ``name``.png where there is a figure. Raises OSError."""
        (folder / f"{name}.csv").write_text(self.csv())
        (folder / f"{name}.json").write_text(json.dumps(self.document(), ensure_ascii=False, indent=1) + "\n")
        if self.panels:
            self.draw(folder / f"{name}.png")

    def draw(self, path: Path) -> None:
        """The figure, as PNG or whatever the suffix says. Raises OSError."""
        from matplotlib.figure import Figure

        columns = min(len(self.panels), 2)
        lines = -(-len(self.panels) // max(columns, 1))
        figure = Figure(figsize=(6.4 * columns, 4.2 * lines), layout="constrained")
        for place, panel in enumerate(self.panels, 1):
            axes = figure.add_subplot(lines, columns, place)
            for name, (x, y) in panel.curves.items():
                axes.plot(x, y, marker="o" if len(x) < 20 else None, markersize=3, linewidth=1.2, label=name)
            axes.set_title(panel.title)
            axes.set_xlabel(panel.x)
            axes.set_ylabel(panel.y)
            if panel.logarithmic:
                axes.set_yscale("log")
            axes.legend(fontsize=8)
        figure.savefig(path, dpi=120)


def _text(cell: Cell) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
